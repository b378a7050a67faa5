"""Prometheus' own parser on the metrics of a running echo agent: metrics.py BASE_URL"""

import sys
import uuid

import httpx
from prometheus_client.parser import text_string_to_metric_families

from harness import case, check, equal, main

HEADERS = {"A2A-Version": "1.0"}


def samples(base_url):
    """Every sample by its name and labels, which are unique."""
    response = httpx.get(base_url + "/metrics")
    equal(response.status_code, 200, "status")
    found = {}
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            check(key not in found, f"{key} is there twice")
            found[key] = sample.value
    return found


def sends(found):
    labels = {
        "rpc_method": "SendMessage",
        "rpc_system": "jsonrpc",
        "version": "1.0",
        "agent": "echo",
        "outcome": "ok",
    }
    return found.get(("peregrine_calls_total", frozenset(labels.items())), 0)


def send(base_url):
    parts = [{"text": "hi"}]
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    check("result" in httpx.post(base_url, json=call, headers=HEADERS).json(), "a result")


@case
async def every_line_is_understood(base_url):
    """The parser takes the page, and finds calls, histograms and the process."""
    send(base_url)
    found = samples(base_url)
    names = {name for name, _ in found}
    for name in [
        "rpc_server_call_duration_seconds_bucket",
        "peregrine_open_streams",
        "peregrine_tasks",
        "process_open_fds",
    ]:
        check(name in names, f"no {name} in {sorted(names)}")


@case
async def buckets_grow_up_to_their_count(base_url):
    """A histogram is cumulative, and its last bucket is all of it."""
    send(base_url)
    found = samples(base_url)
    rows = {}
    for (name, labels), value in found.items():
        if name == "rpc_server_call_duration_seconds_bucket":
            labels = dict(labels)
            bound = float(labels.pop("le"))
            rows.setdefault(frozenset(labels.items()), []).append((bound, value))
    check(rows, "there are histograms")
    for labels, buckets in rows.items():
        buckets.sort()
        counts = [count for _, count in buckets]
        equal(counts, sorted(counts), f"buckets of {labels}")
        equal(buckets[-1][0], float("inf"), "the last bound")
        equal(counts[-1], found[("rpc_server_call_duration_seconds_count", labels)], "the count")


@case
async def a_call_is_counted_once(base_url):
    """Five calls are five more, and none of another kind."""
    before = samples(base_url)
    for _ in range(5):
        send(base_url)
    equal(sends(samples(base_url)) - sends(before), 5, "calls")


main("metrics", sys.argv[1].rstrip("/"))
