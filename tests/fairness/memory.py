#!/usr/bin/env python3
"""The memory limit holds while all structures are full: memory.py BINARY

A server with `--memory 300M` gets 9,000 tokens with hundreds of scopes each, of owners with tasks
of many agents and tenants; then large tasks fill the store, and incomplete bodies the buffers. The
process never exceeds that limit. About 60 s, loopback only.
"""

import base64
import hashlib
import hmac
import json
import socket
import time

import probe
from probe import Caller, Server, verdict

MEMORY_MIB = 300
AGENTS, TENANTS, OWNERS, TOKENS, SPACES = 20, 40, 3_000, 9_000, 60_000
SECRET = "0123456789abcdef0123456789abcdef"

AGENT = """[agents.a{}]
kind = "echo"
reads_all_scopes = true
"""
ISSUER = f"""[[auth.issuers]]
issuer = "https://issuer.example"
secret = "{SECRET}"
algorithms = ["HS256"]
tenants = ["*"]
"""
CONFIGURATION = 'tenants = "any"\n' + "".join(AGENT.format(n) for n in range(AGENTS)) + ISSUER


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(owner, number):
    """A token of an owner with the maximum number of scopes, different ones in each token."""
    scopes = " ".join(f"s{number}.{n}" for n in range(500))[:4_800]
    claims = {"iss": "https://issuer.example", "sub": f"owner-{owner}-{'o' * 100}"}
    claims |= {"exp": int(time.time()) + 3_600, "scope": scopes}
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    text = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64url(signature)}"


def calls(count, text, first, tenant=None):
    """The body of a batch of sends; with `tenant` each names another tenant."""
    batch = []
    for number in range(first, first + count):
        params = probe.message(str(number), text, {"returnImmediately": True})
        if tenant is not None:
            params["tenant"] = f"tenant-{(tenant + number) % TENANTS}"
        batch.append({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params})
    return json.dumps(batch).encode()


def half_body(port):
    """A connection with a megabyte of a body that never ends."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(2)
    head = "POST /agents/a0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {token(0, 0)}\r\nContent-Length: 2000000\r\n\r\n"
    try:
        connection.sendall(head.encode() + b" " * 1_000_000)
    except OSError:
        return None
    return connection


path = probe.write("memory.toml", CONFIGURATION)
LIMITS = ["--memory", f"{MEMORY_MIB}M", "--limit", "evo_ai_body_bytes_max=4MiB"]
with Server("--config", path, *LIMITS) as server:

    def check(what):
        mib = server.memory_kib() / 1024
        verdict(f"{what}: at most {MEMORY_MIB} MiB", mib <= MEMORY_MIB, f"{mib:.0f} MiB")

    sent = 0
    for number in range(TOKENS):
        headers = [f"Authorization: Bearer {token(number % OWNERS, number)}"]
        caller = Caller(server.port, "127.0.0.1", f"/agents/a{number % AGENTS}", headers)
        status, content = caller.post(calls(8 if sent < SPACES else 1, "x", sent, number))
        sent += 8
        caller.socket.close()
        if number == 0:
            verdict("a token is good", status == 200 and b"task" in content, content)
    check("tokens and spaces")
    callers = [
        Caller(server.port, "127.0.0.1", f"/agents/a{n}", [f"Authorization: Bearer {token(n, n)}"])
        for n in range(AGENTS)
    ]
    for number in range(400):
        callers[number % AGENTS].post(calls(1, "x" * 300_000, number))
    check("and large tasks")
    open_ones = [half_body(server.port) for _ in range(300)]
    check("and half bodies")
    # The server closes the connections that hold the most memory.
    for connection in filter(None, open_ones):
        connection.close()
    callers[0].post(calls(1, "x" * 2_000_000, 1_000))
    status, content = probe.get(server.port, "/readyz")
    verdict("the server is ready", status == 200, content)
    check("at the end")
probe.finish()
