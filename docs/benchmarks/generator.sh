#!/usr/bin/env bash
# Prints how many calls a second one core of `peregrine bench` makes, for each binding and kind of
# call, with checks off and with full checks: the server on core 0, the generator on core 1.
#   docs/benchmarks/generator.sh [SECONDS]
set -euo pipefail
peregrine=$(cd "$(dirname "$0")/../.." && pwd)/target/release/peregrine
seconds=${1:-4}
PORT=4100
AT_ONCE=16

taskset -c 0 "$peregrine" serve --listen "127.0.0.1:$PORT" --agent echo </dev/null >/dev/null 2>&1 &
server=$!
trap 'kill $server' EXIT
curl --silent --fail --output /dev/null --retry 50 --retry-connrefused \
    "http://127.0.0.1:$PORT/healthz"

rate() { # TRANSPORT SCENARIO CHECK
    taskset -c 1 "$peregrine" bench "http://127.0.0.1:$PORT" --transport "$1" --scenario "$2" \
        --check "$3" --concurrency "$AT_ONCE" --duration "${seconds}s" -o json 2>/dev/null |
        python3 -c '
import json, sys
target = json.load(sys.stdin)["targets"][0]
rate, cpu = target["rate"]["reached"], target["generator"]["cpu_us_per_call"]
print(f"{rate:,.0f} ({cpu:.1f})", "errors" if target["errors"] else "")'
}

echo "| binding | operation | checks off, calls/s (generator CPU, µs a call) | full checks |"
echo "|---|---|--:|--:|"
for transport in jsonrpc http+json websocket grpc; do
    for scenario in send get stream; do
        echo "| $transport | $scenario | $(rate $transport $scenario off) | $(rate $transport $scenario full) |"
    done
done
