"""The Python `websockets` client against a running echo agent: ws.py BASE_URL"""

import asyncio
import itertools
import json
import sys
import uuid

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from harness import case, check, check_stream, equal, main, raises

HEADERS = {"A2A-Version": "1.0"}
COMPLETE = {"status": "stream_complete"}


def message(text, at_once=False):
    params = {
        "message": {
            "messageId": str(uuid.uuid4()),
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        }
    }
    if at_once:
        params["configuration"] = {"returnImmediately": True}
    return params


class Session:
    """A connection that sorts answers by the ids of their requests."""

    def __init__(self, base_url, query="", **options):
        self.url = base_url.replace("http", "ws", 1) + "/" + query
        self.options = {"additional_headers": HEADERS, "subprotocols": ["a2a"], **options}
        self.ids, self.queues = itertools.count(1), {}

    async def __aenter__(self):
        self.socket = await connect(self.url, proxy=None, max_size=2**24, **self.options)
        equal(self.socket.subprotocol, "a2a", "subprotocol")
        self.reader = asyncio.create_task(self.sort())
        return self

    async def __aexit__(self, *_):
        await self.socket.close()
        await self.reader

    async def sort(self):
        async for text in self.socket:
            answer = json.loads(text)
            equal(answer["jsonrpc"], "2.0", "version")
            self.queues[answer["id"]].put_nowait(answer)

    async def ask(self, method, params):
        number = next(self.ids)
        self.queues[number] = asyncio.Queue()
        call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        await self.socket.send(json.dumps(call))
        return self.queues[number]

    async def call(self, method, params):
        answer = await (await self.ask(method, params)).get()
        check("error" not in answer, f"{method}: {answer}")
        return answer["result"]

    async def fails(self, method, params):
        answer = await (await self.ask(method, params)).get()
        check("result" not in answer, f"{method}: {answer}")
        return answer["error"]["code"]

    async def events(self, method, params):
        answers = await self.ask(method, params)
        while (answer := await answers.get())["result"] != COMPLETE:
            yield answer


def steps_of(results):
    """Names of the events for `check_stream`; the first must be the task."""
    task = results[0]["task"]
    names = [task["status"]["state"]]
    for result in results[1:]:
        ((kind, update),) = result.items()
        equal(update["taskId"], task["id"], "task id of an event")
        names.append("artifact" if kind == "artifactUpdate" else update["status"]["state"])
    return [name.removeprefix("TASK_STATE_").lower() for name in names]


def text_of(results):
    artifacts = (r["artifactUpdate"]["artifact"] for r in results if "artifactUpdate" in r)
    return "".join(part["text"] for artifact in artifacts for part in artifact["parts"])


@case
async def card(base_url):
    async with httpx.AsyncClient() as http:
        public = (await http.get(base_url + "/.well-known/agent-card.json")).json()
    async with Session(base_url) as s:
        extended = await s.call("GetExtendedAgentCard", {})
    equal(extended["name"], public["name"], "name of the extended card")
    urls = [i["url"] for i in public["supportedInterfaces"] if i["protocolBinding"] == "JSONRPC"]
    check(base_url + "/" in urls, f"the path of the upgrade is that of JSON-RPC: {urls}")


@case
async def send_and_get(base_url):
    async with Session(base_url) as s:
        text = "héllo \u2028 🦅"
        made = (await s.call("SendMessage", message(text)))["task"]
        equal(made["status"]["state"], "TASK_STATE_COMPLETED", "state")
        task = await s.call("GetTask", {"id": made["id"]})
        equal(task, made, "the task that was made")
        equal(task["artifacts"][0]["parts"], [{"text": text}], "parts")
        reply = await s.call("SendMessage", message("ping"))
        equal(reply["message"]["parts"], [{"text": "pong"}], "direct message")
        large = "x" * 2_000_000
        made = (await s.call("SendMessage", message(large)))["task"]
        equal(made["artifacts"][0]["parts"][0]["text"], large, "a large text")


@case
async def list_tasks(base_url):
    async with Session(base_url) as s:
        first = (await s.call("SendMessage", message("one")))["task"]
        params = message("two")
        params["message"]["contextId"] = first["contextId"]
        second = (await s.call("SendMessage", params))["task"]
        page = await s.call("ListTasks", {"contextId": first["contextId"]})
        equal([t["id"] for t in page["tasks"]], [second["id"], first["id"]], "newest first")


