"""Executors of the official SDK, unchanged, called by its own client."""

from __future__ import annotations

import asyncio
import threading
import uuid

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_message_text
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import UnsupportedOperationError
from conftest import Caller, text_of
from peregrine import a2a_sdk


def card(name: str = "Hello World Agent") -> pb.AgentCard:
    return pb.AgentCard(
        name=name,
        description="Just a hello world agent",
        version="1.0.0",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        capabilities=pb.AgentCapabilities(streaming=True),
        supported_interfaces=[
            pb.AgentInterface(
                url="http://127.0.0.1:9999", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
        skills=[pb.AgentSkill(id="hello", name="Hello", description="hello", tags=["hello"])],
    )


def text_message(text: str) -> pb.Message:
    return pb.Message(
        message_id=str(uuid.uuid4()), role=pb.ROLE_AGENT, parts=[pb.Part(text=text)]
    )


class HelloWorld(AgentExecutor):
    """The SDK's first sample: one message."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(text_message(f"Hello, {context.get_user_input()}"))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise UnsupportedOperationError(message="cancel not supported")


class Streams(AgentExecutor):
    """An executor that streams; the text "wait" makes it wait for a cancel."""

    def __init__(self) -> None:
        self.canceled = threading.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or pb.Task(
            id=context.task_id,
            context_id=context.context_id,
            status=pb.TaskStatus(state=pb.TASK_STATE_SUBMITTED),
            history=[context.message],
        )
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work(text_message("on it"))
        if context.get_user_input() == "wait":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.canceled.set()
                raise
        for number in range(3):
            await updater.add_artifact(
                [pb.Part(text=f"{number} ")],
                artifact_id="numbers",
                append=number > 0,
                last_chunk=number == 2,
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.cancel(text_message("stopped"))


class Asks(AgentExecutor):
    """One that asks for input."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        task = context.current_task
        if task is None:
            await updater.requires_input(text_message("what size?"))
            return
        size = get_message_text(task.history[0])
        await updater.add_artifact([pb.Part(text=f"{context.get_user_input()} {size}")])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class Silent(AgentExecutor):
    """One that works and returns without an end."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        if context.get_user_input() == "work":
            await TaskUpdater(event_queue, context.task_id, context.context_id).start_work()
        if context.get_user_input() == "refuse":
            raise UnsupportedOperationError(message="not here")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        pass


def send(url: str, text: str, **config) -> list[pb.StreamResponse]:
    """What the official client gets."""

    async def run() -> list[pb.StreamResponse]:
        async with httpx.AsyncClient(timeout=30) as http:
            factory = ClientFactory(ClientConfig(httpx_client=http, **config))
            client = await factory.create_from_url(url)
            message = pb.Message(
                message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=[pb.Part(text=text)]
            )
            request = pb.SendMessageRequest(message=message)
            return [event async for event in client.send_message(request)]

    return asyncio.run(run())


def test_hello_world_answers_the_official_client():
    with a2a_sdk.Server(HelloWorld(), card(), port=0) as server:
        events = send(server.url, "you", streaming=False)
        shown = httpx.get(f"{server.url}/.well-known/agent-card.json").json()
    assert [get_message_text(event.message) for event in events] == ["Hello, you"]
    assert shown["name"] == "Hello World Agent" and shown["skills"][0]["id"] == "hello"


def test_an_executor_streams_to_the_official_client():
    with a2a_sdk.Server(Streams(), card(), port=0) as server:
        events = send(server.url, "go", streaming=True)
        chunks = [one.artifact_update for one in events if one.HasField("artifact_update")]
        task = Caller(server.url).task(chunks[0].task_id)
    assert [get_artifact_text(one.artifact) for one in chunks] == ["0 ", "1 ", "2 "]
    assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
    assert text_of(task["artifacts"][0]["parts"]) == "0 1 2 "
    # What the agent said is in the history, and what the user said there once.
    assert [text_of(one["parts"]) for one in task["history"]] == ["go", "on it"]


def test_an_old_client_and_another_binding_are_served_as_well():
    with a2a_sdk.Server(Streams(), card(), port=0) as server:
        message = {
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": [{"kind": "text", "text": "go"}],
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
        old = httpx.post(server.url, json=body).json()["result"]
        rest = httpx.get(f"{server.url}/v1/tasks/{old['id']}").json()
    assert old["kind"] == "task" and old["status"]["state"] == "completed"
    assert rest["id"] == old["id"]


def test_an_executor_asks_and_goes_on():
    with a2a_sdk.Server(Asks(), card(), port=0) as server:
        caller = Caller(server.url)
        task = caller.send("coffee")["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        task = caller.send("large", taskId=task["id"], contextId=task["contextId"])["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert text_of(task["artifacts"][0]["parts"]) == "large coffee"


def test_a_cancel_is_the_executors():
    executor = Streams()
    with a2a_sdk.Server(executor, card(), port=0) as server:
        caller = Caller(server.url)
        task = caller.send_at_once("wait")
        answer = caller.cancel(task["id"])
        assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        assert text_of(answer["result"]["status"]["message"]["parts"]) == "stopped"
        assert executor.canceled.wait(10)


def test_a_cancel_of_a_task_that_waits_has_the_task():
    class Closes(Asks):
        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            task = context.current_task
            self.seen = (task.id, task.context_id, get_message_text(task.history[0]))

    executor = Closes()
    with a2a_sdk.Server(executor, card(), port=0) as server:
        caller = Caller(server.url)
        task = caller.send("coffee")["task"]
        answer = caller.cancel(task["id"])
    assert answer["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    assert executor.seen == (task["id"], task["contextId"], "coffee")


def test_callers_with_tasks_of_one_id_do_not_meet():
    keys = {name: name[0] * 32 for name in ("alice", "bob")}
    settings = "".join(
        f'[[auth.api_keys]]\nname = "{name}"\nkey = "{key}"\n' for name, key in keys.items()
    )
    begun = threading.Event()

    class Waits(Asks):
        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            if context.call_context.user.user_name == "bob":
                await updater.requires_input(text_message("well?"))
                return
            await updater.start_work()
            begun.set()
            await asyncio.sleep(1)
            await updater.complete()

        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            updater = TaskUpdater(event_queue, context.task_id, context.context_id)
            await updater.cancel()

    def old(caller: Caller, method: str, **params) -> dict:
        return caller.call(method, {"id": "t1", **params})["result"]

    message = {"role": "user", "parts": [{"type": "text", "text": "go"}]}
    with a2a_sdk.Server(Waits(), card(), port=0, settings=settings) as server:
        alice, bob = (Caller(server.url, {"X-API-Key": key}) for key in keys.values())
        for caller in (alice, bob):
            del caller.http.headers["A2A-Version"]
        answers: list[dict] = []
        thread = threading.Thread(
            target=lambda: answers.append(old(alice, "tasks/send", message=message))
        )
        thread.start()
        assert begun.wait(10)
        assert old(bob, "tasks/send", message=message)["status"]["state"] == "input-required"
        assert old(bob, "tasks/cancel")["status"]["state"] == "canceled"
        thread.join()
    assert answers[0]["status"]["state"] == "completed"


def test_the_caller_and_header_fields_are_in_the_call_context():
    class Who(HelloWorld):
        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
            user, state = context.call_context.user, context.call_context.state
            text = f"{user.user_name} {user.is_authenticated} {state['headers']}"
            await event_queue.enqueue_event(text_message(text))

    key = "0123456789abcdef0123456789abcdef"
    settings = f'[[auth.api_keys]]\nname = "robot"\nkey = "{key}"\n'
    with a2a_sdk.Server(
        Who(), card(), port=0, settings=settings, headers=["X-Trace"]
    ) as server:
        caller = Caller(server.url, {"X-API-Key": key, "X-Trace": "t1"})
        text = text_of(caller.send("who?")["message"]["parts"])
    assert text == "robot True {'x-trace': 't1'}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("work", "the agent ended without a result"),
        ("nothing", "the agent ended without an answer"),
        ("refuse", "not here"),
    ],
)
def test_what_an_executor_leaves_open_is_an_error_with_its_reason(text, expected):
    with a2a_sdk.Server(Silent(), card(), port=0) as server:
        answer = Caller(server.url).send(text)
    if "task" in answer:
        assert answer["task"]["status"]["state"] == "TASK_STATE_FAILED"
        assert text_of(answer["task"]["status"]["message"]["parts"]) == expected
    else:
        assert expected in answer["error"]["message"]
