"""Streams its answer word by word.

peregrine serve --agent 'stream=exec+jsonl:python3 stream.py'
"""

import json
import sys


def say(**event):
    print(json.dumps(event), flush=True)


for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    text = " ".join(part.get("text", "") for part in turn["message"]["parts"])
    words = text.split() or ["nothing"]
    say(turn=turn["turn"], status="working")
    for at, word in enumerate(words):
        say(
            turn=turn["turn"],
            artifact={"artifactId": "words", "text": word + " "},
            append=at > 0,
            lastChunk=at + 1 == len(words),
        )
    say(turn=turn["turn"], status="completed")
