"""An agent on the official Python SDK that keeps the contract of `peregrine bench`:

    pip install 'a2a-sdk[http-server]>=1.3' uvicorn
    python agent.py [PORT]

It echoes texts. `stream:N` and `stream:N:BYTES` are answered with N events, and `hold:MS:N` and
`hold:MS:N:BYTES` with the same after MS milliseconds.
"""

import asyncio
import re
import sys

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCard, Part, Task, TaskState
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

TRIGGER = re.compile(r"(?:stream|hold:(\d+)):(\d+)(?::(\d+))?")


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        task = Task(id=context.task_id, context_id=context.context_id)
        task.status.state = TaskState.TASK_STATE_SUBMITTED
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        text = context.get_user_input()
        trigger = TRIGGER.fullmatch(text)
        if trigger is None:
            await updater.add_artifact([Part(text=text)], artifact_id="echo")
            return await updater.complete()
        hold_ms, events, size = (int(number or 0) for number in trigger.groups())
        await asyncio.sleep(hold_ms / 1000)
        if events > 1:
            await updater.start_work()
        for number in range(1, events - 1):
            chunk = f"chunk {number}"
            if len(chunk) < size:
                chunk = f"{chunk} ".ljust(size, ".")
            more = {"append": number > 1, "last_chunk": number == events - 2}
            await updater.add_artifact([Part(text=chunk)], artifact_id="chunks", **more)
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(port):
    return ParseDict(
        {
            "name": "bench",
            "description": "Keeps the contract of peregrine bench",
            "version": "1.0.0",
            "supportedInterfaces": [
                {
                    "url": f"http://127.0.0.1:{port}/",
                    "protocolBinding": "JSONRPC",
                    "protocolVersion": "1.0",
                }
            ],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "echo", "name": "Echo", "description": "Echoes", "tags": ["echo"]}],
        },
        AgentCard(),
    )


def main(port):
    shown = card(port)
    handler = DefaultRequestHandler(
        agent_executor=Agent(), task_store=InMemoryTaskStore(), agent_card=shown
    )
    routes = [*create_agent_card_routes(shown), *create_jsonrpc_routes(handler, "/")]
    uvicorn.run(Starlette(routes=routes), port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
