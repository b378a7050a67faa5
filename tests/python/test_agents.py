"""Agents that are functions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import peregrine
import pytest
from conftest import Caller, text_of


@peregrine.agent
def greeter(turn: peregrine.Turn) -> str:
    """Greets everybody."""
    return f"Hello, {turn.text}!"


@peregrine.agent(name="counter", description="Counts.")
def counter(turn: peregrine.Turn):
    for number in range(1, 4):
        yield f"{number} "


@peregrine.agent(name="sleeper")
async def sleeper(turn: peregrine.Turn):
    turn.status("working", "asleep")
    await asyncio.sleep(0.01)
    return "awake"


@peregrine.agent(name="asker")
async def asker(turn: peregrine.Turn):
    if turn.state == "input-required":
        turn.artifact(f"a {turn.text} coffee")
        turn.status("completed")
    else:
        turn.ask("what size?")


@peregrine.agent(name="failing")
def failing(turn: peregrine.Turn):
    if turn.text == "late":
        turn.status("working")
    raise ValueError("no such town")


def test_a_text_is_the_answer_and_there_is_no_task():
    with peregrine.Server(greeter, port=0) as server:
        answer = Caller(server.url).send("you")
    assert text_of(answer["message"]["parts"]) == "Hello, you!"


def test_what_is_yielded_is_one_artifact_of_a_task():
    with peregrine.Server(counter, port=0) as server:
        caller = Caller(server.url)
        events = list(caller.stream("go"))
        chunks = [one["artifactUpdate"] for one in events if "artifactUpdate" in one]
        assert [text_of(one["artifact"]["parts"]) for one in chunks] == ["1 ", "2 ", "3 "]
        assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        task = caller.task(events[0]["task"]["id"])
    assert text_of(task["artifacts"][0]["parts"]) == "1 2 3 "


def test_an_async_agent_completes_its_task_with_what_it_returns():
    with peregrine.Server(sleeper, port=0) as server:
        task = Caller(server.url).send("go")["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task["status"]["message"]["parts"]) == "awake"


def test_a_task_waits_for_the_next_message():
    with peregrine.Server(asker, port=0) as server:
        caller = Caller(server.url)
        task = caller.send("coffee")["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = caller.send("large", taskId=task["id"], contextId=task["contextId"])["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task["artifacts"][0]["parts"]) == "a large coffee"


@pytest.mark.parametrize("shown", [True, False])
def test_an_exception_fails_the_task_with_its_text_or_a_reference(shown, caplog):
    with peregrine.Server(failing, port=0, show_errors=shown) as server:
        caller = Caller(server.url)
        task = caller.send("late")["task"]
        text = text_of(task["status"]["message"]["parts"])
        error = caller.send("at once")["error"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    if shown:
        assert text == "ValueError: no such town"
        assert error["message"] == "ValueError: no such town"
    else:
        reference = text.removeprefix("the agent has failed (reference ").rstrip(")")
        assert len(reference) == 12 and reference in caplog.text
        assert "no such town" not in error["message"]


def test_a_cancel_reaches_an_async_agent():
    canceled = threading.Event()

    @peregrine.agent(name="endless")
    async def endless(turn: peregrine.Turn):
        turn.status("working")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            canceled.set()
            raise

    with peregrine.Server(endless, port=0) as server:
        caller = Caller(server.url)
        task = caller.send_at_once("go")
        answer = caller.cancel(task["id"])
        assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert canceled.wait(10)


def test_a_cancel_ends_what_a_plain_function_publishes():
    ended = threading.Event()

    @peregrine.agent(name="endless")
    def endless(turn: peregrine.Turn):
        turn.status("working")
        try:
            while True:
                turn.chunk("x")
                time.sleep(0.01)
        except peregrine.TaskClosed:
            ended.set()
            raise

    with peregrine.Server(endless, port=0) as server:
        caller = Caller(server.url)
        caller.cancel(caller.send_at_once("go")["id"])
        assert ended.wait(10)


def test_an_agent_may_refuse_a_cancel():
    @peregrine.agent(name="binding")
    async def binding(turn: peregrine.Turn):
        turn.status("working")
        await asyncio.sleep(60)

    @binding.on_cancel
    def decide(cancel: peregrine.CancelRequest):
        raise RuntimeError("an order is binding")

    with peregrine.Server(binding, port=0) as server:
        caller = Caller(server.url)
        task = caller.send_at_once("go")
        error = caller.cancel(task["id"])["error"]
        assert error["code"] == -32002 and "an order is binding" in error["message"]
        assert caller.task(task["id"])["status"]["state"] == "TASK_STATE_WORKING"


def test_several_agents_have_places_of_their_own():
    with peregrine.Server(greeter, counter, port=0) as server:
        answer = Caller(f"{server.url}/agents/counter").send("go")
        card = Caller(f"{server.url}/agents/counter").http.get(
            f"{server.url}/agents/counter/.well-known/agent-card.json"
        )
    assert text_of(answer["task"]["artifacts"][0]["parts"]) == "1 2 3 "
    assert card.json()["name"] == "counter" and card.json()["description"] == "Counts."


def test_the_configuration_knows_callers():
    @peregrine.agent
    def who(turn: peregrine.Turn):
        return f"{turn.caller}"

    key = "0123456789abcdef0123456789abcdef"
    settings = f"""
    [[auth.api_keys]]
    name = "robot"
    key = "{key}"
    """
    with peregrine.Server(who, port=0, settings=settings) as server:
        assert text_of(
            Caller(server.url, {"X-API-Key": key}).send("who?")["message"]["parts"]
        ) == "robot"
        assert Caller(server.url).http.post(server.url, json={}).status_code == 401


def test_a_wrong_configuration_is_named():
    with pytest.raises(peregrine.Error, match="settings:2.*lisen"):
        peregrine.Server(greeter, settings="\nlisen = 3\n").start()


def test_a_started_server_refuses_in_a_forked_process():
    with peregrine.Server(greeter, port=0) as server:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                server.port
            except peregrine.Error as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert b"after the fork" in os.read(read, 1000)
        assert text_of(Caller(server.url).send("you")["message"]["parts"]) == "Hello, you!"


def test_a_server_that_stops_fails_what_runs():
    server = peregrine.Server(sleeper, port=0, settings="[limits]\ndrain_ms = 100\n").start()
    server.stop()
    with pytest.raises(peregrine.Error, match="has ended"):
        server.port


def test_what_is_published_may_be_awaited():
    async def awaits(turn: peregrine.Turn):
        await turn.status("working", "on it")
        await turn.artifact("a ", last=False)
        await turn.chunk("b")
        await turn.ask("and then?")

    with peregrine.Server(awaits, port=0) as server:
        task = Caller(server.url).send("go")["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


def test_the_configuration_says_whether_errors_are_shown():
    with peregrine.Server(failing, port=0, settings="show_errors = false\n") as server:
        task = Caller(server.url).send("go")
    assert "reference" in json.dumps(task)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: peregrine.agent("x"), "a function of a turn"),
        (lambda: peregrine.agent(lambda: None), "one argument, the turn"),
        (lambda: peregrine.agent(card={"skils": []})(sleeper), "do you mean 'skills'?"),
        (lambda: peregrine.agent(skills=["x"])(sleeper), "must be a dict"),
        (lambda: peregrine.agent(skills=[{"id": "x"}])(sleeper), "skills[0] has no 'name'"),
        (lambda: peregrine.Server(port=0).start(), "needs an agent"),
    ],
)
def test_what_is_no_agent_is_refused_with_the_reason(make, words):
    with pytest.raises((TypeError, ValueError)) as error:
        make()
    assert words in str(error.value)


def test_sigterm_lets_running_tasks_end():
    program = """
