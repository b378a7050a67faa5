"""The official Python client, generation 1.0, against a running echo agent: py1.py BASE_URL

A2A_BINDING selects the interface of the card: JSONRPC, HTTP+JSON or GRPC.
"""

import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from grpc.aio import insecure_channel

from harness import BINDING, case, check, check_stream, drain, equal, main, raises


def message(*parts, context_id="", task_id=""):
    return Message(
        message_id=str(uuid.uuid4()),
        role=Role.ROLE_USER,
        parts=[Part(text=p) if isinstance(p, str) else p for p in parts],
        context_id=context_id,
        task_id=task_id,
    )


def state_name(state):
    return TaskState.Name(state).removeprefix("TASK_STATE_").lower().replace("_", "-")


class Session:
    """A client of the SDK, made from the server's card."""

    def __init__(self, base_url, streaming):
        self.base_url, self.streaming = base_url, streaming

    async def __aenter__(self):
        self.http = httpx.AsyncClient(timeout=15)
        self.card = await A2ACardResolver(self.http, self.base_url).get_agent_card()
        config = ClientConfig(
            httpx_client=self.http,
            streaming=self.streaming,
            supported_protocol_bindings=[BINDING],
            grpc_channel_factory=insecure_channel,
        )
        self.client = ClientFactory(config).create(self.card)
        return self

    async def __aexit__(self, *_):
        await self.http.aclose()

    async def send(self, msg, at_once=False):
        """The only answer to a message that is not streamed."""
        request = SendMessageRequest(message=msg)
        request.configuration.return_immediately = at_once
        (event,) = await drain(self.client.send_message(request))
        return event

    async def held_task(self, text):
        task = (await self.send(message(text), at_once=True)).task
        check(state_name(task.status.state) in ("submitted", "working"), f"held: {task.status}")
        return task


def steps_of(events):
    """Names of the events for `check_stream`; the first must be the task."""
    check(events and events[0].HasField("task"), f"first event is a task: {events[:1]}")
    first = events[0].task
    steps = [state_name(first.status.state)]
    for event in events[1:]:
        kind = event.WhichOneof("payload")
        check(kind in ("status_update", "artifact_update"), f"kind of event {kind}")
        update = getattr(event, kind)
        equal(update.task_id, first.id, "task id of an event")
        equal(update.context_id, first.context_id, "context id of an event")
        steps.append(
            "artifact" if kind == "artifact_update" else state_name(update.status.state)
        )
    return steps


def text_of(artifacts):
    return "".join(p.text for a in artifacts for p in a.parts)


def streamed_text(events):
    return text_of(e.artifact_update.artifact for e in events if e.HasField("artifact_update"))


@case
async def card(base_url):
    async with Session(base_url, False) as s:
        check(s.card.name and s.card.version, "card has a name and a version")
        check(s.card.skills and s.card.default_input_modes, "card has skills and modes")
        check(s.card.capabilities.streaming, "card offers streaming")
        first = s.card.supported_interfaces[0]
        equal(first.protocol_binding, "JSONRPC", "first binding")
        equal(first.protocol_version, "1.0", "first version")


@case
async def extended_card(base_url):
    async with Session(base_url, False) as s:
        if s.card.capabilities.extended_agent_card:
            full = await s.client.get_extended_agent_card(GetExtendedAgentCardRequest())
            equal(full.name, s.card.name, "name of the extended card")
            check(full.supported_interfaces, "interfaces of the extended card")


@case
async def send_echoes_every_kind_of_part(base_url):
    sent = [
        Part(text="héllo \"wörld\" \\ \u2028 🦅"),
        ParseDict({"data": {"k": [1, 2.5, None, True, {"n": "v"}]}}, Part()),
        Part(raw=bytes(range(256)), filename="all.bin", media_type="application/octet-stream"),
        Part(url="https://example.com/o.txt", filename="o.txt", media_type="text/plain"),
    ]
    async with Session(base_url, False) as s:
        task = (await s.send(message(*sent))).task
        check(task.id and task.context_id, "ids")
        equal(task.status.state, TaskState.TASK_STATE_COMPLETED, "state")
        check(task.status.HasField("timestamp"), "status has a timestamp")
        equal(len(task.artifacts), 1, "artifacts")
        check(task.artifacts[0].artifact_id, "artifact id")
        back = [MessageToDict(p) for p in task.artifacts[0].parts]
        equal(back, [MessageToDict(p) for p in sent], "parts")


@case
async def ping_is_answered_by_a_message(base_url):
    async with Session(base_url, False) as s:
        reply = (await s.send(message("ping"))).message
        equal(reply.role, Role.ROLE_AGENT, "role")
        check(reply.message_id, "message id")
        equal([p.text for p in reply.parts], ["pong"], "parts")
    async with Session(base_url, True) as s:
        (event,) = await drain(s.client.send_message(SendMessageRequest(message=message("ping"))))
        equal(event.message.parts[0].text, "pong", "streamed message")


@case
async def stream(base_url):
    async with Session(base_url, True) as s:
        request = SendMessageRequest(message=message("stream:7"))
        events = await drain(s.client.send_message(request))
        check_stream(steps_of(events), 5)
        updates = [e.artifact_update for e in events if e.HasField("artifact_update")]
        equal([u.append for u in updates], [False] + [True] * 4, "append of the chunks")
        equal([u.last_chunk for u in updates], [False] * 4 + [True], "last_chunk of the chunks")
        task = await s.client.get_task(GetTaskRequest(id=events[0].task.id))
        equal(task.status.state, TaskState.TASK_STATE_COMPLETED, "state")
        equal(text_of(task.artifacts), streamed_text(events), "stored text is the streamed text")


