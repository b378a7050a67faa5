"""A resolver whose answers change, and who is reached because of it: rebinding.py PEREGRINE

Runs in namespaces of users, mounts and networks of its own (`unshare -rnm`), where it is the whole
internet: a host of its own behind a veth has a public address and a private one, the server has a
public address itself, and every name is resolved by a resolver that says what the test wants. Holds:
nobody but the public address of the other host is connected to, and that one is told everything.
"""

import itertools
import json
import os
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8080
PUBLIC, OWN, PRIVATE = "93.184.216.34", "93.184.216.1", "10.0.0.5"
PUBLIC6, OWN6 = "2606:2800:220:1::34", "2606:2800:220:1::1"
WAIT_SECONDS = 90

# What each name is answered with: a row of answers, of which every question gets the next. An
# answer is all that is said at once.
NAMES = {
    "control.test": [[PUBLIC]],
    "control6.test": [[PUBLIC6]],
    "alias.test": [["=control.test", PUBLIC]],
    # Changes with every question.
    "rebind.test": [["127.0.0.1"], [PUBLIC]],
    "rebind-late.test": [[PUBLIC], ["127.0.0.1"]],
    "rebind-private.test": [[PUBLIC], [PRIVATE], ["169.254.169.254"]],
    "rebind-own.test": [[PUBLIC], [OWN]],
    # Says both at once, in both orders and families.
    "both.test": [[PUBLIC, "127.0.0.1"]],
    "both-last.test": [["127.0.0.1", PUBLIC]],
    "both-private.test": [[PUBLIC, PRIVATE]],
    "both6.test": [[PUBLIC, "::1"]],
    "both-own.test": [[PUBLIC, OWN]],
    # Forbidden alone.
    "loopback.test": [["127.0.0.1"]],
    "loopback6.test": [["::1"]],
    "zero.test": [["0.0.0.0"]],
    "mapped.test": [["::ffff:127.0.0.1"]],
    "nat64.test": [["64:ff9b::7f00:1"]],
    "private.test": [[PRIVATE]],
    "metadata.test": [["169.254.169.254"]],
    "own.test": [[OWN]],
    "own6.test": [[OWN6]],
    "alias-loopback.test": [["=localhost", "127.0.0.1"]],
}
TOLD = [name for name in NAMES if name.startswith(("control", "rebind")) or name == "alias.test"]


def run(*args):
    subprocess.run(args, check=True)


class Dual(ThreadingHTTPServer):
    """On all addresses of both families."""

    address_family = socket.AF_INET6
    request_queue_size = 128
    daemon_threads = True

    def server_bind(self):
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "any", PORT


