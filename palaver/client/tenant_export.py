"""A cursor in the export of a tenant that lasts over as many connections as it takes. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from palaver.client import backoff
from palaver.client.answers import MAX_ANSWER, Response, unexpected
from palaver.client.errors import ClientError, ConnectionFailed
from palaver.client.requests import tenants
from palaver.client.requests.request import Request


class ExportCursor:
    """A place in the lines of an export: behind the last whole one that came."""

    def __init__(self, url: str, tenant: str, cursor: str | None) -> None:
        self.finished = False
        """True behind the line that counts the others."""
        self._url = url
        self._tenant = tenant
        self._cursor = cursor
        self._failures = 0
        self._partial = bytearray()
        self._head = Response(0, {})

    @property
    def request(self) -> Request:
        """For the lines that follow."""
        return tenants.export_tenant(self._tenant, self._cursor)

    def connected(self, head: Response) -> None:
        """A connection answered with ``head``.

        Raises:
            APIError: that is no export.
        """
        self._head = head
        self._partial.clear()
        if not head.headers.get("content-type", "").startswith("text/x-ndjson"):
            raise unexpected(head)

    def read(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """The lines that ``chunk`` completes.

        Raises:
            APIError: they are no lines of an export, or there is no end to one.
        """
        *whole, rest = (self._partial + chunk).split(b"\n")
        self._partial = rest
        if len(rest) > MAX_ANSWER:
            raise unexpected(self._head)
        for line in whole:
            entry = self._entry(line)
            self._failures = 0
            self.finished = entry["kind"] == "end"
            self._cursor = entry.get("cursor", self._cursor)
            yield entry

    def _entry(self, line: bytearray) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError:
            raise unexpected(self._head) from None
        if not (isinstance(entry, dict) and "kind" in entry):
            raise unexpected(self._head)
        return entry

    def pause(self, error: ClientError | None) -> float:
        """Seconds to wait before the next connection; ``error`` ended the last one, or prevented it.

        Raises:
            ClientError: that will not pass, or connections have ended in a row without a whole line.
        """
        self._failures += 1
        failed = error or ConnectionFailed(self._url, f"the export of {self._tenant} broke off")
        if self._failures > backoff.RETRIES:
            raise failed
        return backoff.bearable(self._failures, failed)
