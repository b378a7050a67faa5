"""The agent of the peers on the official Python SDK of 0.3: py03.py

Two variants on separate ports: `plain`, and `guarded`, which requires a key. Prints their URLs as
one line of JSON when both are ready.
"""

import asyncio
from types import SimpleNamespace

import grpc
from a2a.grpc import a2a_pb2_grpc
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import (
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCard,
    Artifact,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TextPart,
)
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

import peer


def part_03(part):
    """A part of 1.0 in the format of 0.3."""
    if "text" in part:
        return {"kind": "text", "text": part["text"]}
    if "data" in part:
        return {"kind": "data", "data": part["data"]}
    content = {"bytes": part["raw"]} if "raw" in part else {"uri": part["url"]}
    named = {"name": part["filename"], "mimeType": part["mediaType"]}
    return {"kind": "file", "file": {**content, **named}}


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        says = lambda words: updater.new_agent_message([Part(root=TextPart(text=words))])
        if word == "message":
            message = says(rest)
            message.task_id = None
            return await event_queue.enqueue_event(message)

        async def artifact(name, parts, append=None, last_chunk=None, **more):
            parts = [Part.model_validate(part_03(part)) for part in parts]
            await event_queue.enqueue_event(
                TaskArtifactUpdateEvent(
                    task_id=context.task_id,
                    context_id=context.context_id,
                    artifact=Artifact(artifact_id=name, name=name, parts=parts, **more),
                    append=append,
                    last_chunk=last_chunk,
                )
            )

        if context.current_task:
            await updater.start_work()
            await artifact("answer", [{"text": text}])
            return await updater.complete()
        task = Task(
            id=context.task_id,
            context_id=context.context_id,
            status=TaskStatus(state=TaskState.submitted),
            history=[context.message],
        )
        await event_queue.enqueue_event(task)
        call = SimpleNamespace(
            text=rest,
            count=int(rest) if rest.isdigit() else 0,
            metadata={
                "request": context.metadata,
                "message": context.message.metadata or {},
                "tenant": "",
                "activated": sorted(context.requested_extensions),
            },
            extensions=context.message.extensions,
        )
        await updater.start_work()
        for step in peer.steps(word, call):
            if "pause_ms" in step:
                await asyncio.sleep(step["pause_ms"] / 1000)
            elif "artifact" in step:
                await artifact(step.pop("artifact"), step.pop("parts"), **step)
            else:
                state = TaskState(step["state"].lower().replace("_", "-"))
                message = says(step["says"]) if "says" in step else None
                # The SDK's stream ends at an event marked as final, but its updater does not mark
                # events of tasks that wait for their user.
                waits = state in (TaskState.input_required, TaskState.auth_required)
                await updater.update_status(state, message, final=waits)

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card_of(variant, http, grpc_port, name):
    card = {
        **peer.card(name),
        "protocolVersion": "0.3.0",
        "url": f"{http}/rpc",
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": f"{http}/rpc", "transport": "JSONRPC"},
            {"url": f"{http}/rest", "transport": "HTTP+JSON"},
            {"url": f"127.0.0.1:{grpc_port}", "transport": "GRPC"},
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extensions": [{"uri": peer.EXTENSION, "description": "is echoed"}],
        },
        "supportsAuthenticatedExtendedCard": True,
    }
    if variant == "guarded":
        card["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "Bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        card["security"] = [{"bearer": []}, {"key": []}]
    return AgentCard.model_validate(card)


async def start(variant):
    socket, http = peer.listen()
    guarded = variant == "guarded"
    server = grpc.aio.server(interceptors=[peer.GrpcGuard()] if guarded else [])
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    card = card_of(variant, http, grpc_port, f"py03 {variant}")
    extended = card_of(variant, http, grpc_port, f"py03 {variant}, extended")
    handler = DefaultRequestHandler(
        agent_executor=Agent(),
        task_store=InMemoryTaskStore(),
        push_config_store=InMemoryPushNotificationConfigStore(),
    )
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
    await server.start()
    rest = A2ARESTFastAPIApplication(card, handler, extended_agent_card=extended).build()
    rpc = A2AStarletteApplication(card, handler, extended_agent_card=extended)
    app = Starlette(
        routes=[*rpc.routes(rpc_url="/rpc"), Mount("/rest", app=rest)],
        middleware=[Middleware(peer.HttpGuard)] if guarded else [],
    )
    return http, peer.serve(app, socket), server


async def main():
    await peer.run({name: await start(name) for name in ("plain", "guarded")})


asyncio.run(main())
