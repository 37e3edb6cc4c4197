"""A log line for each request that changed something, and for exports: the key, the operation, and the run or
conversation.

Submits are not among them: a run says itself who submitted it. With a key of the store, all that changed something is
kept in the store, too, and whatever an operator's key did: what it reads again and again once in ten minutes.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.types import Scope

from palaver.operations import is_kept, keep_act
from palaver.operations.live_keys import key_of_request

from .routes import HandlerRoute

AUDIT: Final = logging.getLogger("palaver.audit")
_WHILE: Final = 600.0
"""Seconds for which the same read with the same key is not kept again."""
_MOST_READS: Final = 10_000
"""Reads that are remembered for that."""
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_present: Final[ContextVar[Audit | None]] = ContextVar("audit", default=None)


def detail(**facts: Any) -> None:
    """Add details of the present request to its line: kinds and counts, never texts of users."""
    audit = _present.get()
    if audit is not None:
        audit.facts.update(facts)


def only_read() -> None:
    """Say that the present request changes nothing, whatever its method: it leaves no more of a trace than a GET."""
    audit = _present.get()
    if audit is not None:
        audit.reads = True


def _first_in_a_while(scope: Scope) -> bool:
    """Tell whether a read is not one that was kept just before: a page asks the same every few seconds for as long as
    a person looks at it, and its reads would push out the acts."""
    read_lately: OrderedDict[tuple[str | None, str, str], float] = scope["app"].state.read_lately
    of_tenant = parse_qs(scope["query_string"].decode("latin-1")).get("tenant", [""])[-1]
    read, now = (key_of_request.get(), scope["path"], of_tenant), time.monotonic()
    if now < read_lately.get(read, now):
        return False
    read_lately[read] = now + _WHILE
    read_lately.move_to_end(read)
    if len(read_lately) > _MOST_READS:
        read_lately.popitem(last=False)
    return True


class Audit:
    """The audit of one request, around the handler of its route."""

    def __init__(self, scope: Scope, route: HandlerRoute) -> None:
        self._scope = scope
        self._operation = route.operation_id
        dialect = scope["state"]["dialect"]
        self._changes = scope["method"] not in READING or self._operation in dialect.audited_reads
        self._unaudited: frozenset[str] | set[str] = dialect.unaudited
        self.facts: Final[dict[str, Any]] = {}
        self.reads = False
        """True if it has turned out to change nothing."""
        _present.set(self)

    async def answered(self, answer: Response) -> None:
        """Write the line of a request that was answered: a refused one has changed nothing."""
        if answer.status_code < 400:
            await self._record(answer.status_code, answer.headers.get("location"))

    async def failed(self) -> None:
        """Write the line of a request whose effect is unknown: the store did not answer."""
        await self._record(None, None)

    async def _record(self, status: int | None, created: str | None) -> None:
        scope = self._scope
        if self.reads and not scope["state"]["caller"].operator:
            return
        about = {name.removesuffix("_id"): str(value) for name, value in scope["path_params"].items()}
        facts = {**about, **self.facts}
        if created is not None:
            facts["created"] = created.rpartition("/")[2]
        client = scope["client"][0] if scope.get("client") else None
        if self._changes and not self.reads and (self.facts or self._operation not in self._unaudited):
            self._write(status, facts, client)
        if is_kept() and (self._changes or _first_in_a_while(scope)):
            backend, caller, request = (
                scope["app"].state.backend,
                scope["state"]["caller"],
                scope["state"]["request_id"],
            )
            await keep_act(backend, caller, self._operation, request, client, status, facts)

    def _write(self, status: int | None, facts: dict[str, Any], client: str | None) -> None:
        scope, state = self._scope, self._scope["state"]
        fields = {
            "operation": self._operation,
            "method": scope["method"],
            **facts,
            "status": "unknown" if status is None else status,
            "key": state["caller"].name,
        }
        if client is not None:
            fields["client"] = client
        line = " ".join(f"{name}={value}" for name, value in fields.items() if name not in {"operation", "key"})
        who = fields["key"] or "-"
        AUDIT.info("%s %s %s request=%s", who, self._operation, line, state["request_id"], extra={"fields": fields})
