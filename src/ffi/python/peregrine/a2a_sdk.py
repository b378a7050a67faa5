"""Serves the agents of the official SDK (`a2a-sdk` 1.x), unchanged.

An `AgentExecutor` for the SDK's request handlers runs here without a change::

    from peregrine import a2a_sdk

    a2a_sdk.serve(HelloWorldAgentExecutor(), agent_card, port=9999)

The server provides wire formats, task store, authentication, webhooks and the URLs of the card. So
a `TaskStore`, a `PushNotificationSender` and interceptors of the SDK are not used, and the card
states the security of the configuration (`[auth]`) instead of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from a2a.auth.user import UnauthenticatedUser, User
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors as sdk_errors
from google.protobuf import json_format

from ._agent import ServedAgent
from ._native_part import Error, TaskClosed
from ._runners import Failures, text_of
from ._server import Server as _Server

if TYPE_CHECKING:
    from . import _native

log = logging.getLogger("peregrine")

#: The number of the field of `StreamResponse` for each type of event.
_FIELDS = {
    pb.Task: 1,
    pb.Message: 2,
    pb.TaskStatusUpdateEvent: 3,
    pb.TaskArtifactUpdateEvent: 4,
}

#: The errors of the SDK that refuse a request, and their names in Peregrine.
_REFUSALS = {
    "InvalidParamsError": "InvalidParams",
    "InvalidRequestError": "InvalidRequest",
    "TaskNotFoundError": "TaskNotFound",
    "TaskNotCancelableError": "TaskNotCancelable",
    "UnsupportedOperationError": "UnsupportedOperation",
    "ContentTypeNotSupportedError": "ContentTypeNotSupported",
    "InvalidAgentResponseError": "InvalidAgentResponse",
    "ExtensionSupportRequiredError": "ExtensionSupportRequired",
    "InternalError": "Internal",
}


class CallerUser(User):
    """A caller that the server has authenticated."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        """Always true."""
        return True

    @property
    def user_name(self) -> str:
        """The name of the caller, from the configuration or the token."""
        return self._name


def _publish(turn: _native.Turn, event: Any) -> None:
    """Publishes an event of the SDK."""
    field = _FIELDS.get(type(event))
    if field is None:
        raise TypeError(f"an event must be of a type of A2A, not {type(event)}")
    turn.publish_protobuf(field, event.SerializeToString())


class _TurnQueue(EventQueue):
    """The queue of `execute`: its events are published."""

    def __init__(self, turn: _native.Turn) -> None:
        self._turn = turn

    async def enqueue_event(self, event: Any) -> None:
        _publish(self._turn, event)


class _CancelQueue(EventQueue):
    """The queue of `cancel`: the running turn publishes its events, and the last event ends it."""

    def __init__(self, turn: _native.Turn | None) -> None:
        self._turn = turn

    async def enqueue_event(self, event: Any) -> None:
        if self._turn is None:
            return
        try:
            _publish(self._turn, event)
        except TaskClosed:
            log.debug("a cancel published an event after the end of its task")


class _Executor:
    """One executor and its running turns."""

    def __init__(
        self, executor: AgentExecutor, name: str, headers: list[str], failures: Failures
    ) -> None:
        self._executor, self._name = executor, name
        self._headers, self._failures = headers, failures
        #: The running turn and its asyncio task, by scope and task id: clients of 0.1 choose ids,
        #: so two callers may use the same id.
        self._turns: dict[tuple[str, str], tuple[_native.Turn, asyncio.Task[Any] | None]] = {}
        #: One lock for each task with turns, because the turns of a task run one after another.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def answer(self, turn: _native.Turn) -> None:
        """Answers a turn."""
        key = (turn.scope, turn.task_id)
        async with self._locks.setdefault(key, asyncio.Lock()):
            self._turns[key] = (turn, asyncio.current_task())
            try:
                if not turn.is_over:
                    await self._execute(turn)
            finally:
                turn.end()
                del self._turns[key]

    async def _execute(self, turn: _native.Turn) -> None:
        try:
            request = pb.SendMessageRequest.FromString(turn.request_protobuf or b"")
            context = self._context(turn, request)
            await self._executor.execute(context, _TurnQueue(turn))
        except TaskClosed:
            log.debug("an executor published an event after the end of its task")
        except sdk_errors.A2AError as error:
            name = _REFUSALS.get(type(error).__name__)
            if name is None or (name == "Internal" and not self._failures.show):
                self._failures.end(turn, self._name, error)
            else:
                self._refuse(turn, name, error)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            self._failures.end(turn, self._name, error)
        finally:
            # A task that has neither ended nor asked the client something fails here.
            turn.end()

    @staticmethod
    def _refuse(turn: _native.Turn, name: str, error: Exception) -> None:
        try:
            turn.refuse(name, text_of(error))
        except TaskClosed:
            pass

    def _context(self, turn: _native.Turn, request: Any) -> RequestContext:
        caller, headers = turn.caller, {}
        for name in self._headers:
            value = turn.header(name)
            if value is not None:
                headers[name.lower()] = value
        extensions = turn.extensions
        call = ServerCallContext(
            user=CallerUser(caller) if caller is not None else UnauthenticatedUser(),
            tenant=turn.tenant or "",
            state={"headers": headers},
            requested_extensions={one.strip() for one in extensions.split(",")}
            if extensions
            else set(),
        )
        task = None
        if turn.state is not None:
            stored = turn.task_protobuf
            task = None if stored is None else pb.Task.FromString(stored)
        return RequestContext(call, request, turn.task_id, turn.context_id, task)

    async def decide(self, cancel: _native.Cancel) -> None:
        """Decides a cancel with the executor's `cancel`."""
        turn, running = self._turns.get((cancel.scope, cancel.task_id), (None, None))
        queue = _CancelQueue(turn)
        try:
            stored = cancel.task_protobuf
            task = None if stored is None else pb.Task.FromString(stored)
            context_id = None if task is None else task.context_id
            user = CallerUser(cancel.caller) if cancel.caller is not None else UnauthenticatedUser()
            call = ServerCallContext(user=user, tenant=cancel.tenant or "")
            context = RequestContext(call, None, cancel.task_id, context_id, task)
            await self._executor.cancel(context, queue)
        except TaskClosed:
            cancel.agree()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except sdk_errors.A2AError as error:
            cancel.refuse(text_of(error))
        except BaseException as error:
            cancel.refuse(self._failures.refusal(cancel.task_id, error))
        else:
            # An executor has also stopped if its `cancel` published nothing.
            cancel.agree()
            if running is not None:
                running.cancel()


