"""What takes turns from the queues: threads for plain functions, a loop for async ones."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ._agent import Agent, CancelRequest, finish, publish_yielded
from ._native_part import TaskClosed
from ._turn import Turn

if TYPE_CHECKING:
    from . import _native

log = logging.getLogger("peregrine")

#: Turns that are taken at once.
BATCH = 256
#: Seconds that a thread waits before it looks again.
WAIT_S = 600.0


class Failures:
    """How exceptions of agents are shown to clients."""

    def __init__(self) -> None:
        self.show = False

    def end(self, turn: _native.Turn, agent: str, error: BaseException) -> None:
        """Fails the turn; the log gets the error with its traceback."""
        reference = uuid.uuid4().hex[:12]
        line = "the agent %r has failed at the task %r, reference %s"
        log.error(line, agent, turn.task_id, reference, exc_info=error)
        text = f"the agent has failed (reference {reference})"
        if self.show:
            text = f"{type(error).__name__}: {error}"
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
            result = self.agent.function(turn)
            if hasattr(result, "__next__"):
                for piece in result:
                    publish_yielded(turn, piece)
                finish(turn)
            else:
                finish(turn, result)
        except TaskClosed:
            pass
        except Exception as error:
            self.failures.end(item, self.agent.name, error)

    def _decide(self, item: _native.Cancel) -> None:
        try:
            decide = self.agent.decide_cancel
            agreed = True if decide is None else decide(CancelRequest(item))
        except Exception as error:
            item.refuse(str(error))
        else:
            refuse_or_agree(item, agreed)


def refuse_or_agree(item: _native.Cancel, agreed: Any) -> None:
    if agreed is False:
        item.refuse("the agent does not cancel the task")
    else:
        item.agree()


#: Answers a turn; the coroutine is cancelled when the turn is of no use any more.
Answer = Callable[["_native.Turn"], Coroutine[Any, Any, None]]
#: Decides a cancel.
Decide = Callable[["_native.Cancel"], Coroutine[Any, Any, None]]


class LoopRunner:
    """An event loop on a thread of its own, for the async agents of a server."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
        self._new_loop = new_loop or asyncio.new_event_loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queues: list[LoopQueue] = []
        self._thread = threading.Thread(target=self._run, name="peregrine-loop", daemon=True)

    def add(self, answer: Answer, decide: Decide | None) -> _native.Queue:
        """A queue whose turns are answered on the loop."""
        queue = LoopQueue(answer, decide)
        self._queues.append(queue)
        return queue.queue

    @property
    def is_used(self) -> bool:
        return bool(self._queues)

    def start(self) -> None:
        started = threading.Event()
        self._loop = self._new_loop()
        self._loop.call_soon(started.set)
        self._thread.start()
        started.wait()

    def stop(self) -> None:
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
        for queue in self._queues:
            queue.attach(loop)
        try:
            loop.run_forever()
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
    """What answers a turn with an async function."""

    async def answer(item: _native.Turn) -> None:
        turn = Turn(item)
        try:
            result = agent.function(turn)
            if hasattr(result, "__anext__"):
                async for piece in result:
                    publish_yielded(turn, piece)
                finish(turn)
            else:
                finish(turn, await result)
        except TaskClosed:
            pass
        except asyncio.CancelledError:
            # The task has ended, or the server ends, which fails it.
            raise
        except Exception as error:
            failures.end(item, agent.name, error)

    return answer


def decision_of(agent: Agent) -> Decide | None:
    """What decides a cancel with the function of an agent; `None`: it has none."""
    decide = agent.decide_cancel
    if decide is None:
        return None

    async def decision(item: _native.Cancel) -> None:
        try:
            agreed = decide(CancelRequest(item))
            if asyncio.iscoroutine(agreed):
                agreed = await agreed
        except Exception as error:
            item.refuse(str(error))
        else:
            refuse_or_agree(item, agreed)

    return decision
