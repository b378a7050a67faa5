"""Runners take turns from queues: threads for plain functions, an event loop for async ones."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ._agent import Agent, CancelRequest, finish, publish_yielded
from ._native_part import TaskClosed
from ._turn import Turn

if TYPE_CHECKING:
    from . import _native

log = logging.getLogger("peregrine")

#: Maximum items that are taken from a queue at once.
BATCH = 256
#: Maximum characters of an exception that a client receives.
TEXT_MAX = 4096
#: Maximum log lines for failures in one second.
LINES_MAX = 100
#: Seconds that a thread waits for an item before it asks the queue again.
WAIT_S = 600.0


class CancelRefused(Exception):
    """Raised by the function of `on_cancel`; the client receives the text."""


def text_of(error: BaseException) -> str:
    """The text of an exception, whose `__str__` may fail."""
    try:
        text = str(error)
    except BaseException:
        text = "an exception without a text"
    # A lone surrogate cannot be encoded as UTF-8.
    return text[:TEXT_MAX].encode("utf-8", "replace").decode()


class Failures:
    """How exceptions of agents are shown to clients."""

    def __init__(self) -> None:
        self.show = False
        self._second = 0
        self._lines = 0

    def _log(self, line: str, *values: object, error: BaseException) -> None:
        """Writes a log line, at most `LINES_MAX` a second, because clients can cause many."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_MAX:
            log.error(line, *values, exc_info=error)

    def refusal(self, task_id: str, error: BaseException) -> str:
        """The text for the client when an exception has refused its cancel."""
        if isinstance(error, CancelRefused):
            return text_of(error)
        self._log("a cancel of the task %r has failed", task_id, error=error)
        return text_of(error) if self.show else "the agent does not cancel the task"

    def end(self, turn: _native.Turn, agent: str, error: BaseException) -> None:
        """Fails the turn; the log gets the error with its traceback."""
        reference = uuid.uuid4().hex[:12]
        line = "the agent %r has failed at the task %r, reference %s"
        self._log(line, agent, turn.task_id, reference, error=error)
        text = f"the agent has failed (reference {reference})"
        if self.show:
            text = f"{type(error).__name__}: {text_of(error)}"
        try:
            turn.fail(text)
        except TaskClosed:
            pass


