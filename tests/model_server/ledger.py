"""The ledger: what was asked of the model server and how each request ended, append-only."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from features.fake_provider.exchanges import Exchange, Exchanges

KEEP = 200_000
"""Entries kept in memory, about 200 MB; the file keeps all of them."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One request. `…_at` are UTC epoch seconds; `at_monotonic` is CLOCK_MONOTONIC.

    n: number of the request, from 1.
    at, started_at: when its headers arrived; when it was read and judged.
    first_byte_at: when the first byte of the answer was handed to the socket.
    ended_at: when the server was done with it; None while it is open.
    closed_by_client_at: when the client's disconnect was seen.
    digest: sha256 of the messages, as JSON with sorted keys; those of other APIs as they are in a chat.
    body: sha256 of the bytes of the request.
    turn: user messages so far. call_index: 1 + assistant messages since the last of them.
    tool_results: tool messages since the last user message.
    attempt: which try of the same (run, model, messages) this is, from 1.
    status: the HTTP status answered; None when none was.
    outcome: open | answered | fault:<name> | refused:<why> | disconnected | stopped (the server
        was) | failed (a defect of the server).
    fault: the fault that was played, known from the start.
    chunks_sent: SSE events sent, `[DONE]` not counted.
    breakpoints: indexes of the messages with a prompt-cache breakpoint, one for each.
    last_user: the first 80 characters of the last user text.
    run, idempotency_key, request_id: the headers X-Palaver-Run, Idempotency-Key, X-Request-Id.
    """

    n: int
    at: float
    at_monotonic: float
    model: str
    digest: str
    messages: int
    turn: int
    call_index: int
    attempt: int
    stream: bool
    started_at: float
    last_user: str
    tool_results: int
    run: str | None
    idempotency_key: str | None
    request_id: str | None
    body: str = ""
    breakpoints: Sequence[int] = ()
    fault: str | None = None
    status: int | None = None
    outcome: str = "open"
    first_byte_at: float | None = None
    ended_at: float | None = None
    closed_by_client_at: float | None = None
    chunks_sent: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """A request: how it began, and what has become of it."""

    began: dict[str, Any]
    exchange: Exchange

    def value(self, name: str) -> object:
        """A field of the entry, by name."""
        return self.began[name] if name in self.began else getattr(self.exchange, name)

    def entry(self) -> LedgerEntry:
        return LedgerEntry(**{**asdict(self.exchange), **self.began})


class Ledger:
    """Entries in memory and, when `path` is given, as JSON lines in a file, one write a line.

    The file has a line when a request starts (`"event": "start"`) and one when it ends (`"event": "end"`,
    the same `n`). An existing file is continued: numbers and tries go on from it. Entering the ledger opens
    the file and raises OSError if that fails; leaving it closes the file, and the entries stay readable.
    """

    def __init__(self, exchanges: Exchanges, path: Path | None = None, *, keep: int = KEEP) -> None:
        self._exchanges = exchanges
        self._records: deque[Record] = deque(maxlen=keep)
        self._path = path
        self._file: int | None = None

    def __enter__(self) -> Ledger:
        if self._path is not None:
            torn = self._path.exists() and self._continue(self._path)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            if torn:
                os.write(self._file, b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def open(self, exchange: Exchange, **began: Any) -> None:
        """Enter a request that has arrived."""
        record = Record({"started_at": time.time(), **began}, exchange)
        self._records.append(record)
        if self._file is not None:
            self._write({"event": "start", "n": exchange.n, "attempt": exchange.attempt, **record.began})

    def close(self, exchange: Exchange) -> None:
        """Write the end of a request."""
        if self._file is not None:
            end = {name: value for name, value in asdict(exchange).items() if name != "attempt"}
            self._write({"event": "end", **end})

    def entries(self, *, after: int = 0, limit: int | None = None, **equal: object) -> list[LedgerEntry]:
        """Entries in memory, oldest first: numbers above `after`, at most `limit`, fields equal to `equal`.

        May be called from any thread.
        """
        chosen = (
            record
            for record in self._records.copy()
            if record.exchange.n > after and all(record.value(name) == value for name, value in equal.items())
        )
        return [record.entry() for record in islice(chosen, limit)]

    def forget(self) -> None:
        """Start anew: no entries, no tries. Numbers go on, and the file keeps what it has."""
        self._records.clear()
        self._exchanges.tries.clear()
        if self._file is not None:
            self._write({"event": "cleared", "n": self._exchanges.last})

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            os.write(self._file, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))

    def _continue(self, path: Path) -> bool:
        """Count the tries of an existing file. Returns whether a crash cut its last line short."""
        line = b"\n"
        with path.open("rb") as lines:
            for line in lines:
                try:
                    written = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue
                self._exchanges.last = max(self._exchanges.last, written["n"])
                if written["event"] == "cleared":
                    self._exchanges.tries.clear()
                elif written["event"] == "start":
                    self._exchanges.tries[(written["run"] or "", written["model"], written["digest"])] += 1
        return not line.endswith(b"\n")


def read_ledger(path: Path, begin: int = 0) -> list[LedgerEntry]:
    """The entries of a ledger file, oldest first, whether its server still runs or was killed.

    `begin`: bytes of the file, up to the end of a line, that are left out; what started there is left out with its end.
    Requests without an end line are `open`. Raises OSError if the file cannot be read.
    """
    records: dict[int, LedgerEntry] = {}
    with path.open("rb") as lines:
        lines.seek(begin)
        for line in lines:
            try:
                written = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            event, n = written.pop("event"), written["n"]
            if event == "start":
                records[n] = LedgerEntry(**written)
            elif event == "end" and n in records:
                records[n] = replace(records[n], **written)
    return list(records.values())
