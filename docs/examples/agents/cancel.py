"""Counts down in as many turns as there are, each on a thread, until it is canceled.

peregrine serve --agent 'countdown=exec+jsonl:python3 cancel.py'
"""

import json
import sys
import threading

canceled = {}  # By turn: what its thread waits for.
out = threading.Lock()


def say(turn, **event):
    with out:
        print(json.dumps({"turn": turn, **event}), flush=True)


def count(turn, seconds):
    for left in range(seconds, 0, -1):
        say(turn, status="working", message=f"{left} s left")
        if canceled[turn].wait(1):
            # Clean up here. The task has ended already; the server drops what is still said.
            break
    else:
        say(turn, status="completed", message="lift-off")
    del canceled[turn]


for line in sys.stdin:
    event = json.loads(line)
    turn = event["turn"]
    if event["type"] == "cancel":
        if turn in canceled:
            canceled[turn].set()
        continue
    words = event["message"]["parts"][0].get("text", "")
    seconds = int(words) if words.isdigit() else 10
    canceled[turn] = threading.Event()
    threading.Thread(target=count, args=(turn, seconds), daemon=True).start()
