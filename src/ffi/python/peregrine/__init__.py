"""An A2A (Agent2Agent) server for agents in Python.

The server is native code, with its wire formats, task store, authentication and webhooks. An agent
is a function::

    import peregrine

    @peregrine.agent
    def greeter(turn: peregrine.Turn) -> str:
        "Says hello."
        return f"Hello, {turn.text}!"

    peregrine.serve(greeter)

`peregrine.a2a_sdk` serves the `AgentExecutor` of the official SDK unchanged.
"""

from ._agent import Agent, CancelRequest, agent
from ._native_part import Error, TaskClosed, __version__
from ._runners import CancelRefused
from ._server import Server, serve
from ._turn import Turn

__all__ = [
    "Agent",
    "CancelRefused",
    "CancelRequest",
    "Error",
    "Server",
    "TaskClosed",
    "Turn",
    "__version__",
    "agent",
    "serve",
]
