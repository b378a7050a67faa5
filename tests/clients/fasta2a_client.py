"""Pydantic AI's client against a running echo agent: fasta2a_client.py BASE_URL

The agent is also served in its dialect: `--mount /fasta2a=fasta2a`.
"""

import base64
import sys
import uuid

from fasta2a.client import A2AClient

from harness import case, check, drain, equal, main


def client(base_url):
    """A client that found the agent by its card."""
    return A2AClient(f"{base_url}/fasta2a", fetch_card=True)


def message(*parts, **ids):
    parts = [{"text": p} if isinstance(p, str) else p for p in parts]
    return {"role": "user", "parts": parts, "message_id": str(uuid.uuid4()), **ids}


async def sent(c, *parts, **ids):
    response = await c.send_message(message(*parts, **ids))
    check("error" not in response, f"{response}")
    return response["result"]


def steps_of(results):
    """The kind of each item of a stream: the name of its only member."""
    check(all(len(result) == 1 for result in results), f"one member each: {results}")
    return [next(iter(result)) for result in results]


@case
async def card(base_url):
    c = client(base_url)
    equal(c.agent_card["supported_interfaces"][0]["url"], f"{base_url}/fasta2a", "URL")
    check(c.agent_card["capabilities"]["streaming"], "card offers streaming")
    for skill in c.agent_card["skills"]:
        check(skill["input_modes"] and skill["output_modes"], f"media types of {skill}")


@case
async def send_echoes_every_kind_of_part(base_url):
    parts = [
        {"text": "héllo \"wörld\" \\ \u2028 🦅"},
        {"data": {"k": [1, 2.5, None, True, {"n": "v"}]}},
        {"raw": base64.b64encode(bytes(range(256))).decode(), "filename": "all.bin",
         "media_type": "application/octet-stream"},
        {"url": "https://example.com/o.txt", "media_type": "text/plain"},
    ]
    task = (await sent(client(base_url), *parts))["task"]
    equal(task["status"]["state"], "completed", "state")
    equal(task["artifacts"][0]["parts"], parts, "parts")
    equal(task["history"][0]["role"], "user", "role")


@case
async def ping_is_answered_by_a_message(base_url):
    c = client(base_url)
    reply = (await sent(c, "ping"))["message"]
    equal((reply["role"], reply["parts"]), ("agent", [{"text": "pong"}]), "message")
    (item,) = await drain(c.stream_message(message("ping")))
    equal(item["result"]["message"]["parts"], [{"text": "pong"}], "streamed message")


@case
async def stream(base_url):
    items = await drain(client(base_url).stream_message(message("stream:7")))
    results = [item["result"] for item in items]
    steps = steps_of(results)
    equal(steps, ["task", "status_update"] + ["artifact_update"] * 5 + ["status_update"], "steps")
    states = [r["status_update"]["status"]["state"] for r in results if "status_update" in r]
    equal(states, ["working", "completed"], "states")
    chunks = [r["artifact_update"] for r in results if "artifact_update" in r]
    equal([chunk["append"] for chunk in chunks], [False] + [True] * 4, "append")
    equal(chunks[-1]["last_chunk"], True, "last chunk")


@case
async def get_task(base_url):
    c = client(base_url)
    task = (await sent(c, "remember me"))["task"]
    again = (await c.get_task(task["id"]))["result"]
    equal(again, task, "the same again")


@case
async def a_context_goes_on(base_url):
    c = client(base_url)
    first = (await sent(c, "one"))["task"]
    second = (await sent(c, "two", context_id=first["context_id"]))["task"]
    equal(second["context_id"], first["context_id"], "context")
    check(second["id"] != first["id"], "another task")


@case
async def an_answer_at_once(base_url):
    c = client(base_url)
    configuration = {"accepted_output_modes": ["text/plain"], "blocking": False}
    response = await c.send_message(message("hold:3000:3"), configuration=configuration)
    check(response["result"]["task"]["status"]["state"] in ("submitted", "working"), f"{response}")


@case
async def errors(base_url):
    c = client(base_url)
    # It reads an error of this call only with an expected code and message.
    error = (await c.get_task("no-such-task"))["error"]
    equal((error["code"], error["message"]), (-32001, "Task not found"), "get")
    lost = message("hi", task_id="no-such-task")
    equal((await c.send_message(lost))["error"]["code"], -32001, "send")
    # It reads only events of a stream.
    (item,) = await drain(c.stream_message(lost))
    equal(item["error"]["code"], -32001, "stream")


main("fasta2a", sys.argv[1])
