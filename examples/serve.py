"""The server of an example's page: ``python examples/serve.py ai-sdk``, then open what it prints.

It starts a Palaver of its own, unless PALAVER_URL names one; that one has to name this page's origin in
PALAVER_CORS_ORIGINS, and PALAVER_API_KEY is a key for it. The key stays here: the page gets tokens, which live for
minutes and open its one conversation. A page that is built needs Node.js 20 or newer.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
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
COLOUR = {"name": "pick_colour", "description": "Ask the person for a colour."}
APPROVED = {"tools": ["calculator"], "approvals": {"require": "always"}}
AGENTS: dict[str, dict[str, object]] = {
    "ag-ui": {"model": "fake/tool-2+use-each+rate-5", **APPROVED},
    "ai-sdk": {"model": "fake/tool-2+use-each+rate-5", **APPROVED, "client_tools": [COLOUR]},
    "plain-fetch": {"model": "fake/tool-1+rate-5", **APPROVED},
}
"""The agent of each page: it calls the calculator, which needs an approval, has the person pick a colour where
the page has that tool, and then answers, five words a second."""
STARTING = 60
"""Seconds that a Palaver may take to start."""


def expect_free(port: int, variable: str) -> None:
    """End with a sentence if something listens on a port already."""
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            sys.exit(f"port {port} is in use: stop what listens there, or set {variable} to another port")


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
    port = int(os.environ.get("PALAVER_API_PORT", "8080"))
    expect_free(port, "PALAVER_API_PORT")  # A Palaver there would answer in the place of the page's own.
    url = f"http://{HOST}:{port}"
    started = subprocess.Popen([sys.executable, "-m", "palaver.cli", "up"], env=environment)
    try:
        palaver = Palaver(url, key)
        until = time.monotonic() + STARTING
        while True:
            try:
                palaver.queues()
                break
            except PalaverError:
                if started.poll() is not None:
                    sys.exit(1)  # It has said why.
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
        yield palaver
    finally:
        started.send_signal(signal.SIGINT)
        started.wait()


def files(folder: Path) -> dict[str, tuple[str, bytes]]:
    """What a page consists of, by path; its script is built first, if it has one that is built."""
    served = {
        "/": ("text/html; charset=utf-8", (folder / "index.html").read_bytes()),
        "/page.css": ("text/css", (HERE / "page.css").read_bytes()),
    }
    if (folder / "package.json").exists():
        npm = shutil.which("npm")
        if npm is None:
            sys.exit(f"{folder.name} needs Node.js 20 or newer, with npm: install it, or try the example plain-fetch")
        for step in ("ci --ignore-scripts --no-audit --no-fund --loglevel=error", "run --silent build"):
            subprocess.run([npm, *step.split()], cwd=folder, check=True)
        served["/page.js"] = ("text/javascript", (folder / "dist" / "page.js").read_bytes())
    return served


def server(palaver: Palaver, agent: str, served: dict[str, tuple[str, bytes]]) -> ThreadingHTTPServer:
    """The server of the page, and of tokens for it."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = served.get(self.path.partition("?")[0])
            if found is None:
                self.send_error(404)
                return
            self.answer(*found)

        def do_POST(self) -> None:
            """A token for the conversation in the path; without one a new conversation. An application of yours looks
            here whether its user may have that conversation, and says as ``subject`` who it is."""
            try:
                conversation = self.path.removeprefix("/tokens/") or palaver.create_conversation(agent=agent).id
                token = palaver.create_token(
                    conversation=conversation,
                    scopes=("runs:submit", "runs:read", "runs:act", "actions:approve"),
                    subject="visitor",
                )
            except PalaverError as error:
                self.send_error(502, explain=str(error))
                return
            made = {"url": palaver.base_url, "agent": agent, "conversation": conversation, "token": token.token}
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


def main(name: str) -> None:
    """Serve a page until Ctrl-C."""
    expect_free(PORT, "PAGE_PORT")
    served = files(HERE / name)
    with a_palaver() as palaver:
        agent = palaver.put_agent(f"example-{name}", AGENTS[name]).name
        with server(palaver, agent, served) as pages, suppress(KeyboardInterrupt):
            print(f"open {ORIGIN}", flush=True)
            pages.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] not in [[name] for name in AGENTS]:
        sys.exit(f"name one of the examples: {', '.join(AGENTS)}")
    main(sys.argv[1])
