"""OpenTelemetry's own messages on the calls of a running echo agent: traces.py BASE_URL

The server has `PEREGRINE_TRACES_ENDPOINT=http://127.0.0.1:4318`, where the collector of this script
listens; A2A_COLLECTOR_PORT names another port.
"""

import asyncio
import os
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from harness import case, check, equal, main

# Longer than a span waits for others.
WAIT_SECONDS = 12
# Attributes without ids and secrets.
KNOWN = {
    "rpc.system.name",
    "rpc.method",
    "http.response.status_code",
    "gen_ai.operation.name",
    "gen_ai.agent.name",
    "a2a.protocol.version",
    "a2a.agent",
    "a2a.outcome",
    "a2a.end",
    "a2a.task.state",
}
SPANS = []
SERVICES = set()


class Collector(BaseHTTPRequestHandler):
    """Accepts posts to /v1/traces."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_right = self.headers["Content-Type"] == "application/x-protobuf"
        if self.path != "/v1/traces" or not is_right:
            self.send_error(400)
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            SERVICES.add(attributes(resource.resource)["service.name"])
            for scope in resource.scope_spans:
                SPANS.extend(scope.spans)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def attributes(holder):
    """Names and values; the names are unique."""
    found = {}
    for one in holder.attributes:
        check(one.key not in found, f"{one.key} is there twice")
        found[one.key] = getattr(one.value, one.value.WhichOneof("value"))
    return found


async def spans_of(trace_id, count):
    """The spans of a trace, once there are this many."""
    for _ in range(WAIT_SECONDS * 10):
        found = [span for span in SPANS if span.trace_id.hex() == trace_id]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"no {count} spans of {trace_id} in {len(SPANS)}")


async def call(base_url, method, params, flags="01"):
    """Makes a call in its own trace; returns the ids of the trace and of its span."""
    trace_id, span_id = uuid.uuid4().hex, uuid.uuid4().hex[:16]
    fields = {"A2A-Version": "1.0", "traceparent": f"00-{trace_id}-{span_id}-{flags}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx.AsyncClient() as client:
        await client.post(base_url, json=body, headers=fields)
    return trace_id, span_id


def message(text):
    parts = [{"text": text}]
    return {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}}


@case
async def a_turn_is_below_its_call_and_the_call_below_its_caller(base_url):
    """Two spans of one message, with the ids that the caller has said."""
    trace_id, span_id = await call(base_url, "SendMessage", message("hi"))
    spans = {span.kind: span for span in await spans_of(trace_id, 2)}
    server, turn = spans[Span.SPAN_KIND_SERVER], spans[Span.SPAN_KIND_INTERNAL]
    equal(server.parent_span_id.hex(), span_id, "the caller")
    equal(turn.parent_span_id, server.span_id, "the call")
    equal([server.name, turn.name], ["SendMessage", "invoke_agent echo"], "names")
    check(server.start_time_unix_nano <= turn.start_time_unix_nano, "the call begins first")
    check(turn.end_time_unix_nano <= server.end_time_unix_nano, "the turn ends first")
    found = attributes(server)
    equal(found["rpc.system.name"], "jsonrpc", "system")
    equal(found["http.response.status_code"], 200, "status")
    check(found.keys() | attributes(turn).keys() <= KNOWN, "no span has another attribute")
    check(SERVICES, "the service has a name")


@case
async def a_stream_has_its_first_event(base_url):
    """The number of its events, and the time of the first one between begin and end."""
    trace_id, _ = await call(base_url, "SendStreamingMessage", message("stream:3"))
    spans = await spans_of(trace_id, 2)
    server = next(span for span in spans if span.kind == Span.SPAN_KIND_SERVER)
    check(attributes(server)["a2a.stream.events"] >= 3, "events")
    equal([event.name for event in server.events], ["a2a.stream.first_event"], "events")
    at = server.events[0].time_unix_nano
    check(server.start_time_unix_nano <= at <= server.end_time_unix_nano, "its time")


@case
async def a_refused_call_says_why_and_is_no_error_of_the_server(base_url):
    """One span without a turn."""
    trace_id, _ = await call(base_url, "GetTask", {"id": "none"})
    [span] = await spans_of(trace_id, 1)
    equal(attributes(span)["error.type"], "TASK_NOT_FOUND", "why")
    check(span.status.code != Status.STATUS_CODE_ERROR, "whose fault it is")


@case
async def a_caller_that_keeps_no_trace_has_none(base_url):
    """Spans of a later call have come, and none of this one."""
    unkept, _ = await call(base_url, "SendMessage", message("hi"), "00")
    kept, _ = await call(base_url, "SendMessage", message("hi"))
    await spans_of(kept, 2)
    check(all(span.trace_id.hex() != unkept for span in SPANS), "it is not traced")


port = int(os.environ.get("A2A_COLLECTOR_PORT", "4318"))
collector = ThreadingHTTPServer(("127.0.0.1", port), Collector)
threading.Thread(target=collector.serve_forever, daemon=True).start()
main("traces", sys.argv[1].rstrip("/"))
