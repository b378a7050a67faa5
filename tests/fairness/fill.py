#!/usr/bin/env python3
"""Unfinished tasks do not fill the store permanently: fill.py BINARY

An agent requests input and gets no answer, 700,000 times from one address: each send is answered,
and the server stays ready. Then anonymous callers of 13 addresses do the same with large messages
at an open agent: an authenticated caller's sends are answered. About 60 s and 2 GB of memory,
loopback only.
"""

import probe
from probe import Caller, Server, verdict

ASKS = """[agent]
name = "ask"
[[rule]]
text = "done"
[[rule.step]]
status = "completed"
[[rule]]
[[rule.step]]
status = "input-required"
text = "?"
"""
KNOWN = """[[auth.api_keys]]
name = "v"
key = "key-v-0000000000"
[agents.a]
script = "ask.toml"
[agents.open]
script = "ask.toml"
anonymous = true
"""

script = probe.write("ask.toml", ASKS)
with Server("--agent", f"script:{script}") as server:
    flood = Caller(server.port)
    refused = sum(flood.send_batch(first, 100) for first in range(0, 700_000, 100))
    verdict("every one of 700,000 questions is taken", refused == 0, f"{refused} refused")
    answer = Caller(server.port, "127.0.0.2").send("v", "done")
    verdict("a send from another address is answered", "result" in answer, answer)
    status, content = probe.get(server.port, "/readyz")
    verdict("the server is ready", status == 200, content)

with Server("--config", probe.write("known.toml", KNOWN)) as server:
    sizes, big = (3_900_000, 300_000, 20_000, 1_000), "x" * 3_900_000
    for last in range(1, 14):
        caller = Caller(server.port, f"127.13.0.{last}", "/agents/open")
        for size in sizes:
            for number in range(40 if size > 1_000_000 else 400):
                if "error" in caller.send(str(number), big[:size]):
                    break
    known = Caller(server.port, headers=["X-API-Key: key-v-0000000000"], path="/agents/a")
    for size in (10, 1_000, 100_000, 1_000_000):
        answer = known.send(str(size), "?" + big[:size])
        verdict(f"a known caller's {size} bytes are taken", "result" in answer, answer)
    status, content = probe.get(server.port, "/readyz")
    verdict("the server is ready", status == 200, content)
probe.finish()
