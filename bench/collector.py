"""`python -m bench.collector --port PORT`: takes traces as a collector does, and forgets them."""

from __future__ import annotations

import argparse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from features.stack.ports import HOST


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("--port", type=int, required=True)
    ThreadingHTTPServer((HOST, words.parse_args().port), _Handler).serve_forever()
