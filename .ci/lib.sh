# Helpers of .ci/run: steps with their logs and tally, packages, servers on loopback.
# shellcheck shell=bash

LOGS=$WORK/log
mkdir -p "$LOGS"
STEPS_PASSED=0 STEPS_FAILED=0 FAILED_NAMES=() STEP_SECONDS=()

# --- Steps ---------------------------------------------------------------------------------------

# Runs a function in a subshell that stops at its first failing command. The output goes to a log
# that is shown when the step fails, or at once with --shown.
step() { # [--shown] FUNCTION WHAT
    local shown=no
    if [ "$1" = --shown ]; then
        shown=yes
        shift
    fi
    local name=$1 what=$2 log="$LOGS/$1.log" began=$SECONDS rc
    wanted "$name" || return 0
    echo "== $name: $what"
    set +e
    if [ $shown = yes ]; then
        (run_step "$name") 2>&1 | tee "$log"
        rc=${PIPESTATUS[0]}
    else
        (run_step "$name") >"$log" 2>&1
        rc=$?
    fi
    set -e
    STEP_SECONDS+=("$((SECONDS - began)) $name")
    if [ "$rc" = 0 ]; then
        STEPS_PASSED=$((STEPS_PASSED + 1))
        [ $shown = yes ] || grep -E '^note: ' "$log" || true
        echo "ok   $name ($((SECONDS - began)) s)"
    else
        STEPS_FAILED=$((STEPS_FAILED + 1))
        FAILED_NAMES+=("$name")
        [ $shown = yes ] || tail -n 120 "$log"
        echo "FAIL $name (exit $rc, $((SECONDS - began)) s)"
    fi
}

run_step() { # FUNCTION
    set -euo pipefail
    trap stop_servers EXIT
    "$1"
}

# A step that runs only when it, or `nightly`, is named on the command line.
nightly_step() { # FUNCTION WHAT
    if is_named "$1" || is_named nightly; then
        local ONLY=()
        step "$@"
    fi
}

# All steps of a landing are wanted unless some are named. Those of `nightly` need two others.
wanted() { # NAME
    [ ${#ONLY[@]} = 0 ] && return 0
    if is_named nightly && [[ $1 == install || $1 == binary ]]; then return 0; fi
    is_named "$1"
}

is_named() { # NAME
    local name
    for name in "${ONLY[@]}"; do [ "$name" = "$1" ] && return 0; done
    return 1
}

# The seconds of each step, the longest first.
seconds_table() {
    echo "seconds by step:"
    printf '%s\n' "${STEP_SECONDS[@]}" | sort -rn | awk '{ printf "%6d  %s\n", $1, $2; sum += $1 }
        END { printf "%6d  all steps\n", sum }'
}

# A line that stays visible although its step succeeds.
note() { echo "note: $*"; }

fail() {
    echo "error: $*"
    exit 1
}

# --- Packages ------------------------------------------------------------------------------------

apt_install() { # PACKAGE...
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

as_root() { # COMMAND...
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

have() { command -v "$1" >/dev/null 2>&1; }

# --- A server of ours ----------------------------------------------------------------------------

SERVER_PID='' SERVER_PORT='' SERVER_LOG=''

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Starts the release binary on a free loopback port, which arguments name as @PORT@, and waits for
# its card.
start_server() { # ARGUMENTS...
    SERVER_PORT=$(free_port)
    SERVER_LOG=$(mktemp "$LOGS/server-XXXXXX.log")
    "$BINARY" serve --listen "127.0.0.1:$SERVER_PORT" "${@//@PORT@/$SERVER_PORT}" >"$SERVER_LOG" 2>&1 &
    SERVER_PID=$!
    local card="http://127.0.0.1:$SERVER_PORT/.well-known/agent-card.json"
    for _ in $(seq 100); do
        if curl --silent --fail --max-time 2 --output /dev/null "$card"; then return 0; fi
        kill -0 "$SERVER_PID" 2>/dev/null || break
        sleep 0.1
    done
    cat "$SERVER_LOG"
    fail "the server did not start"
}

# The server must still run, must not have panicked, and must leave within its grace when asked.
finish_server() {
    kill -0 "$SERVER_PID" 2>/dev/null || fail "the server has died: $(tail -n 20 "$SERVER_LOG")"
    if grep -n panicked "$SERVER_LOG"; then fail "the server panicked"; fi
    kill -TERM "$SERVER_PID"
    local pid=$SERVER_PID rc=0
    for _ in $(seq 300); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$pid" 2>/dev/null; then fail "the server did not leave within 30 s of SIGTERM"; fi
    SERVER_PID=''
    wait "$pid" || rc=$?
    [ "$rc" = 0 ] || fail "the server left with exit code $rc"
    if grep -n panicked "$SERVER_LOG"; then fail "the server panicked"; fi
}

# --- An OpenID provider --------------------------------------------------------------------------

PROVIDER_PID=''

# Installs and starts it at OPENID_ISSUER, on a free loopback port, with a certificate of an
# authority of its own, the file OPENID_CA, and waits for its metadata.
start_provider() {
    local port files=$WORK/provider
    port=$(free_port)
    certify "$files"
    export OPENID_ISSUER=https://127.0.0.1:$port OPENID_CA=$files/ca.pem
    export NODE_EXTRA_CA_CERTS=$OPENID_CA
    tests/clients/run.sh --provider "$port" "$files/cert.pem" "$files/key.pem" &
    PROVIDER_PID=$!
    local metadata=$OPENID_ISSUER/.well-known/openid-configuration
    for _ in $(seq 1200); do
        if curl --silent --fail --max-time 2 --cacert "$OPENID_CA" --output /dev/null \
            "$metadata"; then return 0; fi
        kill -0 "$PROVIDER_PID" 2>/dev/null || break
        sleep 0.1
    done
    fail "the OpenID provider did not start"
}

# Makes an authority, and a certificate for loopback.
certify() { # FOLDER
    local new=(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2)
    mkdir -p "$1"
    "${new[@]}" -keyout "$1/ca-key.pem" -out "$1/ca.pem" -subj "/CN=Authority of a test" \
        -addext keyUsage=critical,keyCertSign
    "${new[@]}" -keyout "$1/key.pem" -out "$1/cert.pem" -subj /CN=127.0.0.1 \
        -CA "$1/ca.pem" -CAkey "$1/ca-key.pem" -addext subjectAltName=IP:127.0.0.1 \
        -addext basicConstraints=critical,CA:FALSE
}

# For the end of a step, whatever happened in it.
stop_servers() {
    local pid
    for pid in $SERVER_PID $PROVIDER_PID; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    SERVER_PID='' PROVIDER_PID=''
}