@case
async def get_task(base_url):
    async with Session(base_url, False) as s:
        sent = message("remember me")
        made = (await s.send(sent)).task
        task = await s.client.get_task(GetTaskRequest(id=made.id))
        equal(task.id, made.id, "id")
        equal(task.context_id, made.context_id, "context")
        equal(text_of(task.artifacts), "remember me", "artifact")
        equal(task.history[0].message_id, sent.message_id, "history")
        bare = await s.client.get_task(GetTaskRequest(id=made.id, history_length=0))
        equal(len(bare.history), 0, "history of length 0")


@case
async def list_pages_newest_first(base_url):
    async with Session(base_url, False) as s:
        context = f"ctx-{uuid.uuid4()}"
        made = []
        for n in range(5):
            made.append((await s.send(message(f"n{n}", context_id=context))).task.id)
            await asyncio.sleep(0.005)
        seen, token = [], ""
        for _ in range(5):
            request = ListTasksRequest(context_id=context, page_size=2, page_token=token)
            page = await s.client.list_tasks(request)
            equal(page.total_size, 5, "total size")
            check(not any(t.artifacts for t in page.tasks), "artifacts only on request")
            seen += [t.id for t in page.tasks]
            token = page.next_page_token
            if not token:
                break
        equal(seen, made[::-1], "order of the pages")
        request = ListTasksRequest(
            context_id=context,
            status=TaskState.TASK_STATE_COMPLETED,
            include_artifacts=True,
        )
        page = await s.client.list_tasks(request)
        equal([text_of(t.artifacts) for t in page.tasks], ["n4", "n3", "n2", "n1", "n0"], "texts")
        request.status = TaskState.TASK_STATE_FAILED
        equal(len((await s.client.list_tasks(request)).tasks), 0, "filtered by state")


@case
async def cancel(base_url):
    async with Session(base_url, False) as s:
        task = await s.held_task("hold:3000:3")
        gone = await s.client.cancel_task(CancelTaskRequest(id=task.id))
        equal(gone.id, task.id, "id")
        equal(gone.status.state, TaskState.TASK_STATE_CANCELED, "state")
        after = await s.client.get_task(GetTaskRequest(id=task.id))
        equal(after.status.state, TaskState.TASK_STATE_CANCELED, "stored state")
        done = (await s.send(message("done"))).task
        call = s.client.cancel_task(CancelTaskRequest(id=done.id))
        await raises(TaskNotCancelableError, call, "cancel of a completed task")


@case
async def subscribe_sees_the_rest(base_url):
    async with Session(base_url, False) as s:
        task = await s.held_task("hold:1000:6")
        async with Session(base_url, True) as t:
            request = SubscribeToTaskRequest(id=task.id)
            one, two = await asyncio.gather(
                drain(t.client.subscribe(request)), drain(t.client.subscribe(request))
            )
        for events in (one, two):
            equal(events[0].task.id, task.id, "task")
            check_stream(steps_of(events), 4)
        equal(one, two, "both subscribers see the same")
        stored = await s.client.get_task(GetTaskRequest(id=task.id))
        equal(text_of(stored.artifacts), streamed_text(one), "stored text")


@case
async def errors(base_url):
    async with Session(base_url, True) as s:
        call = s.client.get_task(GetTaskRequest(id="no-such-task"))
        await raises(TaskNotFoundError, call, "get")
        call = s.client.cancel_task(CancelTaskRequest(id="no-such-task"))
        await raises(TaskNotFoundError, call, "cancel")
        call = drain(s.client.subscribe(SubscribeToTaskRequest(id="no-such-task")))
        await raises(TaskNotFoundError, call, "subscribe")
        request = SendMessageRequest(message=message("x", task_id="no-such-task"))
        await raises(TaskNotFoundError, drain(s.client.send_message(request)), "send")
    async with Session(base_url, False) as s:
        done = (await s.send(message("done"))).task
        call = s.send(message("more", task_id=done.id))
        await raises(UnsupportedOperationError, call, "send to a completed task")
        if not s.card.capabilities.push_notifications:
            config = TaskPushNotificationConfig(task_id=done.id, url="https://example.com/h")
            call = s.client.create_task_push_notification_config(config)
            await raises(PushNotificationNotSupportedError, call, "push")
    async with Session(base_url, True) as s:
        call = drain(s.client.subscribe(SubscribeToTaskRequest(id=done.id)))
        await raises(UnsupportedOperationError, call, "subscribe to a completed task")


@case
async def the_other_generation_reads_the_task(base_url):
    async with Session(base_url, False) as s:
        made = (await s.send(message("for both"))).task
        url = s.card.supported_interfaces[0].url
    async with httpx.AsyncClient() as http:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": made.id}}
        task = (await http.post(url, json=call)).json()["result"]
        equal(task["kind"], "task", "kind")
        equal(task["status"]["state"], "completed", "state")
        equal(task["artifacts"][0]["parts"], [{"kind": "text", "text": "for both"}], "parts")


if __name__ == "__main__":
    main("py1", sys.argv[1])
