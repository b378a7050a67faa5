"""Writes the answers of the peers to tests/data/peers, one file for each server and variant:

    tests/peers/run.sh tests/peers/.venv-1/bin/python tests/peers/capture.py

The answers are stored byte for byte, gRPC answers in base64.
"""

import base64
import json
import os
import pathlib
import time
import uuid
from importlib.metadata import version

import grpc
import httpx
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.types import a2a_pb2 as new
from google.protobuf.json_format import MessageToDict, ParseDict

HERE = pathlib.Path(__file__).parent
OUT = HERE.parent / "data" / "peers"
EXTENSION = "https://example.com/extensions/echo"
SECRET = "peer-secret"
KEPT_FIELDS = ("content-type", "etag", "cache-control", "vary", "www-authenticate")


def sdk_of(server):
    """The package and version of a server."""
    if server == "py1":
        return f"a2a-sdk {version('a2a-sdk')} (Python)"
    if server == "py03":
        pinned = (HERE / "requirements-03.txt").read_text().split()[0]
        return f"a2a-sdk {pinned.split('==')[1]} (Python)"
    name = "a2a-sdk-1" if server == "js1" else "a2a-sdk-03"
    package = json.loads((HERE / "node_modules" / name / "package.json").read_text())
    return f"@a2a-js/sdk {package['version']} (JavaScript)"


# --- Requests, one function per operation, for each binding ---------------------------------------

OPERATIONS = {
    # The method in 1.0, the JSON-RPC method in 0.3, and the verb and path of HTTP+JSON.
    "send": ("SendMessage", "message/send", "POST", "/message:send"),
    "stream": ("SendStreamingMessage", "message/stream", "POST", "/message:stream"),
    "get": ("GetTask", "tasks/get", "GET", "/tasks/{id}"),
    "list": ("ListTasks", None, "GET", "/tasks"),
    "cancel": ("CancelTask", "tasks/cancel", "POST", "/tasks/{id}:cancel"),
    "subscribe": ("SubscribeToTask", "tasks/resubscribe", "GET", "/tasks/{id}:subscribe"),
    "push-set": (
        "CreateTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/set",
        "POST",
        "/tasks/{id}/pushNotificationConfigs",
    ),
    "push-get": (
        "GetTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/get",
        "GET",
        "/tasks/{id}/pushNotificationConfigs/{config}",
    ),
    "push-list": (
        "ListTaskPushNotificationConfigs",
        "tasks/pushNotificationConfig/list",
        "GET",
        "/tasks/{id}/pushNotificationConfigs",
    ),
    "push-delete": (
        "DeleteTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/delete",
        "DELETE",
        "/tasks/{id}/pushNotificationConfigs/{config}",
    ),
    "extended-card": (
        "GetExtendedAgentCard",
        "agent/getAuthenticatedExtendedCard",
        "GET",
        None,
    ),
}
STREAMS = ("stream", "subscribe")
OLD_RPC = {
    "subscribe": "TaskSubscription",
    "push-list": "ListTaskPushNotificationConfig",
    "extended-card": "GetAgentCard",
}


def message(text, **more):
    return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}


def new_request(operation, args):
    """The 1.0 request as a protobuf message; its JSON is the request of the other bindings."""
    task, config = args.get("id", ""), args.get("config", "")
    kinds = {
        "send": (new.SendMessageRequest, args.get("params")),
        "stream": (new.SendMessageRequest, args.get("params")),
        "get": (new.GetTaskRequest, {"id": task, **args.get("more", {})}),
        "list": (new.ListTasksRequest, args.get("more", {})),
        "cancel": (new.CancelTaskRequest, {"id": task}),
        "subscribe": (new.SubscribeToTaskRequest, {"id": task}),
        "push-set": (new.TaskPushNotificationConfig, {"taskId": task, **args.get("push", {})}),
        "push-get": (new.GetTaskPushNotificationConfigRequest, {"taskId": task, "id": config}),
        "push-list": (new.ListTaskPushNotificationConfigsRequest, {"taskId": task}),
        "push-delete": (
            new.DeleteTaskPushNotificationConfigRequest,
            {"taskId": task, "id": config},
        ),
        "extended-card": (new.GetExtendedAgentCardRequest, {}),
    }
    kind, members = kinds[operation]
    return ParseDict(members, kind())


