"""A turn: one message to an agent, and the means to answer it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from . import _native

#: The id of the artifact that collects the chunks of a stream.
OUTPUT = "output"


class Published:
    """The result of a publish; awaiting it is optional, and lets other tasks of the loop run."""

    def __await__(self) -> Iterator[None]:
        # Lets other tasks of the loop run.
        yield


_PUBLISHED = Published()


class Turn:
    """One message to an agent.

    The first published event decides what the client gets: a message is the answer, without a
    task; a status or an artifact creates a task.
    """

    def __init__(self, native: _native.Turn) -> None:
        self._native = native
        self._text: str | None = None
        self._streams = False

    @property
    def task_id(self) -> str:
        """The id of the task; if the message starts a task, the id that this task would get."""
        return self._native.task_id

    @property
    def context_id(self) -> str:
        """The id of the conversation."""
        return self._native.context_id

    @property
    def text(self) -> str:
        """The concatenated text parts of the message."""
        if self._text is None:
            self._text = self._native.text or ""
        return self._text

    @property
    def message(self) -> dict[str, Any]:
        """The message in the JSON of A2A 1.0."""
        return cast("dict[str, Any]", json.loads(self._native.message_json or b"{}"))

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of the message in the JSON of A2A 1.0: each has `text`, `data`, `raw` (base64)
        or `url`, and may have `filename`, `mediaType` and `metadata`."""
        return cast("list[dict[str, Any]]", self.message.get("parts", []))

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the request."""
        return cast("dict[str, Any]", json.loads(self._native.metadata_json or "{}"))

    @property
    def caller(self) -> str | None:
        """The name of the caller, if the server authenticates callers (`[auth]`)."""
        return self._native.caller

    @property
    def tenant(self) -> str | None:
        """The tenant that the client named: a separate space of tasks."""
        return self._native.tenant

    @property
    def state(self) -> str | None:
        """The state of the task before the message, such as `input-required`; `None`: the message
        starts a new task."""
        return self._native.state

    @property
    def is_over(self) -> bool:
        """True when nothing more can be published: the task has ended or was canceled."""
        return self._native.is_over

    def header(self, name: str) -> str | None:
        """The value of a header field that is passed to the agent (`headers` of `@agent`)."""
        return self._native.header(name)

    def status(self, state: str, text: str | None = None) -> Published:
        """Publishes a status: `working`, `completed`, `failed`, `rejected`, `input-required`,
        `auth-required`, with a message of the agent if there is a text.

        Raises:
            TaskClosed: the task has ended.
            ValueError: the state is unknown.
        """
        self._native.status(state, text)
        return _PUBLISHED

    def artifact(
        self, text: str, artifact_id: str = OUTPUT, *, append: bool = False, last: bool = True
    ) -> Published:
        """Publishes an artifact with one text, or with `append` and `last` a chunk of an artifact.

        Raises:
            TaskClosed: the task has ended.
        """
        self._native.artifact(artifact_id, text, append, last)
        return _PUBLISHED

    def publish(self, event: dict[str, Any]) -> Published:
        """Publishes any event: a `StreamResponse` in the JSON of A2A 1.0, with one of `task`,
        `message`, `statusUpdate` and `artifactUpdate`.

        Raises:
            TaskClosed: the task has ended.
            Error: the event is invalid.
        """
        self._native.publish_json(json.dumps(event).encode())
        return _PUBLISHED

    def ask(self, text: str) -> Published:
        """Asks the client for input: the task waits for its next message."""
        return self.status("input-required", text)

    def chunk(self, text: str) -> Published:
        """Publishes a piece of the artifact that the turn streams."""
        self._native.artifact(OUTPUT, text, self._streams, False)
        self._streams = True
        return _PUBLISHED
