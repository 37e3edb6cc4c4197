"""Receivers of webhooks beside a cluster: a server with a thread for each request, which answers as the path says."""

from __future__ import annotations

import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LATE = 2.0
_NEVER = 40.0


@dataclass
class Receivers:
    """What came, by path: ``/ok``, ``/late``, ``/never``, ``/500``, ``/410``, ``/redirect``, ``/huge``."""

    port: int = 0
    received: dict[str, list[tuple[dict[str, str], bytes, float]]] = field(default_factory=lambda: defaultdict(list))
    """By path: headers, body, and when."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str) -> str:
        """Where the receiver of that kind is."""
        return f"http://127.0.0.1:{self.port}/{path}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Keep a request."""
        with self.lock:
            self.received[path].append((headers, body, time.time()))

    def events(self, path: str) -> list[tuple[dict[str, str], bytes, float]]:
        """What came there so far."""
        with self.lock:
            return [*self.received[path]]


@contextmanager
def receivers() -> Iterator[Receivers]:
    """Receivers at a free port."""
    kept = Receivers()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Keep it, and answer as the path says."""
            path = self.path.strip("/")
            body = self.rfile.read(int(self.headers["content-length"]))
            kept.take(path, {name.lower(): value for name, value in self.headers.items()}, body)
            try:
                getattr(self, f"_{path}", self._ok)()
            except OSError:
                self.close_connection = True

        def _ok(self) -> None:
            self._say(204)

        def _late(self) -> None:
            kept.closed.wait(_LATE)
            self._say(200)

        def _never(self) -> None:
            kept.closed.wait(_NEVER)

        def _500(self) -> None:
            self._say(500, b"oops")

        def _410(self) -> None:
            self._say(410)

        def _redirect(self) -> None:
            self.send_response(302)
            self.send_header("location", kept.url("elsewhere"))
            self.send_header("content-length", "0")
            self.end_headers()

        def _huge(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(1 << 30))
            self.end_headers()
            for _ in range(1 << 14):
                self.wfile.write(b"x" * (1 << 16))

        def _say(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing: a test says what it wants to see."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128
        address_family = socket.AF_INET

        def handle_error(self, *_: Any) -> None:
            """Nothing: senders are killed."""

    server = Server(("127.0.0.1", 0), Handler)
    kept.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kept
    finally:
        kept.closed.set()
        server.shutdown()
        server.server_close()
