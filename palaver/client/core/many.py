"""Many runs at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal

from palaver.client import answers, controls, requests
from palaver.client.answers import BulkResult
from palaver.client.core.base import Base
from palaver.client.flow import Flow
from palaver.models import CancelMode

_AT_ONCE: Final = 100
"""Runs of one request: the API names so many, and needs a few seconds for them at most."""


class Many(Base):
    """All runs that a filter admits."""

    __slots__ = ()

    def bulk(
        self,
        action: Literal["cancel", "retry", "delete"],
        *,
        status: str | Iterable[str] | None = None,
        conversation_id: str | None = None,
        tag: str | None = None,
        agent: str | None = None,
        error_class: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        older_than: float | None = None,
        all: bool = False,
        mode: CancelMode | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Flow[BulkResult]:
        """Cancel, retry or delete every run that fits all that is given; returns once all were looked at.

        ``agent`` is an agent's name, ``older_than`` the seconds since a run was submitted. Every run there is needs
        ``all=True`` in the place of a filter. ``mode`` and ``reason`` go with ``cancel``. With ``dry_run`` nothing
        is done: the result says to which runs it would be. What is refused for a run is counted, not raised.

        Raises:
            Unprocessable: no filter and not ``all``, or both.
            APIError, ConnectionFailed: not all were looked at. Asking again does the rest.
            ValueError: a time without a zone, or an empty ``status``.
        """
        wanted = requests.run_filter(
            status=status,
            conversation_id=conversation_id,
            tag=tag,
            agent=agent,
            error_class=error_class,
            created_after=created_after,
            created_before=created_before,
        )
        if older_than is not None:
            wanted["older_than"] = older_than
        total, cursor = BulkResult(), None
        while True:
            body = {
                "action": action,
                "filter": wanted or None,
                "all": all or None,
                "mode": mode,
                "reason": reason,
                "dry_run": dry_run,
                "limit": _AT_ONCE,
                "cursor": cursor,
            }
            done, cursor = answers.bulk_of((yield from self._call(controls.act_on_runs(body))))
            total += done
            if cursor is None:
                return total
