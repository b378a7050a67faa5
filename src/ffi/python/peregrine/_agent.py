"""Agents that are functions, and what runs them."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ._turn import Turn

if TYPE_CHECKING:
    from . import _native

Function = Callable[[Turn], Any]
Decision = Callable[["CancelRequest"], Any]


class ServedAgent(NamedTuple):
    """An agent as the server takes it."""

    #: Its card in JSON.
    card: bytes
    #: Names of the header fields that it is shown.
    headers: list[str]
    queue: _native.Queue
    #: True: it is asked before a client's cancel ends a task.
    decides_cancels: bool


class CancelRequest:
    """A client wants a task to end. A function that raises or returns `False` refuses; the text of
    the exception is the reason."""

    def __init__(self, native: _native.Cancel) -> None:
        self.task_id: str = native.task_id
        self.caller: str | None = native.caller
        self.tenant: str | None = native.tenant


class Agent:
    """A function that answers messages, and what its card says."""

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        description: str | None = None,
        version: str = "0.0.0",
        skills: list[dict[str, Any]] | None = None,
        card: dict[str, Any] | None = None,
        headers: list[str] | None = None,
    ) -> None:
        check_function(function)
        self.function = function
        self.headers = list(headers or [])
        self.decide_cancel: Decision | None = None
        said = {
            "name": name or getattr(function, "__name__", "agent"),
            "description": description or inspect.getdoc(function) or "An agent in Python.",
            "version": version,
            "skills": skills or [],
        }
        self.card: dict[str, Any] = {**said, **(card or {})}
        check_card(self.card)

    def __call__(self, turn: Turn) -> Any:
        return self.function(turn)

    def on_cancel(self, function: Decision) -> Decision:
        """Sets the function that is asked before a client's cancel ends a task."""
        self.decide_cancel = function
        return function

    @property
    def name(self) -> str:
        """The name on its card."""
        return str(self.card["name"])

    @property
    def is_async(self) -> bool:
        """True when it runs on the event loop; else it runs on a thread."""
        kinds = (self.function, getattr(self.function, "__call__", None))
        return any(
            inspect.iscoroutinefunction(kind) or inspect.isasyncgenfunction(kind) for kind in kinds
        )

    def card_json(self) -> bytes:
        """Its card in JSON."""
        return json.dumps(self.card).encode()


#: Members of a card of A2A 1.0, and what 0.3 has beside them.
CARD_MEMBERS = frozenset(
    "name description version skills provider documentationUrl iconUrl capabilities defaultInputModes"
    " defaultOutputModes supportedInterfaces securitySchemes securityRequirements signatures"
    " protocolVersion url preferredTransport additionalInterfaces security"
    " supportsAuthenticatedExtendedCard".split()
)
#: What each skill has (A2A 1.0 §4.4.5).
SKILL_MEMBERS = ("id", "name", "description", "tags")


def check_function(function: Any) -> None:
    """Raises a `TypeError` unless it is a function of a turn."""
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"an agent is a function of a turn, and not {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        # A builtin, which says nothing of its arguments.
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"the agent {name} must take one argument, the turn: {error}") from None


def check_card(card: dict[str, Any]) -> None:
    """Raises a `ValueError` that names what is wrong."""
    for member in card:
        if member not in CARD_MEMBERS:
            close = difflib.get_close_matches(member, CARD_MEMBERS, 1)
            hint = f"; do you mean {close[0]!r}?" if close else ""
            raise ValueError(f"a card has no member {member!r}{hint}")
    for number, skill in enumerate(card["skills"]):
        if not isinstance(skill, dict):
            raise ValueError(f"skills[{number}] is {skill!r}, and must be a dict")
        for member in SKILL_MEMBERS:
            if not skill.get(member):
                raise ValueError(f"skills[{number}] has no {member!r}")


@overload
def agent(function: Function, /) -> Agent: ...
@overload
def agent(
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "0.0.0",
    skills: list[dict[str, Any]] | None = None,
    card: dict[str, Any] | None = None,
    headers: list[str] | None = None,
) -> Callable[[Function], Agent]: ...
def agent(function: Function | None = None, /, **said: Any) -> Any:
    """Makes an agent of a function of a `Turn`, which may be `async`.

    A text that it returns is the answer, without a task. Texts that it yields are the chunks of an
    artifact of a task, which is completed at the end. Without either, the function publishes
    through the turn. An exception fails the task.

    Args:
        name: the name on the card and in `/agents/NAME`; else that of the function.
        description: else the docstring of the function.
        version: the version of the agent on its card.
        skills: the skills of the card, in the JSON of A2A 1.0.
        card: any members of the card, in the JSON of A2A 1.0.
        headers: names of the header fields of a request that the agent is shown.
    """
    if function is not None:
        return Agent(function)
    return lambda function: Agent(function, **said)


def finish(turn: Turn, result: Any = None) -> None:
    """The end of a function, and what it has returned."""
    if isinstance(result, str):
        turn._native.reply(result)
    elif isinstance(result, dict):
        turn.publish(result)
    elif inspect.isawaitable(result):
        raise TypeError("the agent has returned an awaitable: define it with async def")
    elif result is not None:
        raise TypeError(f"an agent returns a text, an event or None, and not {type(result)}")
    elif not turn.is_over and not turn._native.is_waiting_for_client:
        turn.status("completed")


def publish_yielded(turn: Turn, item: Any) -> None:
    """What a function has yielded."""
    if isinstance(item, str):
        turn.chunk(item)
    elif isinstance(item, dict):
        turn.publish(item)
    else:
        raise TypeError(f"an agent yields texts and events, and not {type(item)}")

