#!/usr/bin/env python3
"""Invented key ids do not block an issuer's new key, and failures do not block a valid token:
rotation.py BINARY (needs `cryptography`; about 80 s, loopback only)
"""

import base64
import http.server
import json
import socket
import threading
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

import probe
from probe import Server, verdict

CALL = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}'


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def bits(number):
    return base64url(number.to_bytes(32, "big"))


class Key:
    def __init__(self, kid):
        self.kid, self.private = kid, ec.generate_private_key(ec.SECP256R1())

    def public(self):
        point = self.private.public_key().public_numbers()
        return {"kty": "EC", "crv": "P-256", "kid": self.kid, "x": bits(point.x), "y": bits(point.y)}

    def token(self, subject, number, seconds=900):
        claims = {"iss": "https://issuer.example", "sub": subject, "n": number}
        claims["exp"] = int(time.time()) + seconds
        head = {"alg": "ES256", "kid": self.kid}
        signed = ".".join(base64url(json.dumps(part).encode()) for part in (head, claims))
        signature = self.private.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
        r, s = utils.decode_dss_signature(signature)
        return signed + "." + base64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))


old, new, made_up = Key("e1"), Key("e2"), Key("zz")
published, fetches = [old], []


class Keys(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        fetches.append(time.monotonic())
        content = json.dumps({"keys": [key.public() for key in published]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


issuer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keys)
threading.Thread(target=issuer.serve_forever, daemon=True).start()
CONFIGURATION = f"""[[auth.issuers]]
issuer = "https://issuer.example"
keys_url = "http://127.0.0.1:{issuer.server_port}/jwks"
[agents.e]
kind = "echo"
"""


def ask(server, token, address):
    """Sends a token from an address; returns the status and `Retry-After`."""
    with socket.socket() as connection:
        connection.bind((address, 0))
        connection.settimeout(30)
        connection.connect(("127.0.0.1", server.port))
        head = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {token}\r\nContent-Length: {len(CALL)}\r\n\r\n"
        connection.sendall(head.encode() + CALL)
        lines = connection.recv(4096).split(b"\r\n")
    retry = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"retry-after")]
    return int(lines[0].split(b" ")[1]), retry[0] if retry else None


with Server("--config", probe.write("issuer.toml", CONFIGURATION)) as server:
    verdict("a token of the old key passes", ask(server, old.token("a", 0), "127.6.0.1")[0] == 200)
    ask(server, made_up.token("m", 0), "127.6.9.9")
    published.append(new)
    rotated, statuses, retry = time.monotonic(), [], None
    for number in range(70):
        if number % 10 == 0:
            ask(server, made_up.token("m", number), "127.6.9.9")
        status, wait = ask(server, new.token("carol", number), "127.6.0.2")
        statuses.append(status)
        if status == 200:
            break
        retry = retry or wait
        time.sleep(1)
    waited = time.monotonic() - rotated
    verdict("a token of the new key passes within 65 s", statuses[-1] == 200 and waited < 65, waited)
    early = set(statuses[:-1])
    verdict("until then it is 503", early <= {503}, early)
    if early:
        verdict("Retry-After is the time to the next fetch", abs(retry - waited) < 5, (retry, waited))
    verdict("keys are fetched once a minute at most", len(fetches) <= 3, len(fetches))
    for number in range(10):
        ask(server, f"wrong{number}", "127.6.1.1")
    for number in range(30):
        ask(server, old.token("late", number, seconds=-900), "127.6.1.1")
    status = ask(server, old.token("dora", 1), "127.6.1.1")
    verdict("a right token passes after failures of its address", status[0] == 200, status)
probe.finish()
