#!/usr/bin/env bash
# Makes the reports of this folder: the same load on Peregrine and on agents with the SDKs in
# Python, JavaScript and Rust, one after the other, each on core 0 with the generator on core 1.
#   docs/benchmarks/run.sh [AGENT...]
# Agents are peregrine, function, executor, python, javascript, rust and protocol; without one, all.
# `function` is an agent in Python of Peregrine's own kind, `executor` that of `python`, served by
# Peregrine. What is installed
# and built is kept in target/benchmarks. Needs cargo, python3 with venv, node with npm, taskset.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=docs/benchmarks
agents=docs/examples/bench
work=target/benchmarks
peregrine=target/release/peregrine
PORT=4100
SECONDS_A_PHASE=10
WARMUP=3s
# Calls a second at which the search for the highest rate begins, and seconds at each rate.
FIRST_RATE=100
SEARCH_SECONDS=4

install() {
    mkdir -p "$work"/{js,peregrine-max,rust-max,protocol-max,javascript-max,python-max,function-max,executor-max}
    cargo build --release --locked
    cargo build --release --locked --manifest-path "$agents/rust/Cargo.toml" \
        --target-dir "$work/rust"
    [ -d "$work/python" ] || python3 -m venv "$work/python"
    "$work/python/bin/pip" install --quiet --disable-pip-version-check \
        'a2a-sdk[http-server]==1.3.0' 'uvicorn[standard]==0.54.0'
    "$work/python/bin/pip" install --quiet --disable-pip-version-check .
    cp "$agents/agent.mjs" "$work/js/"
    (cd "$work/js" && npm install --no-audit --no-fund --loglevel=error \
        @a2a-js/sdk@1.3.0 @bufbuild/protobuf@2.17.0 express@5.3.0)
}

command_of() { # AGENT
    case $1 in
        peregrine) echo "$peregrine serve --listen 127.0.0.1:$PORT --agent echo" ;;
        python) echo "$work/python/bin/python $agents/agent.py $PORT" ;;
        function | executor) echo "$work/python/bin/python $agents/$1.py $PORT" ;;
        javascript) echo "env NODE_ENV=production node $work/js/agent.mjs $PORT" ;;
        rust) echo "$work/rust/release/official $PORT" ;;
        protocol) echo "$work/rust/release/protocol $PORT" ;;
        *) echo "unknown agent $1" >&2; return 2 ;;
    esac
}

pid=
stop() {
    [ -n "$pid" ] || return 0
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    pid=
}
trap stop EXIT

start() { # AGENT
    local command
    command=$(command_of "$1")
    # shellcheck disable=SC2086
    taskset -c 0 $command </dev/null >"$work/$1.log" 2>&1 &
    pid=$!
    curl --silent --fail --output /dev/null --retry 50 --retry-delay 1 --retry-connrefused \
        "http://127.0.0.1:$PORT/.well-known/agent-card.json"
}

bench() { # WORDS...
    taskset -c 1 "$peregrine" bench "http://127.0.0.1:$PORT" --pid "$pid" --warmup "$WARMUP" \
        --live false "$@"
}

install
[ $# != 0 ] || set -- peregrine function executor rust protocol javascript python
for agent in "$@"; do
    start "$agent"
    bench --workload "$here/comparison.toml" --duration "${SECONDS_A_PHASE}s" \
        --out "$here/$agent.html" --out "$work/$agent.json" --out "$work/$agent.txt"
    stop
    start "$agent"
    bench --find-max --slo 'p99<20ms,errors=0' --payload 1024 --rate "$FIRST_RATE" \
        --duration "${SEARCH_SECONDS}s" --out "$work/$agent-max/$agent.json"
    stop
done
"$peregrine" bench report "$work"/*-max/*.json --out "$here/highest-rate.html" >/dev/null
"$here/table.py" "$work"
