"""A function that keeps the contract of `peregrine bench`, served by Peregrine:

    pip install . uvloop      # in a clone of the repository
    python function.py [PORT]
"""

import asyncio
import re
import sys

import peregrine
import uvloop

TRIGGER = re.compile(r"(?:stream|hold:(\d+)):(\d+)(?::(\d+))?")


@peregrine.agent(name="bench")
async def bench(turn):
    """Echoes texts; `stream:N:BYTES` is answered with N events, `hold:MS:N:BYTES` later."""
    trigger = TRIGGER.fullmatch(turn.text)
    if trigger is None:
        turn.artifact(turn.text, "echo")
        return
    hold_ms, events, size = (int(number or 0) for number in trigger.groups())
    if events > 1:
        turn.status("working")
    await asyncio.sleep(hold_ms / 1000)
    for number in range(1, events - 1):
        chunk = f"chunk {number}"
        if len(chunk) < size:
            chunk = f"{chunk} ".ljust(size, ".")
        turn.artifact(chunk, "chunks", append=number > 1, last=number == events - 2)


port = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
peregrine.serve(bench, port=port, new_loop=uvloop.new_event_loop)
