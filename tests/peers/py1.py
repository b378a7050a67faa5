"""The agent of the peers on the official Python SDK of 1.0: py1.py

Three variants on separate ports: `plain`, `compat` (also serves 0.3), `guarded` (requires a key
and has a tenant). Prints their URLs as one line of JSON when all of them are ready.
"""

import asyncio
import json
from types import SimpleNamespace

import grpc
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import (
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import a2a_pb2_grpc
from a2a.types.a2a_pb2 import AgentCard, Artifact, Part, Task, TaskArtifactUpdateEvent, TaskState
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount

import peer

EXTENSION = peer.EXTENSION


class Agent(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        says = lambda words: updater.new_agent_message([Part(text=words)])
        if word == "message":
            message = says(rest)
            message.task_id = ""
            return await event_queue.enqueue_event(message)

        async def artifact(name, parts, **more):
            await event_queue.enqueue_event(
                TaskArtifactUpdateEvent(
                    task_id=context.task_id,
                    context_id=context.context_id,
                    artifact=Artifact(
                        artifact_id=name,
                        name=name,
                        parts=[ParseDict(part, Part()) for part in parts],
                        metadata=more.pop("metadata", None),
                        extensions=more.pop("extensions", None),
                    ),
                    **more,
                )
            )

        if context.current_task:
            await updater.start_work()
            await artifact("answer", [{"text": text}])
            return await updater.complete()
        task = Task(id=context.task_id, context_id=context.context_id)
        task.status.state = TaskState.TASK_STATE_SUBMITTED
        task.status.timestamp.GetCurrentTime()
        task.history.append(context.message)
        await event_queue.enqueue_event(task)
        call = SimpleNamespace(
            text=rest,
            count=int(rest) if rest.isdigit() else 0,
            metadata={
                "request": context.metadata,
                "message": MessageToDict(context.message.metadata),
                "tenant": context.call_context.tenant,
                "activated": sorted(context.requested_extensions),
            },
            extensions=list(context.message.extensions),
        )
        await updater.start_work()
        for step in peer.steps(word, call):
            if "pause_ms" in step:
                await asyncio.sleep(step["pause_ms"] / 1000)
            elif "artifact" in step:
                await artifact(step.pop("artifact"), step.pop("parts"), **step)
            else:
                state = TaskState.Value(f"TASK_STATE_{step['state']}")
                message = says(step["says"]) if "says" in step else None
                await updater.update_status(state, message)

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card_of(variant, http, grpc_port, name):
    bindings = [("JSONRPC", f"{http}/rpc"), ("HTTP+JSON", f"{http}/rest")]
    bindings.append(("GRPC", f"127.0.0.1:{grpc_port}"))
    versions = ["1.0", "0.3"] if variant == "compat" else ["1.0"]
    tenant = {"tenant": peer.TENANT} if variant == "guarded" else {}
    card = {
        **peer.card(name),
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version, **tenant}
            for version in versions
            for binding, url in bindings
        ],
        "capabilities": {
            "streaming": True,
            "pushNotifications": True,
            "extendedAgentCard": True,
            "extensions": [{"uri": EXTENSION, "description": "is echoed"}],
        },
    }
    if variant == "guarded":
        card["securitySchemes"] = {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        }
        card["securityRequirements"] = [
            {"schemes": {"bearer": {"list": []}}},
            {"schemes": {"key": {"list": []}}},
        ]
    return ParseDict(card, AgentCard())


async def start(variant):
    socket, http = peer.listen()
    guarded, compat = variant == "guarded", variant == "compat"
    server = grpc.aio.server(interceptors=[peer.GrpcGuard()] if guarded else [])
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    card = card_of(variant, http, grpc_port, f"py1 {variant}")
    handler = DefaultRequestHandler(
        agent_executor=Agent(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=InMemoryPushNotificationConfigStore(),
        extended_agent_card=card_of(variant, http, grpc_port, f"py1 {variant}, extended"),
    )
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    if compat:
        servicer = CompatGrpcHandler(handler)
        a2a_v0_3_pb2_grpc.add_A2AServiceServicer_to_server(servicer, server)
    await server.start()
    rest = create_rest_routes(handler, enable_v0_3_compat=compat)
    app = Starlette(
        routes=[
            *create_agent_card_routes(card, cache_control="max-age=60"),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=compat),
            Mount("/rest", routes=rest),
        ],
        middleware=[Middleware(peer.HttpGuard)] if guarded else [],
    )
    return http, peer.serve(app, socket), server


async def main():
    variants = {name: await start(name) for name in ("plain", "compat", "guarded")}
    await peer.run(variants)


asyncio.run(main())