def old_request(operation, args):
    """The same in protobuf of 0.3, which is also the JSON of its HTTP+JSON."""
    name, config = f"tasks/{args.get('id', '')}", args.get("config", "")
    if operation in ("send", "stream"):
        params = json.loads(json.dumps(args["params"]))
        params["message"]["content"] = params["message"].pop("parts")
        configuration = params.setdefault("configuration", {})
        configuration["blocking"] = not configuration.pop("returnImmediately", False)
        return ParseDict(params, old.SendMessageRequest())
    push = dict(args.get("push", {}))
    if "authentication" in push:
        kept = push["authentication"]
        push["authentication"] = {
            "schemes": [kept["scheme"]],
            "credentials": kept["credentials"],
        }
    push_name = f"{name}/pushNotificationConfigs/{config}"
    whole = {"name": f"{name}/pushNotificationConfigs/{push.get('id', '')}"}
    kinds = {
        "get": (old.GetTaskRequest, {"name": name, **args.get("more", {})}),
        "cancel": (old.CancelTaskRequest, {"name": name}),
        "subscribe": (old.TaskSubscriptionRequest, {"name": name}),
        "push-set": (
            old.CreateTaskPushNotificationConfigRequest,
            {
                "parent": name,
                "configId": push.get("id", ""),
                "config": {**whole, "pushNotificationConfig": push},
            },
        ),
        "push-get": (old.GetTaskPushNotificationConfigRequest, {"name": push_name}),
        "push-list": (old.ListTaskPushNotificationConfigRequest, {"parent": name}),
        "push-delete": (old.DeleteTaskPushNotificationConfigRequest, {"name": push_name}),
        "extended-card": (old.GetAgentCardRequest, {}),
    }
    kind, members = kinds[operation]
    return ParseDict(members, kind())


def old_params(operation, args):
    """The params of JSON-RPC of 0.3."""
    if operation in ("send", "stream"):
        params = json.loads(json.dumps(args["params"]))
        sent = params["message"]
        sent.update(kind="message", role="user")
        sent["parts"] = [{"kind": "text", **part} for part in sent["parts"]]
        configuration = params.setdefault("configuration", {})
        configuration["blocking"] = not configuration.pop("returnImmediately", False)
        return params
    if operation == "push-set":
        request = MessageToDict(old_request(operation, args))
        config = request["config"]["pushNotificationConfig"]
        return {"taskId": args["id"], "pushNotificationConfig": config}
    params = {"id": args.get("id", ""), **args.get("more", {})}
    if operation in ("push-get", "push-delete"):
        params["pushNotificationConfigId"] = args["config"]
    return params


# --- Calls over each binding ---------------------------------------------------------------------


