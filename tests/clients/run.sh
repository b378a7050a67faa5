#!/usr/bin/env bash
# Drives a running server with the official clients, from their registries:
#   run.sh BASE_URL [--only py1,py03,grpc,js1,js03]
# The Python clients speak JSON-RPC and then gRPC; `grpc` is grpcio with reflection alone.
# The server is the echo agent with the hybrid card. Prints `N passed, N failed` last.
set -euo pipefail
cd "$(dirname "$0")"

base=${1:?usage: run.sh BASE_URL [--only py1,py03,grpc,js1,js03]}
only=py1,py03,grpc,js1,js03
if [ "${2:-}" = --only ]; then only=${3:?--only needs a list}; fi
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost PYTHONDONTWRITEBYTECODE=1

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

passed=0 failed=0
client() { # LABEL COMMAND...
    local label=$1 log tally
    shift
    log=$(mktemp)
    timeout 180 "$@" "$base" </dev/null >"$log" 2>&1 || true
    cat "$log"
    tally=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1 || true)
    rm -f "$log"
    if [ -z "$tally" ]; then
        echo "FAIL $label ended without a tally"
        tally="0 passed, 1 failed"
    fi
    passed=$((passed + ${tally%% *}))
    tally=${tally#*, }
    failed=$((failed + ${tally%% *}))
}

for name in ${only//,/ }; do
    case $name in
    py1 | py03)
        generation=${name#py}
        stamped ".venv-$generation/stamp" "requirements-$generation.txt" venv "$generation"
        client "$name" ".venv-$generation/bin/python" "$name.py"
        client "$name over gRPC" env A2A_BINDING=GRPC ".venv-$generation/bin/python" "$name.py"
        ;;
    grpc)
        stamped .venv-grpc/stamp requirements-grpc.txt venv grpc
        client grpc .venv-grpc/bin/python grpc_reflect.py
        ;;
    js1 | js03)
        stamped node_modules/.stamp package.json modules
        client "$name" node "$name.mjs"
        ;;
    *)
        echo "unknown client $name" >&2
        exit 2
        ;;
    esac
done
echo "clients: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
