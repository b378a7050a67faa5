"""Shared by the probes: a server on loopback, HTTP/1.1 without a client's pauses, and verdicts."""

import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

BINARY = sys.argv[1] if len(sys.argv) > 1 else "target/release/peregrine"
FOLDER = pathlib.Path(tempfile.mkdtemp())
VERDICTS = []


def verdict(name, passed, seen=""):
    """Prints and stores one verdict, with `seen` as its details."""
    VERDICTS.append(bool(passed))
    print("PASS" if passed else "FAIL", name, str(seen)[:200], flush=True)


def finish():
    """Ends the process: 0 when every verdict passed, 1 otherwise."""
    passed = sum(VERDICTS)
    print(f"{passed} passed, {len(VERDICTS) - passed} failed")
    sys.exit(0 if VERDICTS and all(VERDICTS) else 1)


def write(name, text):
    """A file for the server; returns its path."""
    path = FOLDER / name
    path.write_text(text)
    return str(path)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server with two workers on a free loopback port, ended with the block."""

    def __init__(self, *arguments):
        self.port = free_port()
        listen = ["--listen", f"127.0.0.1:{self.port}", "--workers", "2"]
        self.log = open(FOLDER / f"{self.port}.log", "wb")
        command = [BINARY, "serve", *listen, *arguments]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self):
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"the server did not start: {open(self.log.name).read()}")

    def __exit__(self, *_):
        verdict("the server did not panic", "panicked" not in open(self.log.name).read())
        self.process.kill()
        self.process.wait()

    def memory_kib(self):
        """The peak resident memory, in KiB."""
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(r"VmHWM:\s+(\d+)", status).group(1))


class Caller:
    """One connection from a loopback address, with these header lines."""

    def __init__(self, port, address="127.0.0.1", path="/", headers=()):
        self.line, self.headers = f"POST {path} HTTP/1.1", headers
        self.socket = socket.socket()
        self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(30)

    def post(self, body):
        """Sends a body; returns the status and the content of the answer."""
        lines = [self.line, "Host: 127.0.0.1", "A2A-Version: 1.0", "Content-Type: application/json"]
        lines += [*self.headers, f"Content-Length: {len(body)}", "", ""]
        self.socket.sendall("\r\n".join(lines).encode() + body)
        return read_answer(self.socket)

    def call(self, method, params):
        """A JSON-RPC call; returns the response as an object."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return json.loads(self.post(json.dumps(call).encode())[1])

    def send(self, message_id, text="x", **configuration):
        return self.call("SendMessage", message(message_id, text, configuration))

    def send_batch(self, first, count, text="x"):
        """Sends SendMessage calls in one batch; returns the number of errors."""
        calls = [
            {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message(str(n), text)}
            for n in range(first, first + count)
        ]
        return self.post(json.dumps(calls).encode())[1].count(b'"error"')


def message(message_id, text, configuration=None):
    """The params of SendMessage."""
    content = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": content, "configuration": configuration or {}}


def get(port, path):
    """A GET on a new connection; returns the status and the content."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(30)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return read_answer(connection)


def read_answer(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(connection)
    head, content = data.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"(?i)content-length: *(\d+)", head).group(1))
    while len(content) < length:
        content += receive(connection)
    return int(head.split(b" ")[1]), content


def receive(connection):
    data = connection.recv(1 << 18)
    if not data:
        raise EOFError("the server closed the connection")
    return data
