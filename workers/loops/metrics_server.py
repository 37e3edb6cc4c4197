"""Answers ``GET /metrics`` of a worker: what this process has seen.

Threads of its own, so that a worker that is busy answers as well. A few questions at a time, each within five seconds
in all: a slow client keeps no other from an answer for longer.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET6, SHUT_RDWR, socket
from socketserver import ThreadingMixIn
from typing import Any

from palaver.config.exits import EX_UNAVAILABLE, refuse
from palaver.telemetry.exposition import MEDIA_TYPE

log = logging.getLogger("palaver.workers.metrics")

_PATIENCE = 5.0
"""Seconds for a whole question, and for the answer to be taken."""
_AT_ONCE = 8
"""Questions that are answered at a time. Usually it is one scraper that asks."""


class MetricsServer(ThreadingMixIn, HTTPServer):
    """Listens at once; ends with the process."""

    request_queue_size = 16
    daemon_threads = True

    def __init__(self, host: str, port: int, exposed: Callable[[], str]) -> None:
        """Raise SystemExit, with a sentence, if it cannot be listened on."""
        if ":" in host:
            self.address_family = AF_INET6
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        try:
            super().__init__((host, port), _handler(exposed))
        except OSError as error:
            how = "each worker on a machine needs a PALAVER_METRICS_PORT of its own"
            refuse(f"cannot serve metrics on {host}:{port} ({error.strerror}): {how}", EX_UNAVAILABLE)
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, once one is free."""
        self._free.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and break off after ``_PATIENCE`` in all: the timeout of a socket is one for each read."""
        deadline = threading.Timer(_PATIENCE, _break_off, (request,))
        deadline.daemon = True
        try:
            deadline.start()
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """The client has gone, or asked nonsense."""
        log.debug("no answer to %s", client_address, exc_info=True)


def _break_off(connection: socket) -> None:
    with contextlib.suppress(OSError):  # it has gone by itself
        connection.shutdown(SHUT_RDWR)


def _handler(exposed: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = exposed().encode()
            self.send_response(200)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
