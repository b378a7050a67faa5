"""Agents that are functions, their cards and their results."""

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
    """An agent in the form that the native server takes."""

    #: The card of the agent in JSON.
    card: bytes
    #: Names of the header fields that are passed to the agent.
    headers: list[str]
    queue: _native.Queue
    #: True: the agent decides whether a client's cancel ends a task.
    decides_cancels: bool


class CancelRequest:
    """A client's request to cancel a task. The function of `on_cancel` refuses by returning `False`
    or by an exception; the client receives the text of a `CancelRefused`."""

    def __init__(self, native: _native.Cancel) -> None:
        self.task_id: str = native.task_id
        self.caller: str | None = native.caller
        self.tenant: str | None = native.tenant


class Agent:
    """A function that answers messages, and its card."""

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
        members = {
            "name": name or getattr(function, "__name__", "agent"),
            "description": description or inspect.getdoc(function) or "An agent in Python.",
            "version": version,
            "skills": skills or [],
        }
        self.card: dict[str, Any] = {**members, **(card or {})}
        check_card(self.card)

    def __call__(self, turn: Turn) -> Any:
        return self.function(turn)

    def on_cancel(self, function: Decision) -> Decision:
        """Sets the function that decides whether a client's cancel ends a task."""
        self.decide_cancel = function
        return function

    @property
    def name(self) -> str:
        """The name on the card."""
        return str(self.card["name"])

    @property
    def is_async(self) -> bool:
        """True: the agent runs on the event loop; false: on a thread."""
        kinds = (self.function, getattr(self.function, "__call__", None))
        return any(
            inspect.iscoroutinefunction(kind) or inspect.isasyncgenfunction(kind) for kind in kinds
        )

    def card_json(self) -> bytes:
        """The card in JSON."""
        return json.dumps(self.card).encode()


#: Members of a card of A2A 1.0, and the additional members of 0.3.
CARD_MEMBERS = frozenset(
    "name description version skills provider documentationUrl iconUrl capabilities defaultInputModes"
    " defaultOutputModes supportedInterfaces securitySchemes securityRequirements signatures"
    " protocolVersion url preferredTransport additionalInterfaces security"
    " supportsAuthenticatedExtendedCard".split()
)
#: The required members of a skill (A2A 1.0 §4.4.5).
SKILL_MEMBERS = ("id", "name", "description", "tags")


def check_function(function: Any) -> None:
    """Raises a `TypeError` unless `function` can be called with a turn."""
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"an agent must be a function of a turn, not {function!r}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        # A builtin without a signature.
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(f"the agent {name} must take one argument, the turn: {error}") from None


def check_card(card: dict[str, Any]) -> None:
    """Raises a `ValueError` that names the wrong member."""
    for member in card:
        if member not in CARD_MEMBERS:
            close = difflib.get_close_matches(member, CARD_MEMBERS, 1)
            hint = f"; do you mean {close[0]!r}?" if close else ""
            raise ValueError(f"unknown member {member!r} of a card{hint}")
    for number, skill in enumerate(card["skills"]):
        if not isinstance(skill, dict):
            raise ValueError(f"skills[{number}] must be a dict, not {skill!r}")
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
def agent(function: Function | None = None, /, **options: Any) -> Any:
    """Makes an agent of a function that takes a `Turn`. The function may be `async`.

    A returned text is the answer, without a task. Yielded texts are the chunks of an artifact of a
    task, which is completed at the end. Otherwise the function publishes events through the turn.
    An exception fails the task.

    Args:
        name: the name on the card and in `/agents/NAME`; default: the name of the function.
        description: the description on the card; default: the docstring of the function.
        version: the version of the agent on its card.
        skills: the skills of the card, in the JSON of A2A 1.0.
        card: any members of the card, in the JSON of A2A 1.0.
        headers: names of the request header fields that are passed to the agent.
    """
    if function is not None:
        return Agent(function)
    return lambda function: Agent(function, **options)


def finish(turn: Turn, result: Any = None) -> None:
    """Handles the end of a function and its returned value."""
    if isinstance(result, str):
        turn._native.reply(result)
    elif isinstance(result, dict):
        turn.publish(result)
    elif inspect.isawaitable(result):
        raise TypeError("the agent has returned an awaitable: define the agent with async def")
    elif result is not None:
        raise TypeError(f"an agent must return a text, an event or None, not {type(result)}")
    elif not turn.is_over and not turn._native.is_waiting_for_client:
        turn.status("completed")


def publish_yielded(turn: Turn, item: Any) -> None:
    """Publishes a value that a function has yielded."""
    if isinstance(item, str):
        turn.chunk(item)
    elif isinstance(item, dict):
        turn.publish(item)
    else:
        raise TypeError(f"an agent must yield texts and events, not {type(item)}")

