"""The server: the fake provider, its judge, and the ledger to read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import orjson
from aiohttp import web

from features.fake_provider.exchanges import Exchanges
from features.fake_provider.server import FakeProvider, json_answer
from features.fake_provider.wire import error
from tests.model_server.judge import Judge
from tests.model_server.ledger import Ledger, LedgerEntry

_PAGE: Final = 1000
"""Ledger entries in a page of GET /ledger unless `limit` says otherwise."""
_FILTERS: Final = frozenset({"model", "run", "outcome", "digest", "fault", "idempotency_key", "request_id"})
"""Entry fields that GET /ledger filters by."""


class ModelServer(FakeProvider):
    """The fake provider with a judge. `ledger` is a file that also gets the ledger.

    Starting raises OSError when the port is taken or the ledger file cannot be opened.
    """

    def __init__(
        self, *, host: str = "127.0.0.1", port: int = 0, api_key: str | None = None, ledger: Path | str | None = None
    ) -> None:
        exchanges = Exchanges()
        self._ledger = Ledger(exchanges, Path(ledger) if ledger is not None else None)
        super().__init__(host=host, port=port, api_key=api_key, observer=Judge(self._ledger), exchanges=exchanges)
        self._open = ExitStack()
        self.routes |= {("GET", "/ledger"): self._page, ("DELETE", "/ledger"): self._forget}

    async def __aenter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(self._ledger)
            await super().__aenter__()
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open:
            await super().__aexit__(kind, error, trace)

    def ledger(self, *, after: int = 0, limit: int | None = None, **equal: object) -> list[LedgerEntry]:
        """Entries so far, oldest first, also after the server stopped: `ledger(run="run_1", outcome="open")`.

        `after` leaves out numbers up to it, `limit` keeps the first so many, any other name is a field of
        the entry and the value it must have. May be called from any thread. Raises AttributeError for
        unknown fields.
        """
        return self._ledger.entries(after=after, limit=limit, **equal)

    def forget(self) -> None:
        """Empty the ledger; tries are counted anew."""
        self._ledger.forget()

    async def _page(self, request: web.BaseRequest) -> web.StreamResponse:
        query = dict(request.query)
        try:
            after, limit = int(query.pop("after", 0)), int(query.pop("limit", _PAGE))
        except ValueError as wrong:
            return json_answer(400, error(str(wrong), "invalid_request_error", None))
        foreign = sorted(query.keys() - _FILTERS)
        if foreign or limit < 1:
            message = f"Filters: after, limit (1 or more), {', '.join(sorted(_FILTERS))}; got {', '.join(foreign)}."
            return json_answer(400, error(message, "invalid_request_error", None))
        entries = self.ledger(after=after, limit=limit + 1, **query)
        page = entries[:limit]
        following = page[-1].n if len(entries) > limit else None
        return json_answer(200, orjson.dumps({"entries": page, "next_after": following}))

    async def _forget(self, request: web.BaseRequest) -> web.StreamResponse:
        self.forget()
        return web.Response(status=204)
