"""The model of the first screen of the README: it calls the tool that it is offered, and repeats the result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class _Completions(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a streamed chat completion."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/chat/completions"
        assert self.headers["Authorization"] == "Bearer sk-..."
        chunks: list[dict[str, Any]] = [
            {"delta": _answer(asked), "finish_reason": None},
            {"delta": {}, "finish_reason": "stop"},
        ]
        lines = [json.dumps({"id": "1", "model": asked["model"], "choices": [{"index": 0, **each}]}) for each in chunks]
        body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    last = asked["messages"][-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": last["content"]}
    (number,) = re.findall(r"\d+", last["content"])
    name = asked["tools"][0]["function"]["name"]
    call = {"name": name, "arguments": json.dumps({"number": number})}
    return {"role": "assistant", "tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": call}]}


@contextmanager
def attentive_model() -> Iterator[str]:
    """Its `base_url`, as long as it answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Completions) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()