class ThreadRunner:
    """Threads that run plain functions."""

    def __init__(self, agent: Agent, threads: int, failures: Failures) -> None:
        from . import _native

        self.queue = _native.Queue()
        self.agent, self.failures = agent, failures
        self.threads = [
            threading.Thread(target=self._run, name=f"peregrine-agent-{index}", daemon=True)
            for index in range(threads)
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.queue.close()

    def _run(self) -> None:
        from . import _native

        while (items := self.queue.take(WAIT_S, 1)) is not None:
            for item in items:
                if isinstance(item, _native.Turn):
                    self._answer(item)
                elif isinstance(item, _native.Cancel):
                    self._decide(item)

    def _answer(self, item: _native.Turn) -> None:
        turn = Turn(item)
        try:
            # The client has disconnected, or the task has ended, before a thread was free.
            if item.is_over:
                return
            result = self.agent.function(turn)
            if hasattr(result, "__next__"):
                for piece in result:
                    publish_yielded(turn, piece)
                finish(turn)
            else:
                finish(turn, result)
        except TaskClosed:
            pass
        except BaseException as error:
            self.failures.end(item, self.agent.name, error)
        finally:
            # An agent that retains its turn must not keep the task running.
            item.end()

    def _decide(self, item: _native.Cancel) -> None:
        try:
            decide = self.agent.decide_cancel
            agreed = True if decide is None else decide(CancelRequest(item))
            if inspect.isawaitable(agreed):
                agreed = asyncio.run(awaited(agreed))
        except BaseException as error:
            item.refuse(self.failures.refusal(item.task_id, error))
        else:
            refuse_or_agree(item, agreed)


async def awaited(value: Awaitable[Any]) -> Any:
    """The result of an awaitable."""
    return await value


def refuse_or_agree(item: _native.Cancel, agreed: Any) -> None:
    if agreed is False:
        item.refuse("the agent does not cancel the task")
    else:
        item.agree()


#: Answers a turn; the coroutine is cancelled when the turn is over.
Answer = Callable[["_native.Turn"], Coroutine[Any, Any, None]]
#: Decides a cancel.
Decide = Callable[["_native.Cancel"], Coroutine[Any, Any, None]]


class LoopRunner:
    """An event loop on its own thread, for the async agents of a server."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        self._new_loop = new_loop or asyncio.new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: list[LoopQueue] = []
        self._thread = threading.Thread(target=self._run, name="peregrine-loop", daemon=True)
        self._stopping = False

    def add(self, answer: Answer, decide: Decide | None) -> _native.Queue:
        """Adds a queue whose turns are answered on the loop, and returns it."""
        queue = LoopQueue(answer, decide)
        self._queues.append(queue)
        return queue.queue

    @property
    def is_used(self) -> bool:
        return bool(self._queues)

    def prepare(self) -> None:
        """Creates the loop, before the server listens."""
        loop = self._new_loop()
        try:
            for queue in self._queues:
                queue.attach(loop)
        except BaseException:
            loop.close()
            raise
        self._loop = loop

    def discard(self) -> None:
        """Undoes `prepare` after a failed start of the server."""
        if self._loop is not None:
            for queue in self._queues:
                queue.detach(self._loop)
            self._loop.close()
            self._loop = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        for queue in self._queues:
            queue.queue.close()
        loop = self._loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(5)

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        try:
            while not self._stopping:
                try:
                    loop.run_forever()
                except BaseException:
                    # From a callback or a task of one agent: the other agents continue.
                    log.exception("the event loop of the agents was interrupted")
        finally:
            for queue in self._queues:
                queue.detach(loop)
            running = asyncio.all_tasks(loop)
            for task in running:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


class LoopQueue:
    """The turns of one agent on a loop."""

    def __init__(self, answer: Answer, decide: Decide | None) -> None:
        from . import _native

        self.queue = _native.Queue(for_loop=True)
        self._answer, self._decide = answer, decide
        self._running: dict[int, asyncio.Task[None]] = {}
        self._deciding: set[asyncio.Task[None]] = set()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(self.queue.fileno(), self._take, loop)

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self.queue.fileno())

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        from . import _native

        self.queue.hear()
        while items := self.queue.take(0.0, BATCH):
            for item in items:
                if isinstance(item, int):
                    if (task := self._running.get(item)) is not None:
                        task.cancel()
                elif isinstance(item, _native.Turn):
                    self._begin(loop, item)
                elif self._decide is None:
                    item.agree()
                else:
                    task = loop.create_task(self._decide(item))
                    self._deciding.add(task)
                    task.add_done_callback(self._deciding.discard)

    def _begin(self, loop: asyncio.AbstractEventLoop, item: _native.Turn) -> None:
        number = item.watch()
        task = loop.create_task(self._answer(item))
        self._running[number] = task
        task.add_done_callback(lambda _: self._running.pop(number, None))


def answer_of(agent: Agent, failures: Failures) -> Answer:
    """A coroutine function that answers a turn with an async agent."""

    async def answer(item: _native.Turn) -> None:
        turn = Turn(item)
        try:
            # The client has disconnected, or the task has ended, before the loop was free.
            if item.is_over:
                return
            result = agent.function(turn)
            if hasattr(result, "__anext__"):
                async for piece in result:
                    publish_yielded(turn, piece)
                finish(turn)
            else:
                finish(turn, await result)
        except TaskClosed:
            pass
        except (asyncio.CancelledError, GeneratorExit):
            # The task has ended, or the server ends, which fails the task.
            raise
        except BaseException as error:
            failures.end(item, agent.name, error)
        finally:
            # An agent that retains its turn must not keep the task running.
            item.end()

    return answer


def decision_of(agent: Agent, failures: Failures) -> Decide | None:
    """A coroutine function that decides a cancel; `None`: the agent has no `on_cancel`."""
    decide = agent.decide_cancel
    if decide is None:
        return None

    async def decision(item: _native.Cancel) -> None:
        try:
            agreed = decide(CancelRequest(item))
            if inspect.isawaitable(agreed):
                agreed = await agreed
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            item.refuse(failures.refusal(item.task_id, error))
        else:
            refuse_or_agree(item, agreed)

    return decision
