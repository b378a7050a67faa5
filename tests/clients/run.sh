#!/usr/bin/env bash
# Tests a running server with the official clients, each over every binding it has, with the clients
# of Google's ADK and of Pydantic AI, with a plain WebSocket client, with grpcio and reflection
# alone, and its metrics with Prometheus' parser, all from their registries:
#   run.sh BASE_URL [--only NAME,NAME...]
#   run.sh --names
#   run.sh --provider PORT CERT KEY
# The server is the echo agent with the hybrid card. Names with -grpc need gRPC in the card
# (`--interfaces jsonrpc,http+json,grpc`), `adk` refuses a card that lists it, `fasta2a` needs
# `--mount /fasta2a=fasta2a`, `signed` two signing keys, one of each kind (`--card-key`), `traces`
# `PEREGRINE_TRACES_ENDPOINT=http://127.0.0.1:4318`; without --only everything runs except `adk`,
# `signed`, `traces`, and the names with callers- or webhooks-. Prints `N passed, N failed` last.
#
# Names with webhooks- configure their own webhooks on loopback, and verify the posts:
# `--push-allow localhost`, `--push-sign-key` for a JWT and for Ed25519.
#
# Names with callers- send credentials, and `browser` drives Debian's Chromium. They need the server
# of callers.toml, a new one each time because it counts wrong credentials, with OPENID_ISSUER,
# ROBOT_KEY and PAGE_ORIGIN in the environment. `--provider` starts the issuer; OPENID_CA and
# NODE_EXTRA_CA_CERTS are the file of its authority. With CORS_CREDENTIALS=yes `browser` expects
# `--cors-credentials`. `report` opens the pages of `peregrine bench` at the paths in REPORTS.
set -euo pipefail
cd "$(dirname "$0")"

official="py1 py03 js1 js03"
only=$official
for name in $official; do only="$only $name-rest $name-grpc"; done
only="$only grpc ws fasta2a metrics"
names="$only adk signed traces browser report"
for name in callers-{py1,js1,js03}; do names="$names $name $name-rest $name-grpc"; done
names="$names callers-py03 callers-py03-rest"
for name in $official; do names="$names webhooks-$name webhooks-$name-rest webhooks-$name-grpc"; done
if [ "${1:-}" = --names ]; then
    echo "$names"
    exit 0
fi
base=${1:?usage: run.sh BASE_URL [--only NAME,NAME...]; the names: $names}
if [ "${2:-}" = --only ]; then only=${3:?--only needs a list}; fi
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost PYTHONDONTWRITEBYTECODE=1

# Installs the versions that a file pins, once per content of that file.
stamped() { # STAMP FILE COMMAND...
    local stamp=$1 file=$2
    shift 2
    if ! cmp -s "$file" "$stamp"; then
        "$@"
        cp "$file" "$stamp"
    fi
}

venv() { # NAME
    new_venv ".venv-$1" -r "requirements-$1.txt"
}

venv_webhook() { # GENERATION
    new_venv ".venv-webhook-$1" -r "requirements-$1.txt" -r requirements-webhook.txt
}

new_venv() { # FOLDER REQUIREMENTS...
    rm -rf "$1"
    python3 -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"
}

modules() {
    npm install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error
}

if [ "$base" = --provider ]; then
    stamped node_modules/.stamp package.json modules
    exec node openid.mjs "${@:2}"
fi

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
    binding=JSONRPC
    case $name in
    *-rest) binding=HTTP+JSON ;;
    *-grpc) binding=GRPC ;;
    esac
    case $name in
    py1 | py03 | py1-* | py03-*)
        generation=${name#py}
        generation=${generation%-*}
        stamped ".venv-$generation/stamp" "requirements-$generation.txt" venv "$generation"
        A2A_BINDING=$binding client "$name" ".venv-$generation/bin/python" "py$generation.py"
        ;;
    grpc)
        stamped .venv-grpc/stamp requirements-grpc.txt venv grpc
        client grpc .venv-grpc/bin/python grpc_reflect.py
        ;;
    adk)
        stamped .venv-adk/stamp requirements-adk.txt venv adk
        client adk .venv-adk/bin/python adk.py
        ;;
    fasta2a)
        stamped .venv-fasta2a/stamp requirements-fasta2a.txt venv fasta2a
        client fasta2a .venv-fasta2a/bin/python fasta2a_client.py
        ;;
    signed)
        stamped .venv-signed/stamp requirements-signed.txt venv signed
        client signed .venv-signed/bin/python signed.py
        ;;
    ws)
        stamped .venv-ws/stamp requirements-ws.txt venv ws
        client ws .venv-ws/bin/python ws.py
        ;;
    traces)
        stamped .venv-traces/stamp requirements-traces.txt venv traces
        client traces .venv-traces/bin/python traces.py
        ;;
    metrics)
        stamped .venv-metrics/stamp requirements-metrics.txt venv metrics
        client metrics .venv-metrics/bin/python metrics.py
        ;;
    callers-py*)
        generation=${name#callers-py}
        generation=${generation%-*}
        stamped ".venv-$generation/stamp" "requirements-$generation.txt" venv "$generation"
        A2A_BINDING=$binding client "$name" ".venv-$generation/bin/python" "callers$generation.py"
        ;;
    webhooks-py*)
        generation=${name#webhooks-py}
        generation=${generation%-*}
        # The SDK, and the libraries that verify posts.
        stamped ".venv-webhook-$generation/stamp" "requirements-$generation.txt" \
            venv_webhook "$generation"
        A2A_BINDING=$binding client "$name" ".venv-webhook-$generation/bin/python" \
            "webhooks$generation.py"
        ;;
    webhooks-js*)
        stamped node_modules/.stamp package.json modules
        generation=${name#webhooks-js}
        A2A_BINDING=$binding client "$name" node "webhooks${generation%-*}.mjs"
        ;;
    callers-js*)
        stamped node_modules/.stamp package.json modules
        name=${name#callers-js}
        A2A_BINDING=$binding client "callers-js$name" node "callers${name%-*}.mjs"
        ;;
    browser | report)
        stamped node_modules/.stamp package.json modules
        client "$name" node "$name.mjs"
        ;;
    js1 | js03 | js1-* | js03-*)
        stamped node_modules/.stamp package.json modules
        A2A_BINDING=$binding client "$name" node "${name%-*}.mjs"
        ;;
    *)
        echo "unknown client $name" >&2
        exit 2
        ;;
    esac
done
echo "clients: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
