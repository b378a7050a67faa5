"""Answers each file with its size and its checksum, as a file.

peregrine serve --agent 'files=exec+jsonl:python3 files.py'
"""

import base64
import hashlib
import json
import sys


def answer(parts):
    for part in parts:
        if "raw" not in part:
            continue
        content = base64.b64decode(part["raw"])
        name = part.get("filename", "file")
        line = f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        yield {"data": {"name": name, "bytes": len(content)}}
        yield {
            "raw": base64.b64encode(line.encode()).decode(),
            "filename": name + ".sha256",
            "mediaType": "text/plain",
        }


for line in sys.stdin:
    turn = json.loads(line)
    if turn["type"] != "turn":
        continue
    parts = list(answer(turn["message"]["parts"]))
    if parts:
        events = [{"artifact": {"artifactId": "checksums", "parts": parts}}, {"status": "completed"}]
    else:
        events = [{"status": "rejected", "message": "send a file"}]
    for event in events:
        print(json.dumps({"turn": turn["turn"], **event}), flush=True)