def listen(told):
    """Tells of each connection, and of each post: (address of ours, host named, id, event)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self):
            super().setup()
            self.own = self.connection.getsockname()[0].removeprefix("::ffff:")
            told(["connection", self.own])

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            host = self.headers["Host"].split(":")[0]
            told(["post", self.own, host, int(self.headers["A2A-Event-Id"])])
            self.send_response(204)
            # The next post looks the name up again.
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True

        def log_message(self, *_):
            pass

    server = Dual(("::", PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def peer():
    """The other host: waits for its link, and tells of what comes as lines of JSON."""
    sys.stdin.readline()
    run("ip", "link", "set", "lo", "up")
    for address in (f"{PUBLIC}/24", f"{PRIVATE}/8", "169.254.169.254/16", f"{PUBLIC6}/64"):
        run("ip", "addr", "add", address, "dev", "b0", *(["nodad"] if ":" in address else []))
    run("ip", "link", "set", "b0", "up")
    lock = threading.Lock()

    def told(what):
        with lock:
            print(json.dumps(what), flush=True)

    listen(told)
    told(["ready"])
    sys.stdin.read()


class Resolver(threading.Thread):
    """Answers by UDP, with a TTL of 0."""

    def __init__(self):
        super().__init__(daemon=True)
        self.asked = Counter()
        self.rows = {name: itertools.cycle(answers) for name, answers in NAMES.items()}
        self.last = {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))

    def run(self):
        while True:
            query, client = self.socket.recvfrom(4096)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]].decode())
                at += 1 + query[at]
            name = ".".join(labels).lower()
            kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
            question = query[12 : at + 5]
            self.socket.sendto(self.answer(query[:2], question, name, kind), client)

    def answer(self, number, question, name, kind):
        if name not in self.rows:
            return number + struct.pack("!HHHHH", 0x8183, 1, 0, 0, 0) + question
        # A question for AAAA is about what that for A was about.
        if kind == 1 or name not in self.last:
            self.last[name] = next(self.rows[name])
            self.asked[name] += 1
        records, owner = b"", b"\xc0\x0c"
        for one in self.last[name]:
            if one.startswith("="):
                target = b"".join(bytes([len(x)]) + x.encode() for x in one[1:].split(".")) + b"\0"
                records += owner + struct.pack("!HHIH", 5, 1, 0, len(target)) + target
                owner = target
                continue
            own_kind, family = (28, socket.AF_INET6) if ":" in one else (1, socket.AF_INET)
            if own_kind == kind:
                data = socket.inet_pton(family, one)
                records += owner + struct.pack("!HHIH", kind, 1, 0, len(data)) + data
        count = sum(one.startswith("=") for one in self.last[name])
        count += sum((28 if ":" in x else 1) == kind for x in self.last[name] if x[0] != "=")
        return number + struct.pack("!HHHHH", 0x8180, 1, count, 0, 0) + question + records


def call(base, text, url):
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    configuration = {"taskPushNotificationConfig": {"url": url}}
    params = {"message": message, "configuration": configuration}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    request = urllib.request.Request(base, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return json.load(response)


def resolve_here(folder):
    """The resolver of this namespace alone; no name is in a file."""
    files = {
        "/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n",
        "/etc/hosts": "127.0.0.1 localhost\n",
        "/etc/nsswitch.conf": "hosts: files dns\n",
    }
    for target, content in files.items():
        path = os.path.join(folder, os.path.basename(target))
        with open(path, "w") as file:
            file.write(content)
        if os.path.exists(target):
            run("mount", "--bind", path, target)


def main(binary, folder):
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "a0", "type", "veth", "peer", "name", "b0")
    other = subprocess.Popen(
        ["unshare", "-n", sys.executable, __file__, "--peer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # It has its own network when it differs from ours.
    own_net = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{other.pid}/ns/net") == own_net:
        time.sleep(0.01)
    run("ip", "link", "set", "b0", "netns", str(other.pid))
    other.stdin.write("go\n")
    other.stdin.flush()
    for address in (f"{OWN}/24", "10.0.0.1/8", "169.254.0.1/16", f"{OWN6}/64"):
        run("ip", "addr", "add", address, "dev", "a0", *(["nodad"] if ":" in address else []))
    run("ip", "link", "set", "a0", "up")
    assert json.loads(other.stdout.readline()) == ["ready"]
    far, near = [], []

    def hear():
        for line in other.stdout:
            far.append(json.loads(line))

    threading.Thread(target=hear, daemon=True).start()
    listen(near.append)
    resolve_here(folder)
    resolver = Resolver()
    resolver.start()
    # Whoever is not the server reaches everybody.
    for target in ("127.0.0.1", "::1", OWN, OWN6, PRIVATE, "169.254.169.254", PUBLIC, PUBLIC6):
        socket.create_connection((target, PORT), timeout=20).close()
    until = time.monotonic() + WAIT_SECONDS
    while len(near) < 4 or len(far) < 4:
        assert time.monotonic() < until, (near, far)
        time.sleep(0.02)
    near.clear()
    far.clear()
    environment = dict(os.environ, PEREGRINE_PUSH_PLAIN_HTTP="true")
    command = [binary, "serve", "--listen", "127.0.0.1:0", "--workers", "1"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        for line in server.stdout:
            if line.split()[:1] == ["url"]:
                base = line.split()[1]
                break
        for name in NAMES:
            said = call(base, "stream:3", f"http://{name}:{PORT}/hook")
            assert "result" in said, (name, said)
        for url in (f"http://{OWN}:{PORT}/", f"http://[{OWN6}]:{PORT}/"):
            # An address of this host is known when it is connected to.
            call(base, "stream:3", url)
        check(resolver, near, far)
        assert server.poll() is None, "the server has died"
    finally:
        server.kill()
        other.kill()
    print("all held")


def check(resolver, near, far):
    """Waits until everybody was told who may be, and every name was asked for some times."""

    def events(name):
        own = [what[3] for what in list(far) if what[0] == "post" and what[2] == name]
        return [event for at, event in enumerate(own) if at == 0 or own[at - 1] != event]

    until = time.monotonic() + WAIT_SECONDS
    while True:
        late = [name for name in TOLD if len(events(name)) < 4]
        unasked = [name for name in NAMES if name not in TOLD and resolver.asked[name] < 3]
        if not late and not unasked:
            break
        state = {name: (events(name), resolver.asked[name]) for name in late + unasked}
        assert time.monotonic() < until, f"never: {state}"
        time.sleep(0.05)
    assert near == [], f"the server's own host was reached: {near}"
    reached = {what[1] for what in far}
    assert reached == {PUBLIC, PUBLIC6}, f"reached: {reached}"
    told = {what[2] for what in far if what[0] == "post"}
    assert told == set(TOLD), f"told: {told}"
    for name in TOLD:
        assert events(name) == sorted(set(events(name))), f"{name}: {events(name)}"
    print({name: resolver.asked[name] for name in NAMES})


if __name__ == "__main__":
    if sys.argv[1] == "--peer":
        peer()
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(sys.argv[1], scratch)
