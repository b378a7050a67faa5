"""The server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from ._agent import Agent, ServedAgent
from ._agent import agent as make_agent
from ._native_part import Error, check
from ._runners import Failures, LoopRunner, ThreadRunner, answer_of, decision_of

if TYPE_CHECKING:
    from . import _native

#: Seconds between two checks for Ctrl-C while a server runs.
LOOK_S = 0.2


class Server:
    """A server of agents.

    Args:
        agents: functions, or agents made with `@agent`; the first agent answers at `/`, each at
            `/agents/NAME`.
        host, port: the listening address; port 0: any free port. Without both, the configuration
            has the address; default: 127.0.0.1:3000.
        config: the path of a configuration file (docs/peregrine.toml).
        settings: the text of a configuration, instead of `config`.
        threads: the number of threads for each function that is not async.
        show_errors: true: clients see the text of exceptions; false: they see a reference, which is
            also in the log. Default: the key `show_errors` of the configuration, or if it is
            missing, true for a server that listens only on loopback addresses.
        new_loop: creates the event loop of async agents, such as `uvloop.new_event_loop`.
    """

    def __init__(
        self,
        *agents: Any,
        host: str | None = None,
        port: int | None = None,
        config: str | os.PathLike[str] | None = None,
        settings: str | None = None,
        threads: int | None = None,
        show_errors: bool | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        check()
        if config is not None and settings is not None:
            raise ValueError("config and settings are alternatives: pass only one of them")
        self._listen = _listen(host, port)
        self._config = None if config is None else Path(config)
        self._settings = settings
        self._show_errors = show_errors
        self._failures = Failures()
        self._native: _native.Server | None = None
        self._process = os.getpid()
        self._loop = LoopRunner(new_loop)
        self._threads: list[ThreadRunner] = []
        self._agents: list[ServedAgent] = []
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be 1 or more, not {threads}")
        count = threads or min(32, (os.cpu_count() or 1) + 4)
        for one in agents:
            self._add(one if isinstance(one, Agent) else make_agent(one), count)

    def _add(self, one: Agent, threads: int) -> None:
        if one.is_async:
            queue = self._loop.add(answer_of(one, self._failures), decision_of(one, self._failures))
        else:
            runner = ThreadRunner(one, threads, self._failures)
            self._threads.append(runner)
            queue = runner.queue
        decides = one.decide_cancel is not None
        self._agents.append(ServedAgent(one.card_json(), one.headers, queue, decides))

    def start(self) -> Server:
        """Starts the server and returns.

        Raises:
            Error: the configuration is wrong, the address is in use, or the process was forked
                after the server was created.
        """
        if self._native is not None:
            raise Error("the server was started already")
        given = (self._agents, self._config, self._settings, os.environ.get("PEREGRINE_CONFIG"))
        if not any(given):
            raise ValueError("a server needs an agent: peregrine.Server(my_agent)")
        if os.getpid() != self._process:
            raise Error("this server was created in another process: create it after the fork")
        from . import _native

        if self._loop.is_used:
            self._loop.prepare()
        try:
            server = _native.Server(self._agents, self._listen, self._config, self._settings)
        except BaseException:
            self._loop.discard()
            raise
        self._native = server
        show = self._show_errors
        self._failures.show = server.shows_errors if show is None else show
        if self._loop.is_used:
            self._loop.start()
        for runner in self._threads:
            runner.start()
        return self

    def run(self) -> None:
        """Starts the server, prints its addresses, and serves until Ctrl-C, SIGTERM or `shutdown`.
        Running tasks then have `drain_ms` to end."""
        self.start()
        print(self._running().banner, end="", flush=True)
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, _interrupt) if is_main else None
        try:
            self.wait()
        except KeyboardInterrupt:
            if is_main:
                # The next SIGTERM ends the process at once.
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            print("peregrine: draining", file=sys.stderr)
            self.shutdown()
            self.wait()
        finally:
            self.stop()
            if is_main:
                signal.signal(signal.SIGTERM, before or signal.SIG_DFL)

    def wait(self) -> None:
        """Waits until the server has ended."""
        while not self._running().join(LOOK_S):
            pass

    def reload(self, settings: str | None = None) -> None:
        """Reloads the configuration, or replaces it with this text, as `peregrine serve` does on
        SIGHUP. The agents of this program stay.

        Raises:
            Error: the configuration is wrong; nothing has changed.
        """
        self._running().reload(settings)

    def shutdown(self) -> None:
        """Stops accepting connections; running tasks have `drain_ms` to end. Returns at once."""
        self._running().shutdown()

    def stop(self) -> None:
        """Shuts down the server, waits for its end, and ends its threads."""
        if self._native is None or os.getpid() != self._process:
            return
        if not self._native.join(0.0):
            self._native.shutdown()
            while not self._native.join(LOOK_S):
                pass
        for runner in self._threads:
            runner.stop()
        if self._loop.is_used:
            self._loop.stop()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _running(self) -> _native.Server:
        if self._native is None:
            raise Error("the server was not started")
        return self._native

    @property
    def port(self) -> int:
        """The port of the first address."""
        return self._running().port

    @property
    def url(self) -> str:
        """A URL under which this machine reaches the server, without a slash at the end."""
        return self._running().url

    @property
    def addresses(self) -> list[str]:
        """The listening addresses, with the chosen ports."""
        return self._running().addresses


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _listen(host: str | None, port: int | None) -> list[str]:
    if host is None and port is None:
        return []
    host = "127.0.0.1" if host is None else host
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return [f"{host}:{3000 if port is None else port}"]


def serve(*agents: Any, **options: Any) -> None:
    """Serves agents until Ctrl-C or SIGTERM; the arguments are those of `Server`."""
    Server(*agents, **options).run()
