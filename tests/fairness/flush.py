#!/usr/bin/env python3
"""A caller's flood evicts nothing of another caller: flush.py BINARY

For 40 s one key sends as fast as it can. The other key's finished task, its idempotency entry and
its webhook with an unreachable receiver are retained. About 45 s, loopback only.
"""

import time

import probe
from probe import Caller, Server, verdict

CONFIGURATION = """[push]
allow = ["localhost"]
[agents.e]
kind = "echo"
""" + "".join(
    f'[[auth.api_keys]]\nname = "{name}"\nkey = "key-{name}-0000000000"\n' for name in "av"
)

admin = probe.free_port()
path = probe.write("two.toml", CONFIGURATION)
with Server("--config", path, "--admin", f"127.0.0.1:{admin}") as server:
    victim = Caller(server.port, headers=["X-API-Key: key-v-0000000000"])
    attacker = Caller(server.port, headers=["X-API-Key: key-a-0000000000"])
    task = victim.send("v-1")["result"]["task"]["id"]
    down = {"url": f"http://localhost:{probe.free_port()}/down"}
    hooked = victim.send("v-2", taskPushNotificationConfig=down)["result"]["task"]["id"]
    repeated = victim.send("v-1")["result"]["task"]["id"]
    verdict("control: a repeated send is the same task", repeated == task)
    sent, began, gone, twice = 0, time.monotonic(), None, None
    while time.monotonic() - began < 40:
        for _ in range(40):
            attacker.send_batch(sent, 100)
            sent += 100
        seen = f"after {sent} sends, {time.monotonic() - began:.1f} s"
        if not gone and "error" in victim.call("GetTask", {"id": task}):
            gone = seen
        again = victim.send("v-1").get("result", {}).get("task", {}).get("id")
        if not twice and again != task:
            twice = seen
    print(f"{sent} sends of the other caller")
    verdict("the finished task is still there", gone is None, gone)
    verdict("a repeat of the send is recognized", twice is None, twice)
    dead = probe.get(admin, "/push/dead")[1]
    verdict("the webhook that waits is no dead letter", hooked.encode() not in dead, dead)
probe.finish()
