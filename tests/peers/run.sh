#!/usr/bin/env bash
# Installs the official SDKs from their registries, starts a server with the same agent on each and
# the HTTP functions of docs/examples/agents, and runs a command with their URLs in PEERS, as one
# JSON object by server and variant:
#   run.sh COMMAND...
# PEERS_RUST=1 adds the two SDKs in Rust; building them takes some minutes.
# The exit code is the command's. The servers end with the command, at the latest after
# PEERS_SECONDS.
set -euo pipefail
root=$PWD
cd "$(dirname "$0")"
[ $# != 0 ] || { echo "usage: run.sh COMMAND..." >&2; exit 2; }

SECONDS_MAX=${PEERS_SECONDS:-900}
START_SECONDS_MAX=60
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost PYTHONDONTWRITEBYTECODE=1
export OTEL_INSTRUMENTATION_A2A_SDK_ENABLED=false

# Installs what a file pins, once per content of that file.
stamped() { # STAMP FILE COMMAND...
    local stamp=$1 file=$2
    shift 2
    if ! cmp -s "$file" "$stamp"; then
        "$@"
        cp "$file" "$stamp"
    fi
}

venv() { # GENERATION
    rm -rf ".venv-$1"
    python3 -m venv ".venv-$1"
    ".venv-$1/bin/python" -m pip install --quiet --disable-pip-version-check \
        -r "requirements-$1.txt"
}

modules() {
    npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error
}

for generation in 1 03; do
    stamped ".venv-$generation/stamp" "requirements-$generation.txt" venv "$generation"
done
stamped node_modules/.stamp package.json modules
servers=(py1 py03 js1 js03 functions)
if [ -n "${PEERS_RUST:-}" ]; then
    cargo build --locked --quiet --manifest-path rust/Cargo.toml --target-dir rust/target
    servers+=(rust)
fi

logs=$(mktemp -d)
pids=()
finish() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$logs"
}
trap finish EXIT

start() { # NAME COMMAND...
    local name=$1
    shift
    timeout "$SECONDS_MAX" "$@" </dev/null >"$logs/$name.json" 2>"$logs/$name.log" &
    pids+=($!)
}

start py1 .venv-1/bin/python py1.py
start py03 .venv-03/bin/python py03.py
start js1 node js1.mjs
start js03 node js03.mjs
start functions .venv-1/bin/python functions.py
if [ -n "${PEERS_RUST:-}" ]; then start rust rust/target/debug/peers-rust; fi

peers=
for name in "${servers[@]}"; do
    for _ in $(seq $((START_SECONDS_MAX * 10))); do
        if [ -s "$logs/$name.json" ]; then break; fi
        sleep 0.1
    done
    if [ ! -s "$logs/$name.json" ]; then
        echo "$name did not start:" >&2
        cat "$logs/$name.log" >&2
        exit 1
    fi
    peers="$peers${peers:+,}\"$name\":$(cat "$logs/$name.json")"
done
export PEERS="{$peers}"

cd "$root"
rc=0
"$@" || rc=$?
if [ $rc != 0 ]; then
    for name in "${servers[@]}"; do
        echo "--- what $name logged last:" >&2
        tail -n 40 "$logs/$name.log" >&2
    done
fi
exit $rc
