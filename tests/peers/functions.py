"""The HTTP functions of docs/examples/agents/function.py."""

import asyncio
import sys

import peer

sys.path.insert(0, "../../docs/examples/agents")
import function  # noqa: E402


async def main():
    socket, http = peer.listen()
    await peer.run({"plain": (http, peer.serve(function.app, socket), None)})


asyncio.run(main())