class Server(_Server):
    """A server of one executor, or with `add` of several.

    Args:
        agent_executor: the executor.
        agent_card: the card of the executor, an `AgentCard` of the SDK. The server replaces its
            URLs and security.
        host, port, config, settings, show_errors, new_loop: as for `peregrine.Server`.
        headers: names of the request header fields that are passed to the executor, in
            `call_context.state["headers"]`.
    """

    def __init__(
        self,
        agent_executor: AgentExecutor,
        agent_card: pb.AgentCard,
        *,
        host: str | None = None,
        port: int | None = None,
        config: str | os.PathLike[str] | None = None,
        settings: str | None = None,
        headers: list[str] | None = None,
        show_errors: bool | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        super().__init__(
            host=host,
            port=port,
            config=config,
            settings=settings,
            show_errors=show_errors,
            new_loop=new_loop,
        )
        self.add(agent_executor, agent_card, headers)

    def add(
        self,
        agent_executor: AgentExecutor,
        agent_card: pb.AgentCard,
        headers: list[str] | None = None,
    ) -> Server:
        """Adds an executor before the start. It answers at `/agents/` and the name on its card."""
        if self._native is not None:
            raise Error("the server was started already")
        if isinstance(agent_executor, type) or not hasattr(agent_executor, "execute"):
            raise TypeError(f"agent_executor must be an AgentExecutor, not {agent_executor!r}")
        if not isinstance(agent_card, pb.AgentCard):
            raise TypeError(f"agent_card must be an a2a.types.AgentCard, not {type(agent_card)}")
        names = list(headers or [])
        executor = _Executor(agent_executor, agent_card.name, names, self._failures)
        queue = self._loop.add(executor.answer, executor.decide)
        card = json.dumps(json_format.MessageToDict(agent_card)).encode()
        self._agents.append(ServedAgent(card, names, queue, True))
        return self


def serve(agent_executor: AgentExecutor, agent_card: pb.AgentCard, **options: Any) -> None:
    """Serves an executor until Ctrl-C; the arguments are those of `Server`."""
    Server(agent_executor, agent_card, **options).run()
