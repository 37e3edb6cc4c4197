"""Requests while they are answered; and who looks on, which is none unless a test does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from aiohttp import web

from palaver.late import dataclass

from .grammar import ModelScript
from .requests import Chat


class RefusedRequest(Exception):
    """The 400 of a provider, `body` and all; `why` in a word."""

    def __init__(self, body: bytes, why: str = "unchanged") -> None:
        super().__init__("refused")
        self.body = body
        self.why = why


@dataclass(slots=True)
class Exchange:
    """A request, and what has become of it so far. `…_at` are UTC epoch seconds.

    n: number of the request, from 1.
    attempt: which try of the same (run, model, messages) this is, from 1.
    outcome: open | answered | fault:<name> | refused:<why> | disconnected | stopped (the server was) | failed (a
        defect of the server).
    chunks_sent: SSE events sent, `[DONE]` not counted.
    """

    n: int
    attempt: int
    fault: str | None = None
    status: int | None = None
    outcome: str = "open"
    first_byte_at: float | None = None
    ended_at: float | None = None
    closed_by_client_at: float | None = None
    chunks_sent: int = 0


class Exchanges:
    """All of a server: they are numbered, and tries of the same request are counted."""

    def __init__(self) -> None:
        self.last = 0
        self.tries: Counter[tuple[str, str, str]] = Counter()

    def begin(self, run: str | None, chat: Chat | None) -> Exchange:
        """One more; without a chat if it cannot be read."""
        self.last += 1
        key = (run or "", chat.model if chat else "", chat.digest if chat else "")
        self.tries[key] += 1
        return Exchange(self.last, self.tries[key])


class Observer(Protocol):
    """Looks on: judges what is asked, and keeps what became of it."""

    def judge(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """See a request to an API before it is read. Raises InvalidRequest for what a real provider refuses."""

    def check(self, path: str, script: ModelScript, chat: Chat) -> None:
        """See what its history brings back of what the provider had made. Raises RefusedRequest if that is not
        enough."""

    def begun(self, exchange: Exchange, request: web.BaseRequest, chat: Chat | None, at: tuple[float, float]) -> None:
        """See a request that is about to be answered. It arrived `at` this time, and on the monotonic clock."""

    def ended(self, exchange: Exchange) -> None:
        """See what became of it."""


class Unobserved:
    """Takes everything, and keeps nothing."""

    def judge(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """It will do."""

    def check(self, path: str, script: ModelScript, chat: Chat) -> None:
        """It will do."""

    def begun(self, exchange: Exchange, request: web.BaseRequest, chat: Chat | None, at: tuple[float, float]) -> None:
        """Let it go."""

    def ended(self, exchange: Exchange) -> None:
        """Let it go."""
