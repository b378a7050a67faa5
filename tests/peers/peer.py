"""Shared code of the Python peers: the agent's behavior for each word, and its server."""

import asyncio
import base64
import contextlib
import json
import socket

import grpc
import uvicorn
from starlette.responses import JSONResponse

SECRET = "peer-secret"
TENANT = "acme"
EXTENSION = "https://example.com/extensions/echo"
BIG = 2**53 + 1
PAUSE_MS = 200


def card(name):
    """The members of cards in both generations."""
    return {
        "name": name,
        "description": "An agent for tests of clients",
        "version": "1.2.3",
        "provider": {"organization": "Peers", "url": "https://example.com"},
        "documentationUrl": "https://example.com/docs",
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [
            {
                "id": "words",
                "name": "Words",
                "description": "Does what the first word says",
                "tags": ["test", "größe"],
                "examples": ["echo hello", "stream 5"],
            }
        ],
    }


def steps(word, call):
    """The steps after the task's first status: artifacts in parts of 1.0, states, and pauses."""
    if word == "echo":
        yield {"artifact": "echo", "parts": [{"text": call.text}]}
    elif word == "stream":
        for n in range(call.count):
            last = n + 1 == call.count
            parts = [{"text": f"chunk {n} "}]
            yield {"artifact": "stream", "parts": parts, "append": n > 0, "last_chunk": last}
    elif word == "slow":
        for n in range(call.count):
            yield {"pause_ms": PAUSE_MS}
            yield {"state": "WORKING", "says": f"step {n}"}
        yield {"pause_ms": PAUSE_MS}
    elif word == "history":
        for says in ("one", "two", "three"):
            yield {"state": "WORKING", "says": says}
    elif word == "data":
        nested = {"list": [1, -2.5, "three", None, True, {"deep": {}}], "text": "größe 🦅"}
        yield {"artifact": "data", "parts": [{"data": {"big": BIG, "nested": nested}}]}
    elif word == "file":
        raw = base64.b64encode(bytes(range(256))).decode()
        named = {"filename": "all.bin", "mediaType": "application/octet-stream"}
        linked = {"url": "https://example.com/o.txt", "filename": "o.txt"}
        parts = [{"raw": raw, **named}, {**linked, "mediaType": "text/plain"}]
        yield {"artifact": "file", "parts": parts}
    elif word == "metadata":
        parts, extensions = [{"text": "metadata"}], call.extensions
        yield {
            "artifact": "metadata",
            "parts": parts,
            "metadata": call.metadata,
            "extensions": extensions,
        }
    endings = {
        "input": {"state": "INPUT_REQUIRED", "says": "what else?"},
        "auth": {"state": "AUTH_REQUIRED", "says": "sign in first"},
        "fail": {"state": "FAILED", "says": "it failed as asked"},
        "reject": {"state": "REJECTED", "says": "it is refused as asked"},
    }
    yield endings.get(word, {"state": "COMPLETED"})


def allowed(headers):
    """True for the secret as a bearer token or as an API key; `headers` by lower-case name."""
    if headers.get("authorization") == f"Bearer {SECRET}":
        return True
    return headers.get("x-api-key") == SECRET


class HttpGuard:
    """Answers 401 to requests without the secret; the card is public."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and "/.well-known/" not in scope["path"]:
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            if not allowed(headers):
                challenge = {"WWW-Authenticate": 'Bearer realm="peers"'}
                answer = JSONResponse({"error": "unauthorized"}, 401, headers=challenge)
                return await answer(scope, receive, send)
        return await self.app(scope, receive, send)


class GrpcGuard(grpc.aio.ServerInterceptor):
    """Ends calls without the secret with UNAUTHENTICATED."""

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if handler is None or allowed(dict(details.invocation_metadata)):
            return handler

        async def refuse(_request, context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no secret")

        async def refuse_stream(_request, context):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no secret")
            yield

        kind = {"request_deserializer": handler.request_deserializer}
        kind["response_serializer"] = handler.response_serializer
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(refuse_stream, **kind)
        return grpc.unary_unary_rpc_method_handler(refuse, **kind)


def listen():
    """A listening socket on a free loopback port, and its base URL."""
    sock = socket.create_server(("127.0.0.1", 0), backlog=128)
    return sock, f"http://127.0.0.1:{sock.getsockname()[1]}"


class Server(uvicorn.Server):
    """SIGTERM ends the process at once, with all its servers."""

    def capture_signals(self):
        return contextlib.nullcontext()


def serve(app, sock):
    server = Server(uvicorn.Config(app, log_level="warning", timeout_keep_alive=60))
    return server, asyncio.create_task(server.serve(sockets=[sock]))


async def run(variants):
    """Prints the URLs of the variants once all listen, and serves until a signal."""
    for _, (server, _), _ in variants.values():
        while not server.started:
            await asyncio.sleep(0.01)
    print(json.dumps({name: base for name, (base, _, _) in variants.items()}), flush=True)
    await asyncio.gather(*(task for _, (_, task), _ in variants.values()))
