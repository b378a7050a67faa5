#!/usr/bin/env python3
"""Expired tokens and wrong keys do not block valid ones of an address: renewed_token.py BINARY

Behind a proxy, a NAT or the egress of a mesh all clients have one address, and a JWT is renewed
every few minutes. About 5 s, loopback only, no dependencies.
"""

import base64
import hashlib
import hmac
import json
import time

import probe
from probe import Caller, Server, verdict

SECRET = "0123456789abcdef0123456789abcdef"
ROBOT = "a key of more than 16 bytes"
CONFIGURATION = f"""[[auth.issuers]]
issuer = "https://issuer.example"
audiences = ["https://agents.example"]
secret = "{SECRET}"
[[auth.api_keys]]
name = "robot"
key = "{ROBOT}"
"""
CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).encode()


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(subject, seconds, secret=SECRET):
    now = int(time.time())
    claims = {"iss": "https://issuer.example", "aud": "https://agents.example", "sub": subject}
    claims |= {"iat": now - 900, "exp": now + seconds}
    parts = ({"alg": "HS256", "typ": "JWT"}, claims)
    signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return signed + "." + base64url(signature)


def ask(server, field, value, address="127.6.2.1"):
    return Caller(server.port, address, headers=[f"{field}: {value}"]).post(CALL)[0]


with Server("--config", probe.write("callers.toml", CONFIGURATION)) as server:
    bearer = lambda *claims: ask(server, "Authorization", "Bearer " + token(*claims))
    key = lambda text, address="127.6.2.1": ask(server, "X-API-Key", text, address)
    verdict("a right token passes", bearer("alice", 600) == 200)
    statuses = {bearer("mallory", -300) for _ in range(40)}
    verdict("expired tokens are 401, however many there are", statuses == {401}, statuses)
    renewed = "Bearer " + token("alice", 601)
    alice = lambda: ask(server, "Authorization", renewed)
    verdict("alice's next token passes", alice() == 200)
    verdict("bob's first token passes", bearer("bob", 600) == 200)
    statuses = {bearer("mallory", 600, "another secret of some 32 bytes..") for _ in range(12)}
    verdict("tokens of another signer are 401", statuses == {401}, statuses)
    verdict("carol's first token passes after them", bearer("carol", 600) == 200)
    begin = time.monotonic()
    status, seconds = key("wrong"), time.monotonic() - begin
    verdict("a wrong key from there is 401 after a second", status == 401 and seconds > 0.9, seconds)
    verdict("a right key passes at once", key(ROBOT) == 200)
    statuses = [bearer("mallory", 700, "another secret of some 32 bytes..") for _ in range(60)]
    verdict("beyond the budget tokens are 503", set(statuses) == {401, 503}, set(statuses))
    verdict("a token that was verified before passes beyond it", alice() == 200)
    verdict("a right key passes beyond the budget", key(ROBOT) == 200)
    time.sleep(1.1)
    verdict("a new token passes in the next second", bearer("dora", 600) == 200)
    verdict("elsewhere a wrong key is answered at once", key("wrong", "127.6.2.2") == 401)
probe.finish()
