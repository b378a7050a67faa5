"""The official Python client, generation 0.3, against a running echo agent: py03.py BASE_URL

A2A_BINDING selects the interface of the card: JSONRPC, HTTP+JSON or GRPC.
"""

import asyncio
import base64
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskNotCancelableError,
    TaskNotFoundError,
    TaskQueryParams,
    TaskState,
    TextPart,
)
from grpc.aio import insecure_channel

from harness import BINDING, case, check, check_stream, drain, equal, main, raises


def message(*parts, **ids):
    return Message(
        message_id=str(uuid.uuid4()),
        role=Role.user,
        parts=[Part(root=TextPart(text=p) if isinstance(p, str) else p) for p in parts],
        **ids,
    )


class Session:
    """A client of the SDK, made from the server's card."""

    def __init__(self, base_url, streaming=False, polling=False, card_path=None):
        self.base_url, self.card_path = base_url, card_path
        self.config = {"streaming": streaming, "polling": polling}

    async def __aenter__(self):
        self.http = httpx.AsyncClient(timeout=15)
        resolver = A2ACardResolver(self.http, self.base_url)
        self.card = await resolver.get_agent_card(self.card_path)
        config = ClientConfig(
            httpx_client=self.http,
            supported_transports=[BINDING],
            grpc_channel_factory=insecure_channel,
            **self.config,
        )
        self.client = ClientFactory(config).create(self.card)
        return self

    async def __aexit__(self, *_):
        await self.http.aclose()

    async def send(self, msg):
        """The only answer to a message that is not streamed: a task or a message."""
        (event,) = await drain(self.client.send_message(msg))
        return event[0] if isinstance(event, tuple) else event


async def held_task(base_url, text):
    async with Session(base_url, polling=True) as s:
        task = await s.send(message(text))
        check(task.status.state in (TaskState.submitted, TaskState.working), f"held: {task}")
        return task


def steps_of(events):
    """Names of the events for `check_stream`; the first must be the task."""
    check(events and events[0][1] is None, f"first event is a task: {events[:1]}")
    steps, last = [], None
    for task, update in events:
        equal(task.id, events[0][0].id, "task id of an event")
        if isinstance(update, TaskArtifactUpdateEvent):
            steps.append("artifact")
        else:
            last = update
            steps.append((update or FIRST[task.id]).status.state.value)
    check(last is not None and last.final, "the last status update is final")
    return steps


# The SDK folds every event into one task object, so the first state is saved.
FIRST = {}


async def collect(stream):
    events = []
    async for task, update in stream:
        if update is None:
            FIRST[task.id] = task.model_copy(deep=True)
        events.append((task, update))
    return events


def text_of(task):
    return "".join(p.root.text for a in task.artifacts or [] for p in a.parts)


async def refused(call, error, status, what):
    """Asserts this error, in the form of the client's transport."""
    raised = await raises(Exception, call, what)
    if BINDING == "JSONRPC":
        check(isinstance(raised, A2AClientJSONRPCError), f"{what}: {raised!r}")
        equal(raised.error.code, error().code, f"code of {what}")
    elif BINDING == "HTTP+JSON":
        check(isinstance(raised, A2AClientHTTPError), f"{what}: {raised!r}")
        equal(raised.status_code, status, f"status of {what}")
    else:
        check(raised.details().startswith(f"{error.__name__}: "), f"{what}: {raised!r}")


@case
async def card(base_url):
    async with Session(base_url) as s:
        check(s.card.name and s.card.version and s.card.url, "card has name, version, url")
        check(s.card.protocol_version.startswith("0.3"), f"version {s.card.protocol_version}")
        equal(s.card.preferred_transport, "JSONRPC", "preferred transport")
        check(s.card.capabilities.streaming, "card offers streaming")
    async with Session(base_url, card_path="/.well-known/agent.json") as old:
        equal(old.card, s.card, "the card of the older path")