import asyncio, peregrine

@peregrine.agent
async def slow(turn):
    turn.status("working")
    await asyncio.sleep(1)

peregrine.serve(slow, port=0)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    line = next(line for line in process.stdout if " url " in line)
    caller = Caller(line.split()[-1])
    events = caller.stream("go")
    states = [next(events)]
    process.send_signal(signal.SIGTERM)
    states += list(events)
    assert states[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    process.stdout.close()
    assert process.wait(30) == 0


class Mute(Exception):
    def __str__(self):
        raise SystemExit("no text")


def fails_badly(text: str):
    if text == "exit":
        raise SystemExit(2)
    if text == "interrupt":
        raise KeyboardInterrupt
    if text == "cancelled":
        raise asyncio.CancelledError
    if text == "mute":
        raise Mute
    if text == "surrogate":
        raise OSError("\udcff")
    return "fine"


BAD = ["exit", "interrupt", "cancelled", "mute", "surrogate"]


def test_no_exception_ends_the_threads_or_the_loop_of_agents():
    kept = []

    def plain(turn: peregrine.Turn):
        kept.append(turn)
        if turn.text.startswith("task "):
            turn.status("working")
        return fails_badly(turn.text.removeprefix("task "))

    async def later(turn: peregrine.Turn):
        kept.append(turn)
        if turn.text.startswith("task "):
            turn.status("working")
        if turn.text == "stop":
            asyncio.get_running_loop().stop()
        return fails_badly(turn.text.removeprefix("task "))

    with peregrine.Server(plain, later, port=0, threads=1) as server:
        for name in ("plain", "later"):
            caller = Caller(f"{server.url}/agents/{name}")
            for bad in BAD:
                assert "error" in caller.send(bad), (name, bad)
                task = caller.send(f"task {bad}")["task"]
                assert task["status"]["state"] == "TASK_STATE_FAILED", (name, bad)
            assert text_of(caller.send("stop")["message"]["parts"]) == "fine"
            assert text_of(caller.send("good")["message"]["parts"]) == "fine"


def test_an_exception_in_a_later_turn_fails_the_task():
    def asks_once(turn: peregrine.Turn):
        if turn.state is None:
            turn.ask("well?")
        else:
            raise ValueError("no such town")

    with peregrine.Server(asks_once, port=0) as server:
        caller = Caller(server.url)
        task = caller.send("coffee")["task"]
        task = caller.send("large", taskId=task["id"], contextId=task["contextId"])["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_refused_cancel_shows_its_words_and_no_secrets(shown, is_async):
    begun = threading.Event()

    @peregrine.agent
    async def slow(turn: peregrine.Turn):
        turn.status("working")
        begun.set()
        await asyncio.sleep(60)

    @peregrine.agent(name="slow")
    def blocking(turn: peregrine.Turn):
        turn.status("working")
        begun.set()
        while not turn.is_over:
            time.sleep(0.01)

    async def decide(cancel: peregrine.CancelRequest):
        await asyncio.sleep(0)
        if cancel.task_id == refused:
            raise peregrine.CancelRefused("an order is binding")
        raise KeyError("password")

    agent = slow if is_async else blocking
    agent.on_cancel(decide)
    with peregrine.Server(agent, port=0, threads=4, show_errors=shown) as server:
        caller = Caller(server.url)
        refused = caller.send_at_once("go")["id"]
        other = caller.send_at_once("go")["id"]
        assert "an order is binding" in caller.cancel(refused)["error"]["message"]
        assert ("password" in caller.cancel(other)["error"]["message"]) == shown


def test_a_reload_changes_what_may_change():
    def settings(name: str) -> str:
        return f'[agents.{name}]\nkind = "echo"\n'

    with peregrine.Server(greeter, port=0, settings=settings("one")) as server:
        one, two = (Caller(f"{server.url}/agents/{name}") for name in ("one", "two"))
        assert "task" in one.send("you")
        assert "error" in two.send("you")
        with pytest.raises(peregrine.Error):
            server.reload("[limits]\nno_such_limit = 1\n")
        assert "task" in one.send("you")
        server.reload(settings("two"))
        assert "error" in one.send("you")
        assert "task" in two.send("you")
        assert text_of(Caller(server.url).send("you")["message"]["parts"]) == "Hello, you!"


def test_a_loop_that_cannot_be_made_opens_no_port():
    def no_loop():
        raise RuntimeError("no loop")

    server = peregrine.Server(sleeper, port=0, new_loop=no_loop)
    with pytest.raises(RuntimeError):
        server.start()
    with pytest.raises(RuntimeError):
        server.start()
    server.stop()
    with pytest.raises(ValueError):
        peregrine.Server(greeter, port=0, threads=0)
