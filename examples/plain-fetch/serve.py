"""A page that chats with Palaver by plain `fetch`: ``python examples/plain-fetch/serve.py``, then open what it prints.

It starts a Palaver of its own, unless PALAVER_URL names one; that one has to name this page's origin in
PALAVER_CORS_ORIGINS, and PALAVER_API_KEY is a key for it. The key stays here: the page gets tokens, which live for
minutes and open its one conversation.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from palaver import Palaver, PalaverError

HERE = Path(__file__).parent
HOST, PORT = "127.0.0.1", int(os.environ.get("PAGE_PORT", "3000"))
ORIGIN = f"http://{HOST}:{PORT}"
AGENT = {"model": "fake/tool-1+rate-5", "tools": ["calculator"], "approvals": {"require": "always"}}
"""It calls the calculator once, which somebody has to approve, and then answers, five words a second."""
STARTING = 60
"""Seconds that a Palaver may take to start."""


@contextmanager
def a_palaver() -> Iterator[Palaver]:
    """The Palaver that the environment names, or one that is started for the page and ends with it."""
    if os.environ.get("PALAVER_URL"):
        yield Palaver()
        return
    key = secrets.token_urlsafe(24)
    environment = {
        **os.environ,
        "PALAVER_API_KEYS": key,
        "PALAVER_SECRET_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
        "PALAVER_CORS_ORIGINS": ORIGIN,
    }
    url = f"http://{HOST}:{os.environ.get('PALAVER_API_PORT', '8080')}"
    started = subprocess.Popen([sys.executable, "-m", "palaver.cli", "up"], env=environment)
    try:
        palaver = Palaver(url, key)
        until = time.monotonic() + STARTING
        while True:
            try:
                palaver.queues()
                break
            except PalaverError:
                if started.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.2)
        yield palaver
    finally:
        started.send_signal(signal.SIGINT)
        started.wait()


def server(palaver: Palaver) -> ThreadingHTTPServer:
    """The server of the page, and of tokens for it."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/":
                self.send_error(404)
                return
            self.answer("text/html; charset=utf-8", (HERE / "index.html").read_bytes())

        def do_POST(self) -> None:
            """A token for the conversation in the path; without one a new conversation. An application of yours looks
            here whether its user may have that conversation."""
            scopes = ("runs:submit", "runs:read", "runs:act", "actions:approve")
            try:
                conversation = self.path.removeprefix("/tokens/") or palaver.create_conversation(agent=AGENT).id
                token = palaver.create_token(conversation=conversation, scopes=scopes)
            except PalaverError as error:
                self.send_error(502, explain=str(error))
                return
            made = {"url": palaver.base_url, "conversation": conversation, "token": token.token}
            self.answer("application/json", json.dumps(made).encode())

        def answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: Palaver's own log has the requests that matter."""

    return ThreadingHTTPServer((HOST, PORT), Page)


if __name__ == "__main__":
    with a_palaver() as palaver, server(palaver) as pages:
        print(f"open {ORIGIN}", flush=True)
        with suppress(KeyboardInterrupt):
            pages.serve_forever()
