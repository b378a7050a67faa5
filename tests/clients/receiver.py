"""A receiver of webhooks on loopback, which verifies and records each post."""

import hashlib
import json
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch
from urllib.parse import urlsplit

from verify_webhook import verify

WAIT_SECONDS = 15
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """Accepts posts at any path; posts at `/secret...` are signed by SECRET, too."""

    def __init__(self, base_url):
        own, self.posts, self.wrong = self, [], []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    own.take(self.path, dict(self.headers), body)
                    status = 204
                except Exception as error:
                    own.wrong.append(f"{self.path}: {error!r}: {dict(self.headers)}")
                    status = 400
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.origin = f"http://localhost:{self.server.server_port}"
        self.jwks = f"http://{urlsplit(base_url).netloc}/.well-known/jwks.json"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, headers, body):
        headers = {name.lower(): value for name, value in headers.items()}
        secret = SECRET if path.startswith("/secret") else None
        claims = verify(headers, body, secret=secret, jwks_url=self.jwks, audience=self.origin)
        content = json.loads(body)
        if claims:
            # Like the receivers of 0.1's sample: over the parsed and rewritten content.
            text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
            if claims["request_body_sha256"] != hashlib.sha256(text.encode()).hexdigest():
                raise ValueError("the content is not as it is written again")
        self.last = (headers, body)
        self.posts.append((path, headers, content, claims))

    def verify_again(self, seconds):
        """Verifies the last post by a clock that is this far ahead."""
        now = time.time() + seconds

        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.fromtimestamp(now, tz)

        with patch("jwt.api_jwt.datetime", Clock), patch("time.time", lambda: now):
            verify(*self.last, jwks_url=self.jwks, audience=self.origin)

    def wait(self, path, is_enough):
        """All posts to a path, with their headers, once there are enough."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            posts = [post[1:] for post in self.posts if post[0] == path]
            if self.wrong:
                raise AssertionError(self.wrong)
            if is_enough(posts):
                return posts
            if time.monotonic() > until:
                raise AssertionError(f"not enough posts to {path}: {posts}")
            time.sleep(0.02)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
