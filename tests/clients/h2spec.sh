#!/usr/bin/env bash
# The conformance suite of HTTP/2 and HPACK (summerwind/h2spec) against a server, over TLS with
# HTTP/2 only (docs/limits.md):
#   tests/clients/h2spec.sh PEREGRINE FOLDER
# H2SPEC is the suite: its program, or a folder with its source, which is built in FOLDER with
# Debian's packages for Go. No registry has it: without H2SPEC the run is skipped (exit 77).
set -euo pipefail

PEREGRINE=$1
FOLDER=$2
TESTS=146

if [ -z "${H2SPEC:-}" ]; then
    echo "h2spec: left out, since H2SPEC names neither the program nor its source"
    exit 77
fi
mkdir -p "$FOLDER"

# Builds the suite from source, with the versions of its modules that Debian has.
build() {
    if ! command -v go >/dev/null || [ ! -d /usr/share/gocode/src/golang.org/x/net/http2 ]; then
        local root=()
        [ "$(id -u)" = 0 ] || root=(sudo)
        "${root[@]}" apt-get install -y -q --no-install-recommends golang-go \
            golang-golang-x-net-dev golang-github-spf13-cobra-dev golang-github-fatih-color-dev
    fi
    mkdir -p "$FOLDER/go/src/github.com/summerwind"
    ln -sfn "$(realpath "$H2SPEC")" "$FOLDER/go/src/github.com/summerwind/h2spec"
    GO111MODULE=off GOPATH=$(realpath "$FOLDER/go"):/usr/share/gocode \
        go build -o "$FOLDER/h2spec" github.com/summerwind/h2spec/cmd/h2spec
}

suite=$H2SPEC
if [ -d "$H2SPEC" ]; then
    build
    suite=$FOLDER/h2spec
fi

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
    -keyout "$FOLDER/key.pem" -out "$FOLDER/cert.pem" 2>/dev/null
"$PEREGRINE" serve --listen 127.0.0.1:0 --tls-cert "$FOLDER/cert.pem" \
    --tls-key "$FOLDER/key.pem" >"$FOLDER/server.log" 2>&1 &
server=$!
trap 'kill "$server"; wait "$server" || true' EXIT
for _ in $(seq 100); do
    port=$(sed -n 's|.*https://127\.0\.0\.1:\([0-9]*\)/.*|\1|p' "$FOLDER/server.log" | head -n 1)
    [ -z "$port" ] || break
    sleep 0.1
done

# Its cases request a page of the server.
"$suite" --tls --insecure --host 127.0.0.1 --port "$port" --path /.well-known/agent-card.json --timeout 5 \
    >"$FOLDER/h2spec.log" 2>&1 || true
tally=$(grep -E '^[0-9]+ tests, ' "$FOLDER/h2spec.log" || true)
echo "h2spec: ${tally:-no tally}"
if [ "$tally" != "$TESTS tests, $TESTS passed, 0 skipped, 0 failed" ]; then
    sed -n '/^Failures:/,$p' "$FOLDER/h2spec.log"
    exit 1
fi
