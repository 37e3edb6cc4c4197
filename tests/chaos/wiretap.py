"""Listens in on what Palaver and a provider say to each other, and judges it byte for byte."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from aiohttp import web

from tests.chaos.kept import kept
from tests.process.relay import Relay

_MARK: Final = b',"cache_control":{"type":"ephemeral"}'
"""A prompt-cache breakpoint: it moves on with each request."""


@dataclass
class Exchange:
    """A request, and its answer as far as that came."""

    path: str
    step: int
    attempt: int
    asked: bytes
    """Without breakpoints."""
    answer: bytearray = field(default_factory=bytearray)


class Wiretap(Relay):
    """Passes everything on, and remembers it."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self._runs: defaultdict[str, list[Exchange]] = defaultdict(list)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        exchange = self.begin(request.path, request.headers["x-request-id"], body)
        return await self._pass_on(request, body, exchange.answer.extend)

    def begin(self, path: str, request_id: str, body: bytes) -> Exchange:
        """Remember a request, whose answer follows."""
        run_id, step, attempt = request_id.split(":")
        exchange = Exchange(path, int(step), int(attempt), body.replace(_MARK, b""))
        self._runs[run_id].append(exchange)
        return exchange

    def check(self, steered: Container[str] = ()) -> Counter[str]:
        """What was asked again was asked with the same bytes, what was asked later with the same and more behind them,
        and in it is, as it came, all that the provider wants back. How often each of it was looked at, by path.

        Of runs that were `steered`, what is asked again may have more behind it, too.
        """
        counts: Counter[str] = Counter()
        for run_id, exchanges in self._runs.items():
            exchanges.sort(key=lambda each: (each.step, each.attempt))
            counts.update(_grow(run_id, exchanges, steered=run_id in steered))
            counts.update(_come_back(run_id, exchanges))
        self._runs.clear()
        return counts


def _grow(run_id: str, exchanges: Sequence[Exchange], *, steered: bool) -> Iterator[str]:
    for before, after in pairwise(exchanges):
        again = before.step == after.step
        if again and not steered:
            right = after.asked == before.asked
        else:
            right = after.asked.startswith(before.asked.rstrip(b"]}"))
        assert right, f"{run_id}:\n{before.asked!r}\n{after.asked!r}"
        yield f"{before.path} asked {'again' if again else 'on'}"


def _come_back(run_id: str, exchanges: Sequence[Exchange]) -> Iterator[str]:
    # By step: what is kept is the answer to its newest attempt, which may have been asked with more behind it.
    brought: dict[int, Counter[str]] = {}
    for exchange in exchanges:
        found = kept(exchange.path, exchange.answer.decode())
        if found is not None:
            brought[exchange.step] = found
    for exchange in exchanges:
        asked = exchange.asked.decode()
        due = sum((brought[step] for step in range(1, exchange.step)), Counter[str]())
        for text, count in due.items():
            assert asked.count(text) == count, f"{run_id}/{exchange.step}: {text} is not there as it came\n{asked}"
            yield f"{exchange.path} sent back"
