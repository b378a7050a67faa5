"""What the tests of the Python package share: calls by hand, over a real socket."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest


def message(text: str, **members: Any) -> dict[str, Any]:
    """A message of A2A 1.0."""
    parts = [{"text": text}]
    return {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts, **members}


class Caller:
    """A client of A2A 1.0 over JSON-RPC."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        self.url = url
        self.http = httpx.Client(headers={"A2A-Version": "1.0", **(headers or {})}, timeout=30)

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post(self.url, json=body).json()

    def send(self, text: str, **members: Any) -> dict[str, Any]:
        """The answer to a message: its result, or its error."""
        answer = self.call("SendMessage", {"message": message(text, **members)})
        return answer.get("result", answer)

    def send_at_once(self, text: str) -> dict[str, Any]:
        """The task that a message begins, as soon as there is one."""
        params = {"message": message(text), "configuration": {"returnImmediately": True}}
        return self.call("SendMessage", params)["result"]["task"]

    def stream(self, text: str, **members: Any) -> Iterator[dict[str, Any]]:
        """The events of a message."""
        params = {"message": message(text, **members)}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        with self.http.stream("POST", self.url, json=body) as response:
            for line in response.iter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])["result"]

    def task(self, task_id: str) -> dict[str, Any]:
        """A task as it is."""
        return self.call("GetTask", {"id": task_id})["result"]

    def cancel(self, task_id: str) -> dict[str, Any]:
        """The answer to a cancel."""
        return self.call("CancelTask", {"id": task_id})


@pytest.fixture
def caller() -> type[Caller]:
    """The class of callers."""
    return Caller


def text_of(parts: list[dict[str, Any]]) -> str:
    """The texts of parts."""
    return "".join(part.get("text", "") for part in parts)