@case
async def send_echoes_every_kind_of_part(base_url):
    raw = base64.b64encode(bytes(range(256))).decode()
    binary = FileWithBytes(bytes=raw, name="all.bin", mime_type="application/octet-stream")
    link = FileWithUri(uri="https://example.com/o.txt", name="o.txt", mime_type="text/plain")
    sent = message(
        "héllo \"wörld\" \\ \u2028 🦅",
        DataPart(data={"k": [1, 2.5, None, True, {"n": "v"}]}),
        FilePart(file=binary),
        FilePart(file=link),
    )
    async with Session(base_url) as s:
        task = await s.send(sent)
        check(isinstance(task, Task) and task.context_id, f"a task: {task}")
        equal(task.status.state, TaskState.completed, "state")
        equal(len(task.artifacts), 1, "artifacts")
        equal(task.artifacts[0].parts, sent.parts, "parts")


@case
async def ping_is_answered_by_a_message(base_url):
    for streaming in (False, True):
        async with Session(base_url, streaming=streaming) as s:
            reply = await s.send(message("ping"))
            check(isinstance(reply, Message), f"a message: {reply}")
            equal(reply.role, Role.agent, "role")
            equal([p.root.text for p in reply.parts], ["pong"], "parts")


@case
async def stream(base_url):
    async with Session(base_url, streaming=True) as s:
        events = await collect(s.client.send_message(message("stream:7")))
        check_stream(steps_of(events), 5)
        task = await s.client.get_task(TaskQueryParams(id=events[0][0].id))
        equal(task.status.state, TaskState.completed, "state")
        check(text_of(task), "streamed text")
        equal(text_of(task), text_of(events[-1][0]), "stored text is the streamed text")


@case
async def get_task(base_url):
    async with Session(base_url) as s:
        sent = message("remember me", context_id=f"ctx-{uuid.uuid4()}")
        made = await s.send(sent)
        equal(made.context_id, sent.context_id, "context")
        task = await s.client.get_task(TaskQueryParams(id=made.id, history_length=1))
        equal(task.id, made.id, "id")
        equal(text_of(task), "remember me", "artifact")
        equal([m.message_id for m in task.history], [sent.message_id], "history")


@case
async def cancel(base_url):
    task = await held_task(base_url, "hold:3000:3")
    async with Session(base_url) as s:
        gone = await s.client.cancel_task(TaskIdParams(id=task.id))
        equal(gone.id, task.id, "id")
        equal(gone.status.state, TaskState.canceled, "state")
        after = await s.client.get_task(TaskQueryParams(id=task.id))
        equal(after.status.state, TaskState.canceled, "stored state")
        call = s.client.cancel_task(TaskIdParams(id=task.id))
        await refused(call, TaskNotCancelableError, 409, "a second cancel")


@case
async def resubscribe_sees_the_rest(base_url):
    task = await held_task(base_url, "hold:1000:6")
    async with Session(base_url, streaming=True) as s:
        params = TaskIdParams(id=task.id)
        one, two = await asyncio.gather(
            collect(s.client.resubscribe(params)), collect(s.client.resubscribe(params))
        )
        for events in (one, two):
            equal(events[0][0].id, task.id, "task")
            check_stream(steps_of(events), 4)
        stored = await s.client.get_task(TaskQueryParams(id=task.id))
        equal(text_of(stored), text_of(one[-1][0]), "stored text")


@case
async def errors(base_url):
    async with Session(base_url, streaming=True) as s:
        call = s.client.get_task(TaskQueryParams(id="no-such-task"))
        await refused(call, TaskNotFoundError, 404, "get")
        call = s.client.cancel_task(TaskIdParams(id="no-such-task"))
        await refused(call, TaskNotFoundError, 404, "cancel")
        # This client cannot read an error that is not a stream: any exception will do.
        call = drain(s.client.resubscribe(TaskIdParams(id="no-such-task")))
        await raises(Exception, call, "resubscribe")


@case
async def the_other_generation_reads_the_task(base_url):
    async with Session(base_url) as s:
        made = await s.send(message("for both"))
        url = s.card.url
    async with httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": made.id}}
        task = (await http.post(url, json=call)).json()["result"]
        equal(task["status"]["state"], "TASK_STATE_COMPLETED", "state")
        equal(task["artifacts"][0]["parts"], [{"text": "for both"}], "parts")


if __name__ == "__main__":
    main("py03", sys.argv[1])
