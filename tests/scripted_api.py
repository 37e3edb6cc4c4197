"""A small HTTP server in a thread that answers as a test says: errors, silence, streams that break off."""

from __future__ import annotations

import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from palaver.events import EVENTS, EventKind

RUN_ID = "run_00" + "a" * 26
CONVERSATION_ID = "conv_00" + "b" * 26
AT = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """How to answer one request."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes, ...] | None = None
    """Sent one by one, chunked, in place of the body."""
    cut: bool = False
    """Close the connection in the middle (of the pieces) or before the answer (without any)."""
    hang: bool = False
    """Say nothing more until the server closes."""
    before: Callable[[], object] | None = None


def answer(body: Any, status: int = 200, **headers: str) -> Reply:
    """JSON."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/json", **named})


def problem(
    status: int,
    code: str,
    detail: str = "It cannot be.",
    errors: Any = (),
    *,
    run_id: str | None = None,
    pending_actions: Any = None,
    **headers: str,
) -> Reply:
    """What the API answers when it refuses."""
    way = {"run_id": run_id, "pending_actions": pending_actions}
    body = {
        "type": f"/errors/{code}",
        "title": "Title",
        "status": status,
        "detail": detail,
        "code": code,
        "errors": list(errors),
        "request_id": "req_1",
        **{name: value for name, value in way.items() if value is not None},
    }
    return answer(body, status, **headers)


def stream(*pieces: bytes, cut: bool = False, hang: bool = False) -> Reply:
    """Server-sent events."""
    return Reply(headers={"Content-Type": "text/event-stream"}, pieces=pieces, cut=cut, hang=hang)


_OF_A_STEP: Mapping[str, Any] = {"step": "1", "attempt": 1}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "run.created": {"conversation_id": CONVERSATION_ID},
    "run.finished": {"status": "completed", "stop_reason": "end_turn", "error": None},
    "run.cancelling": {"mode": "now", "by": None, "reason": None},
    "run.waiting": {"step": "1", "reason": "provider_cooldown", "code": "cooldown", "delay": 1.0},
    "run.retrying": {**_OF_A_STEP, "delay": 1.0, "fallback": False},
    "step.started": {**_OF_A_STEP, "worker": "w1"},
    "step.lost": {**_OF_A_STEP, "worker": "w1"},
    "message.delta": _OF_A_STEP,
    "message.discarded": _OF_A_STEP,
    "tool.finished": {"step": "1/c1"},
    "tool.progress": {**_OF_A_STEP, "step": "1/c1", "call_id": "c1", "tool": "calculator", "fraction": None},
    "conversation.condensed": {"step": "1", "summary": "so far", "through": 3},
    "action.required": {"step": "1/c1"},
    "action.resolved": {"action_id": "act_1", "call_id": "call_1", "decision": "approve"},
}
"""What an event of a kind says where a test does not care."""


def frame(seq: int, kind: str, **data: Any) -> bytes:
    """One event as the API writes it; not one that it never writes."""
    fields = {"run_id": RUN_ID, "seq": seq, "at": AT, **_DEFAULTS.get(kind, {}), **data}
    EVENTS[kind].model_validate_json(json.dumps({"type": kind, **fields}), extra="forbid")
    return newer_frame(**{"kind": kind, **fields})


def newer_frame(seq: int, kind: str, **data: Any) -> bytes:
    """An event as a newer API may write it: of any kind, and with anything in it."""
    number = "" if kind.startswith("stream.") or kind == "conversation.deleted" else f"id: {seq}\n"
    text = json.dumps({"type": kind, "run_id": RUN_ID, "seq": seq, "at": AT, **data})
    return f"{number}event: {kind}\ndata: {text}\n\n".encode()


def placed_frame(position: int, seq: int, kind: str, **data: Any) -> bytes:
    """One event of a conversation as the API writes it."""
    text = frame(seq, kind, **data, position=position)
    fleeting = kind not in {each.value for each in EventKind if each.durable}
    return text.replace(b"id: %d\n" % seq, b"id: %d.%d\n" % (position, seq) if fleeting else b"id: %d\n" % position)


def conversation_object(**changes: Any) -> dict[str, Any]:
    """A conversation on the wire."""
    return {
        "id": CONVERSATION_ID,
        "title": None,
        "status": "idle",
        "agent": None,
        "metadata": {},
        "tags": [],
        "created_at": AT,
        "updated_at": AT,
        "revision": 0,
        "entries": 0,
        "active_run": None,
        "queued_runs": [],
        "last_outcome": None,
        **changes,
    }