class Peer:
    def __init__(self, server, variant, old_protocol, base, fields=None):
        self.server, self.variant, self.old = server, variant, old_protocol
        self.http = httpx.Client(timeout=20, headers=fields or {})
        self.metadata = [(k.lower(), v) for k, v in (fields or {}).items()]
        self.exchanges, self.calls = [], 0
        self.version = "0.3" if old_protocol else "1.0"
        url, version = base + "/.well-known/agent-card.json", {"A2A-Version": self.version}
        self.card_exchange = self.ask("GET", url, headers=version)
        card = json.loads(self.card_exchange["body"])
        if old_protocol:
            listed = [{"url": card["url"], "transport": card["preferredTransport"]}]
            listed += card.get("additionalInterfaces", [])
            self.urls = {i["transport"]: i["url"] for i in listed}
        else:
            self.urls = {
                i["protocolBinding"]: i["url"]
                for i in card["supportedInterfaces"]
                if i["protocolVersion"] == "1.0"
            }
        self.channel = grpc.insecure_channel(self.urls["GRPC"])

    def kept(self, response):
        """The stored part of a response; `is_cut`: it had no end."""
        fields = {k: response.headers[k] for k in KEPT_FIELDS if k in response.headers}
        body, cut = b"", {}
        try:
            for chunk in response.iter_bytes():
                body += chunk
        except httpx.RemoteProtocolError:
            cut = {"is_cut": True}
        return {"status": response.status_code, "fields": fields, "body": body.decode(), **cut}

    def ask(self, verb, url, **request):
        with self.http.stream(verb, url, **request) as response:
            return self.kept(response)

    def fields(self, operation):
        accept = "text/event-stream" if operation in STREAMS else "application/json"
        extensions = "X-A2A-Extensions" if self.old else "A2A-Extensions"
        fields = {"Accept": accept, extensions: EXTENSION}
        return fields if self.old else {**fields, "A2A-Version": "1.0"}

    def rpc(self, operation, args):
        self.calls += 1
        name, old_name, *_ = OPERATIONS[operation]
        if self.old:
            method, params = old_name, old_params(operation, args)
        else:
            method, params = name, MessageToDict(new_request(operation, args))
        call = {"jsonrpc": "2.0", "id": str(self.calls), "method": method, "params": params}
        fields = self.fields(operation)
        answer = self.ask("POST", self.urls["JSONRPC"], json=call, headers=fields)
        return {"rpc_id": self.calls, **answer}

    def rest(self, operation, args):
        _, _, verb, path = OPERATIONS[operation]
        if operation == "extended-card":
            path = "/card" if self.old else "/extendedAgentCard"
        path = path.format(id=args.get("id", ""), config=args.get("config", ""))
        if self.old:
            path = "/v1" + path
        body = None
        if operation in ("send", "stream", "push-set"):
            body = MessageToDict((old_request if self.old else new_request)(operation, args))
        if (self.server, self.old, operation) == ("js1", True, "push-set"):
            # Only this 0.3 server expects the configuration alone.
            body = body["config"]
        query = args.get("more", {}) if verb == "GET" else {}
        return self.ask(
            verb,
            self.urls["HTTP+JSON"].rstrip("/") + path,
            json=body,
            params={k: str(v) for k, v in query.items()},
            headers=self.fields(operation),
        )

    def grpc(self, operation, args):
        service = "a2a.v1.A2AService" if self.old else "lf.a2a.v1.A2AService"
        name = OPERATIONS[operation][0]
        if self.old:
            name = OLD_RPC.get(operation, name)
        request = (old_request if self.old else new_request)(operation, args)
        extensions = "x-a2a-extensions" if self.old else "a2a-extensions"
        metadata = [*self.metadata, (extensions, EXTENSION)]
        if not self.old:
            metadata.append(("a2a-version", "1.0"))
        path = f"/{service}/{name}"
        raw = {"request_serializer": None, "response_deserializer": None}
        messages = []
        try:
            if operation in STREAMS:
                call = self.channel.unary_stream(path, **raw)
                for each in call(request.SerializeToString(), metadata=metadata, timeout=20):
                    messages.append(each)
            else:
                call = self.channel.unary_unary(path, **raw)
                messages.append(call(request.SerializeToString(), metadata=metadata, timeout=20))
            ending = {"grpc_status": 0}
        except grpc.RpcError as error:
            ending = {"grpc_status": error.code().value[0], "grpc_message": error.details()}
            details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
            if details:
                ending["grpc_status_details"] = base64.b64encode(details).decode()
        return {"messages": [base64.b64encode(m).decode() for m in messages], **ending}

    def call(self, binding, operation, about, args, keep=True):
        ways = {"JSONRPC": self.rpc, "HTTP+JSON": self.rest, "GRPC": self.grpc}
        exchange = ways[binding](operation, args)
        if keep:
            said = {"binding": binding, "operation": operation, "about": about, **exchange}
            self.exchanges.append(said)
        return exchange

    def send(self, binding, text, operation="send", keep=True, about=None, **more):
        sent = message(text, **more.pop("message", {}))
        about = about or text.split(" ")[0]
        params = {"message": sent, **more}
        return self.call(binding, operation, about, {"params": params}, keep)

    def task_ids(self, binding, exchange):
        """The id and context of the task in an answer."""
        if binding == "GRPC":
            kind = old.SendMessageResponse if self.old else new.SendMessageResponse
            task = kind.FromString(base64.b64decode(exchange["messages"][0])).task
            return task.id, task.context_id
        task = json.loads(exchange["body"])
        task = task.get("result", task)
        task = task.get("task", task)
        return task["id"], task["contextId"]


# --- The captured calls ---------------------------------------------------------------------------


