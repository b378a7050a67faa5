"""grpcio with only reflection, against a running echo agent: grpc_reflect.py BASE_URL"""

import asyncio
import sys
import uuid
from urllib.parse import urlsplit

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from harness import case, check, equal, main

SERVICE = "lf.a2a.v1.A2AService"


class Client:
    """Calls by name, with messages as dictionaries."""

    def __init__(self, base_url, service=SERVICE):
        self.channel = grpc.insecure_channel(urlsplit(base_url).netloc)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.pool = DescriptorPool(self.database)
        self.service = self.pool.FindServiceByName(service)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def call(self, name, request, metadata=(), timeout=10):
        """The answer as a dictionary; for a stream a list, and its initial metadata."""
        method = self.service.FindMethodByName(name)
        path = f"/{self.service.full_name}/{name}"
        parse = message_factory.GetMessageClass(method.output_type).FromString
        message = message_factory.GetMessageClass(method.input_type)()
        json_format.ParseDict(request, message, descriptor_pool=self.pool)
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        stub = kind(path, lambda m: m.SerializeToString(), parse)
        metadata = (("a2a-version", "1.0"), *metadata)
        reply = stub(message, metadata=metadata, timeout=timeout)
        as_dict = lambda m: json_format.MessageToDict(m, descriptor_pool=self.pool)
        if not method.server_streaming:
            return as_dict(reply)
        first = dict(reply.initial_metadata())
        return [as_dict(item) for item in reply], first


def say(*parts):
    parts = [{"text": p} if isinstance(p, str) else p for p in parts]
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}
    return {"message": message}


@case
async def services_are_listed(base_url):
    with Client(base_url) as c:
        names = c.database.get_services()
        for name in (SERVICE, "a2a.v1.A2AService", "a2a.v1.A2aService", "grpc.health.v1.Health"):
            check(name in names, f"{name} in {names}")


@case
async def health(base_url):
    with Client(base_url) as c:
        stub = health_pb2_grpc.HealthStub(c.channel)
        reply = stub.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=10)
        equal(reply.status, health_pb2.HealthCheckResponse.SERVING, "status")


@case
async def send_echoes_every_kind_of_part(base_url):
    sent = [
        {"text": "héllo \"wörld\" \\ \u2028 🦅"},
        {"data": {"k": [1.0, 2.5, None, True, {"n": "v"}]}},
        {"raw": "AAEC/w==", "filename": "all.bin", "mediaType": "application/octet-stream"},
        {"url": "https://example.com/o.txt"},
    ]
    with Client(base_url) as c:
        task = c.call("SendMessage", say(*sent))["task"]
        equal(task["status"]["state"], "TASK_STATE_COMPLETED", "state")
        equal(task["artifacts"][0]["parts"], sent, "parts")
        equal(c.call("GetTask", {"id": task["id"]}), task, "the same again")


@case
async def streams_count_and_resume(base_url):
    with Client(base_url) as c:
        events, first = c.call("SendStreamingMessage", say("stream:5"))
        equal(first["a2a-event-id"], "1", "sequence of the first message")
        equal(len(events), 6, "the task and five events")
        target = {"id": events[0]["task"]["id"]}
        seen = (("a2a-last-event-id", "2"),)
        rest, first = c.call("SubscribeToTask", target, metadata=seen)
        equal(first["a2a-event-id"], "3", "sequence of the first message")
        equal(rest, events[2:], "what was missed")


@case
async def errors_and_deadlines(base_url):
    with Client(base_url) as c:
        for name, request, code in (
            ("GetTask", {"id": "no-such-task"}, grpc.StatusCode.NOT_FOUND),
            ("SendMessage", {}, grpc.StatusCode.INVALID_ARGUMENT),
            ("ListTasks", {"pageSize": 1000}, grpc.StatusCode.INVALID_ARGUMENT),
        ):
            try:
                c.call(name, request)
            except grpc.RpcError as error:
                equal(error.code(), code, name)
                keys = [key for key, _ in error.trailing_metadata()]
                check("grpc-status-details-bin" in keys, f"details in {keys}")
            else:
                raise AssertionError(f"{name} is answered")
        try:
            c.call("SendMessage", say("hold:60000:3"), timeout=0.3)
        except grpc.RpcError as error:
            equal(error.code(), grpc.StatusCode.DEADLINE_EXCEEDED, "deadline")
        else:
            raise AssertionError("a held call is answered")


main("grpc", sys.argv[1])
