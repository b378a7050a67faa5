# HTTP functions: one answers at once, the other one streams.
#
# pip install fastapi uvicorn && uvicorn function:app --port 8000
# peregrine serve --agent http://127.0.0.1:8000/shout --agent count=http://127.0.0.1:8000/count

import json

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

app = FastAPI()


def text(turn: dict) -> str:
    return "".join(part.get("text", "") for part in turn["message"]["parts"])


@app.post("/shout")
def shout(turn: dict):
    return text(turn).upper()


@app.post("/count")
def count(turn: dict):
    words = text(turn).split()

    def events():
        for at, word in enumerate(words):
            event = {"artifact": {"text": f"{word} "}, "append": at > 0}
            yield json.dumps(event | {"lastChunk": at == len(words) - 1}) + "\n"

    return StreamingResponse(events(), media_type="application/x-ndjson")