def run_object(status: str = "running", **changes: Any) -> dict[str, Any]:
    """A run on the wire."""
    return {
        "id": RUN_ID,
        "conversation_id": CONVERSATION_ID,
        "status": status,
        "stop_reason": None,
        "waiting": None,
        "agent": {"model": "fake/echo", "instructions": "", "tools": ["calculator"], "max_steps": 100},
        "model": "fake/echo",
        "step": 1,
        "attempt": 1,
        "output": None,
        "error": None,
        "cancel": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, "model_calls": 1, "tool_calls": 0},
        "times": {"created_at": AT, "started_at": AT, "ended_at": None, "deadline": "2026-01-02T00:00:00Z"},
        "last_event_id": 0,
        "metadata": {},
        "tags": [],
        "links": {"self": "/a", "events": "/b", "conversation": "/c"},
        **changes,
    }


def action_object(number: int = 1, kind: str = "approval", tool: str = "send", **changes: Any) -> dict[str, Any]:
    """A pending action on the wire."""
    return {
        "id": f"act_{number}",
        "type": kind,
        "tool": tool,
        "call_id": f"call_{number}",
        "arguments": '{"to": "bob"}',
        "digest": f"{number}" * 64,
        "expires_at": "2026-01-02T00:00:00Z",
        **changes,
    }


def model_object(model: str, **changes: Any) -> dict[str, Any]:
    """A model on the wire; a newer API says more of it."""
    provider, _, name = model.partition("/")
    return {
        "id": model,
        "provider": provider,
        "name": name,
        "protocol": "chat_completions",
        "callable": True,
        "cooling_until": None,
        "max_in_flight": None,
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "price": {"input": 2.0, "output": 8.0, "of_newer_kind": 1},
        "newer": [],
        **changes,
    }


def error_object(error_class: str, **changes: Any) -> dict[str, Any]:
    """An error on the wire."""
    return {
        "class": error_class,
        "code": error_class,
        "message": "It failed.",
        "source": "model",
        "retryable": False,
        "recoverable": False,
        "step": "1",
        "attempt": 1,
        "provider": None,
        "user_action": "none",
        **changes,
    }


COMPLETED = run_object("completed", stop_reason="end_turn", output="four")
FAILURE = error_object("authentication", code="fake.invalid_api_key", message="The key is not accepted.")
FAILED = run_object("failed", stop_reason="error", error={**FAILURE, "user_action": "settings"})


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class ScriptedAPI:
    """Answers each route with its replies in order, the last one again and again; other routes with 404."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.closing = threading.Event()
        self._replies: defaultdict[tuple[str, str], deque[Reply]] = defaultdict(deque)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def on(self, method: str, path: str, *replies: Reply) -> None:
        """Answer ``method path`` so from now on."""
        self._replies[method, path] = deque(replies)

    def asked(self, method: str, path: str) -> list[Seen]:
        """The requests to a route so far."""
        return [seen for seen in self.seen if (seen.method, seen.path) == (method, path)]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        replies = self._replies[seen.method, seen.path]
        if not replies:
            return problem(404, "not_found", "There is no such run.")
        return replies.popleft() if len(replies) > 1 else replies[0]

    def _handler(api: ScriptedAPI) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def do_PUT(self) -> None:
                self._answer()

            def do_PATCH(self) -> None:
                self._answer()

            def do_DELETE(self) -> None:
                self._answer()

            def _answer(self) -> None:
                url = urlsplit(self.path)
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): text for name, text in self.headers.items()}
                body = json.loads(raw) if raw else None
                reply = api._take(Seen(self.command, url.path, dict(parse_qsl(url.query)), headers, body))
                if reply.before is not None:
                    reply.before()
                try:
                    self._send(reply)
                except OSError:
                    self.close_connection = True

            def _send(self, reply: Reply) -> None:
                if reply.pieces is None and (reply.cut or reply.hang):
                    if reply.hang:
                        api.closing.wait()
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, text in reply.headers.items():
                    self.send_header(name, text)
                if reply.pieces is None:
                    if reply.status != 204:
                        self.send_header("Content-Length", str(len(reply.body)))
                    self.end_headers()
                    self.wfile.write(reply.body)
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in filter(None, reply.pieces):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    self.wfile.flush()
                if reply.hang:
                    api.closing.wait()
                if reply.cut or reply.hang:
                    self.close_connection = True
                else:
                    self.wfile.write(b"0\r\n\r\n")

        return Handler
