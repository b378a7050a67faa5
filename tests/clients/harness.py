"""Runs the cases of one client script and prints `N passed, N failed`."""

import asyncio
import os
import sys
import traceback

# The binding that a client must choose from the card.
BINDING = os.environ.get("A2A_BINDING", "JSONRPC")
CASE_SECONDS_MAX = 20
CASES = []


def case(fn):
    """Registers an async test case; its name is the function's, its docstring is the assertion."""
    CASES.append(fn)
    return fn


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(actual, expected, what):
    check(actual == expected, f"{what}: {actual!r}, expected {expected!r}")


async def raises(kind, awaitable, what):
    """Awaits, asserts an exception of `kind` and returns it."""
    try:
        await awaitable
    except kind as error:
        return error
    raise AssertionError(f"{what}: no {kind.__name__}")


async def drain(stream):
    return [event async for event in stream]


def check_stream(steps, chunks):
    """`steps` is a list of state names and the word `artifact`, in the order of arrival.

    Holds: nothing before the task works, `chunks` artifact updates next to each other, one
    terminal state, last of all.
    """
    equal(steps.count("artifact"), chunks, f"artifact updates in {steps}")
    states = [s for s in steps if s != "artifact"]
    check(states[-1:] == ["completed"], f"last state of {steps}")
    equal(steps[-1], "completed", f"last event of {steps}")
    equal(states.count("completed"), 1, f"terminal events in {steps}")
    order = [s for i, s in enumerate(states) if i == 0 or states[i - 1] != s]
    check(
        order in (["submitted", "working", "completed"], ["working", "completed"]),
        f"order of states in {steps}",
    )
    check("working" in steps[: steps.index("artifact")], f"work precedes artifacts in {steps}")


def main(label, base_url):
    async def run():
        passed = failed = 0
        # The cases of an imported script do not run.
        for fn in (fn for fn in CASES if fn.__module__ == "__main__"):
            try:
                await asyncio.wait_for(fn(base_url), CASE_SECONDS_MAX)
                passed += 1
                print(f"ok   {label} {fn.__name__}")
            except Exception:
                failed += 1
                print(f"FAIL {label} {fn.__name__}\n{traceback.format_exc()}")
        return passed, failed

    passed, failed = asyncio.run(run())
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)