@case
async def stream(base_url):
    async with Session(base_url) as s:
        call = s.events("SendStreamingMessage", message("stream:7"))
        answers = [answer async for answer in call]
        check(all(set(a) == {"jsonrpc", "id", "result"} for a in answers), "no other members")
        results = [a["result"] for a in answers]
        check_stream(steps_of(results), 5)
        task = await s.call("GetTask", {"id": results[0]["task"]["id"]})
        equal(task["artifacts"][0]["parts"][0]["text"][:3], text_of(results)[:3], "stored text")
        call = s.events("SendStreamingMessage", message("ping"))
        (only,) = [answer async for answer in call]
        equal(only["result"]["message"]["parts"], [{"text": "pong"}], "streamed message")


@case
async def subscribe_and_resume(base_url):
    async with Session(base_url, "?eventIds=1") as s, Session(base_url, "?eventIds=1") as t:
        task = (await s.call("SendMessage", message("hold:400:6", at_once=True)))["task"]
        subscribe = {"id": task["id"]}
        whole, broken = [], []

        async def follow():
            async for answer in s.events("SubscribeToTask", subscribe):
                whole.append(answer)

        async def leave():
            async for answer in t.events("SubscribeToTask", subscribe):
                broken.append(answer)
                if len(broken) == 3:
                    return

        await asyncio.gather(follow(), leave())
        check_stream(steps_of([a["result"] for a in whole]), 4)
        ids = [a["eventId"] for a in whole]
        check(ids == sorted(set(ids)), f"numbers rise: {ids}")
        rest = {"id": task["id"], "lastEventId": broken[-1]["eventId"]}
        async with Session(base_url, "?eventIds=1") as u:
            broken += [a async for a in u.events("SubscribeToTask", rest)]
        equal(
            [(a["eventId"], a["result"]) for a in broken],
            [(a["eventId"], a["result"]) for a in whole],
            "nothing lost, nothing twice",
        )


@case
async def many_in_flight(base_url):
    async with Session(base_url) as s:
        finished = []

        async def held(ms):
            await s.call("SendMessage", message(f"hold:{ms}:1"))
            finished.append(ms)

        order = [600, 200, 400]
        streams = [s.events("SendStreamingMessage", message("hold:100:4")) for _ in range(10)]

        async def drained(events):
            return [a["result"] async for a in events]

        results = await asyncio.gather(*map(held, order), *map(drained, streams))
        equal(finished, sorted(order), "answered as they finish")
        for events in results[len(order) :]:
            check_stream(steps_of(events), 2)


@case
async def cancel(base_url):
    async with Session(base_url) as s:
        task = (await s.call("SendMessage", message("hold:60000:1", at_once=True)))["task"]
        events = s.events("SubscribeToTask", {"id": task["id"]})
        first = await anext(events)
        equal(first["result"]["task"]["id"], task["id"], "snapshot")
        done = await s.call("CancelTask", {"id": task["id"]})
        equal(done["status"]["state"], "TASK_STATE_CANCELED", "state")
        rest = [a["result"] async for a in events]
        equal(rest[-1]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "last event")


@case
async def errors(base_url):
    async with Session(base_url) as s:
        equal(await s.fails("GetTask", {"id": "no-such-task"}), -32001, "get")
        equal(await s.fails("SubscribeToTask", {"id": "no-such-task"}), -32001, "subscribe")
        equal(await s.fails("SendMessage", {}), -32602, "no message")
        equal(await s.fails("NoSuchMethod", {}), -32601, "method")
    async with connect(s.url, proxy=None) as socket:
        await socket.send(b"{}")
        closed = await raises(ConnectionClosedError, socket.recv(), "bytes")
        equal(closed.rcvd.code, 1003, "close code of a message of bytes")
    refused = connect(s.url, proxy=None, origin="https://evil.example")
    status = await raises(InvalidStatus, refused, "a foreign origin")
    equal(status.response.status_code, 403, "status")


@case
async def pings_are_answered(base_url):
    async with Session(base_url, ping_interval=None) as s:
        for _ in range(3):
            await (await s.socket.ping())


main("ws", sys.argv[1])
