"""Answers ``GET /metrics`` of a worker: what this process has seen.

A thread of its own, so that a worker that is busy answers as well. One question at a time, each within five seconds:
whoever asks slowly keeps others who ask from an answer, and no step from anything.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import AF_INET6

from palaver.exits import EX_UNAVAILABLE, refuse
from palaver.exposition import MEDIA_TYPE

log = logging.getLogger("palaver.workers.metrics")

_PATIENCE = 5.0
"""Seconds for a whole question, and for the answer to be taken."""


class MetricsServer(HTTPServer):
    """Listens at once; ends with the process."""

    request_queue_size = 16

    def __init__(self, host: str, port: int, exposed: Callable[[], str]) -> None:
        """Raise SystemExit, with a sentence, if nobody can listen there."""
        if ":" in host:
            self.address_family = AF_INET6
        try:
            super().__init__((host, port), _handler(exposed))
        except OSError as error:
            how = "each worker on a machine needs a PALAVER_METRICS_PORT of its own"
            refuse(f"cannot serve metrics on {host}:{port} ({error.strerror}): {how}", EX_UNAVAILABLE)
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked has gone, or asked nonsense."""
        log.debug("no answer to %s", client_address, exc_info=True)


def _handler(exposed: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

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
