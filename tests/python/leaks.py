"""Whether calls leak: `python leaks.py [CALLS]` serves agents in this process, has `peregrine bench`
call them, and fails if the memory of the process grows with the calls.

The store keeps few tasks here, so that it is full from the first part on.
"""

from __future__ import annotations

import subprocess
import sys

import peregrine
from peregrine import a2a_sdk
from test_a2a_sdk import Streams, card

#: Bytes that a call may cost the process for good: what allocators keep is far below it.
BYTES_A_CALL = 8
SETTINGS = "[limits]\ntasks_max = 1000\n[quotas]\n"


@peregrine.agent
def plain(turn: peregrine.Turn) -> str:
    return turn.text


@peregrine.agent
async def later(turn: peregrine.Turn):
    yield turn.text


def rss() -> int:
    """The memory of this process, in bytes."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def load(url: str, calls: int) -> None:
    """So many calls, 16 at once."""
    words = ["bench", url, "--requests", str(calls), "--concurrency", "16", "--assert", "errors=0"]
    subprocess.run(["peregrine", *words, "--live", "false"], check=True, stdout=subprocess.DEVNULL)


def grows(server: peregrine.Server, path: str, calls: int) -> bool:
    """Whether the calls of the second part have cost memory."""
    load(server.url + path, calls // 4)
    before = rss()
    load(server.url + path, calls - calls // 4)
    grown = rss() - before
    print(f"{path}: {calls} calls, {before >> 20} MiB and {grown >> 10} KiB more", flush=True)
    return grown > BYTES_A_CALL * calls


def main(calls: int) -> int:
    with peregrine.Server(plain, later, port=0, settings=SETTINGS) as server:
        grown = [grows(server, f"/agents/{name}", calls // 3) for name in ("plain", "later")]
    with a2a_sdk.Server(Streams(), card(), port=0, settings=SETTINGS) as server:
        grown.append(grows(server, "/", calls // 3))
    return 1 if any(grown) else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