def ask_all(peer, binding):
    ids = lambda exchange: peer.task_ids(binding, exchange)
    done, context = ids(peer.send(binding, "echo größe 🦅"))
    peer.send(binding, "message hi")
    for word in ("data", "file", "history", "fail", "reject", "auth"):
        peer.send(binding, word)
    metadata = {"m": [1, {"deep": None}]}
    peer.send(
        binding,
        "metadata",
        message={"metadata": metadata, "extensions": [EXTENSION]},
        metadata={"r": {"s": True}},
    )
    peer.send(binding, "stream 3", "stream")
    peer.send(binding, "message hi", "stream")
    peer.send(binding, "input", "stream")
    for operation in ("send", "stream"):
        task, its_context = ids(peer.send(binding, "input"))
        more = {"taskId": task, "contextId": its_context}
        peer.send(binding, "more", operation, about="follow-up", message=more)
    at_once = {"configuration": {"returnImmediately": True}}
    held, _ = ids(peer.send(binding, "slow 2", **at_once))
    peer.call(binding, "subscribe", "live", {"id": held})
    held, _ = ids(peer.send(binding, "slow 20", keep=False, **at_once))
    time.sleep(0.3)
    peer.call(binding, "cancel", "working", {"id": held})
    peer.call(binding, "cancel", "canceled", {"id": held})
    peer.call(binding, "get", "finished", {"id": done})
    peer.call(binding, "get", "short history", {"id": done, "more": {"historyLength": 1}})
    if not peer.old:
        peer.call(binding, "list", "context", {"more": {"contextId": context}})
        peer.call(binding, "list", "page", {"more": {"pageSize": 2, "includeArtifacts": True}})
    ask_for_push(peer, binding, done)
    peer.call(binding, "extended-card", "card", {})
    # Calls that fail.
    peer.call(binding, "get", "unknown task", {"id": "nope"})
    peer.call(binding, "cancel", "finished", {"id": done})
    peer.call(binding, "cancel", "unknown task", {"id": "nope"})
    peer.call(binding, "subscribe", "unknown task", {"id": "nope"})
    peer.call(binding, "subscribe", "finished", {"id": done})
    for operation in ("send", "stream"):
        more = {"taskId": done, "contextId": context}
        peer.send(binding, "more", operation, about="finished task", message=more)
        peer.send(binding, "more", operation, about="unknown task", message={"taskId": "nope"})
    peer.send(binding, "none", about="no parts", message={"parts": []})


def ask_for_push(peer, binding, task):
    first = {
        "id": "first",
        "url": "http://127.0.0.1:9/hook",
        "token": "token",
        "authentication": {"scheme": "Bearer", "credentials": "secret"},
    }
    peer.call(binding, "push-set", "whole", {"id": task, "push": first})
    second = {"id": "second", "url": "http://127.0.0.1:9/second"}
    peer.call(binding, "push-set", "url alone", {"id": task, "push": second})
    peer.call(binding, "push-get", "whole", {"id": task, "config": "first"})
    peer.call(binding, "push-list", "both", {"id": task})
    peer.call(binding, "push-delete", "first", {"id": task, "config": "first"})
    peer.call(binding, "push-get", "deleted", {"id": task, "config": "first"})
    peer.call(binding, "push-list", "unknown task", {"id": "nope"})


def main():
    peers = json.loads(os.environ["PEERS"])
    OUT.mkdir(exist_ok=True)
    for server, variants in peers.items():
        for variant, base in variants.items():
            old_protocol = server.endswith("03") or variant == "compat"
            peer = Peer(server, variant, old_protocol, base)
            for binding in ("JSONRPC", "HTTP+JSON", "GRPC"):
                if variant != "guarded":
                    ask_all(peer, binding)
                    continue
                peer.send(binding, "echo nobody", about="no credentials")
                peer.send(binding, "stream 2", "stream", about="no credentials")
                known = Peer(server, variant, old_protocol, base, {"X-API-Key": SECRET})
                known.exchanges = peer.exchanges
                known.call(binding, "extended-card", "card", {})
            kept = {
                "sdk": sdk_of(server),
                "version": peer.version,
                "card": peer.card_exchange,
                "exchanges": peer.exchanges,
            }
            name = server if variant == "plain" else f"{server}-{variant}"
            text = json.dumps(kept, indent=1, ensure_ascii=False)
            (OUT / f"{name}.json").write_text(text + "\n")
            print(name, len(peer.exchanges), "exchanges")


main()
