#!/usr/bin/env python3
"""The posts that one caller causes are bounded at each moment: amplify.py BINARY

One task of 16,384 events has 100 webhooks at one host. At most eight posts are in flight there, and
waiting posts take no memory. About 45 s, loopback only.
"""

import asyncio
import re
import threading
import time

import probe
from probe import Caller, Server, verdict

EVENTS, WEBHOOKS, SECONDS = 16_384, 100, 30
posts, in_flight, in_flight_max = 0, 0, 0


async def receive(reader, writer):
    global posts, in_flight, in_flight_max
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            in_flight += 1
            in_flight_max = max(in_flight_max, in_flight)
            length = int(re.search(rb"(?i)content-length: *(\d+)", head).group(1))
            await reader.readexactly(length)
            posts += 1
            in_flight -= 1
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass


loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
port = probe.free_port()
receiver = asyncio.start_server(receive, "127.0.0.1", port, backlog=500)
asyncio.run_coroutine_threadsafe(receiver, loop).result()
with Server("--push-allow", "localhost") as server:
    caller = Caller(server.port)
    task = caller.send("a", f"hold:3000:{EVENTS}", returnImmediately=True)["result"]["task"]["id"]
    for number in range(WEBHOOKS):
        url = f"http://localhost:{port}/{number}"
        params = {"taskId": task, "id": str(number), "url": url}
        caller.call("CreateTaskPushNotificationConfig", params)
    began, before = time.monotonic(), server.memory_kib()
    time.sleep(SECONDS)
    grown = (server.memory_kib() - before) // 1024
    print(f"{posts} posts in {time.monotonic() - began:.0f} s, {grown} MiB more memory")
    verdict("the webhooks are posted to", posts > WEBHOOKS, posts)
    verdict("at most eight posts are in flight", in_flight_max <= 8, in_flight_max)
    verdict("posts that wait cost no memory", grown < 64, f"{grown} MiB")
probe.finish()
