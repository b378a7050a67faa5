#!/usr/bin/env python3
"""Makes the table and the picture of this folder from the JSON reports of run.sh:

table.py FOLDER

Prints the table as Markdown, and writes comparison.svg beside this file.
"""

import json
import pathlib
import sys

AGENTS = {
    "peregrine": "Peregrine",
    "function": "Peregrine, function in Python",
    "executor": "Peregrine, executor of the Python SDK",
    "rust": "official Rust SDK",
    "protocol": "a2a-protocol-server",
    "javascript": "official JavaScript SDK",
    "python": "official Python SDK",
}
COLUMNS = [
    "agent",
    "highest rate with p99 < 20 ms, calls/s",
    "p50 / p99 at 100 calls/s, ms",
    "sends, 16 at once, calls/s",
    "events of streams, 16 at once, events/s",
    "CPU a send, µs",
    "memory at 100 calls/s, MiB",
]
ROW, BAR, LEFT, WIDTH = 34, 18, 260, 840


def targets(path):
    with open(path) as report:
        return json.load(report)["targets"]


def phase(found, name):
    return next(target for target in found if name in target["plan"]["name"])


def measured(folder, agent):
    found = targets(folder / f"{agent}.json")
    steady, sends = phase(found, "send, 100"), phase(found, "send, 16")
    streams = phase(found, "streams, 16")
    for target in found:
        if target["errors"]:
            print(f"{agent}: {target['plan']['name']}: {target['errors']}", file=sys.stderr)
    best = targets(folder / f"{agent}-max/{agent}.json")[0]["rate"]["reached"]
    latency = steady["latency_us"]
    return best, [
        f"{best:,.0f}",
        f"{latency['p50'] / 1000:.2f} / {latency['p99'] / 1000:.1f}",
        f"{sends['rate']['reached']:,.0f}",
        f"{streams['events_per_s']:,.0f}",
        f"{sends['server']['cpu_us_per_call']:,.1f}",
        f"{steady['server']['rss_bytes_max'] / 2**20:.0f}",
    ]


def picture(rates):
    """Bars of the highest rates, as SVG that is readable on light and dark pages."""
    highest = max(rates.values())
    height = 40 + ROW * len(rates)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="sans-serif" font-size="13">',
        "<title>Calls a second with a 99th percentile below 20 ms, on one core</title>",
        "<style>text{fill:#1f2328}.b{fill:#0969da}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#4493f8}}</style>",
        '<text x="0" y="18" font-weight="bold">'
        "SendMessage calls/s with p99 below 20 ms, server on one core</text>",
    ]
    for number, (agent, rate) in enumerate(rates.items()):
        top = 32 + ROW * number
        width = max(1, (WIDTH - LEFT - 80) * rate / highest)
        middle = top + BAR - 5
        lines += [
            f'<text x="{LEFT - 8}" y="{middle}" text-anchor="end">{AGENTS[agent]}</text>',
            f'<rect class="b" x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR}" rx="2"/>',
            f'<text x="{LEFT + width + 6:.1f}" y="{middle}">{rate:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def main(folder):
    rates = {}
    print("|", " | ".join(COLUMNS), "|")
    print("|---" + "|--:" * (len(COLUMNS) - 1) + "|")
    for agent in AGENTS:
        if (folder / f"{agent}-max/{agent}.json").exists():
            rates[agent], cells = measured(folder, agent)
            print("|", " | ".join([AGENTS[agent], *cells]), "|")
    here = pathlib.Path(__file__).parent
    (here / "comparison.svg").write_text(picture(rates), encoding="utf-8")


main(pathlib.Path(sys.argv[1]))
