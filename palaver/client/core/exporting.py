"""Everything that is known of runs and conversations, as records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from palaver.client import answers, requests
from palaver.client.core.base import Base
from palaver.client.core.reading import PAGE
from palaver.client.errors import NotFound
from palaver.client.exported import Exported, record
from palaver.client.flow import Emit, Request, Stream
from palaver.lifecycle import RunStatus

_ENDED: Final = tuple(status for status in RunStatus if status.terminal)
_PASSING: Final = "message.delta"
"""Its text is in the messages, and it is the one kind of event that there may be thousands of."""


class Exporting(Base):
    """What there is, to be kept elsewhere."""

    __slots__ = ()

    def export(
        self,
        *ids: str,
        status: str | Iterable[str] | None = None,
        conversation_id: str | None = None,
        tag: str | None = None,
        agent: str | None = None,
        error_class: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        exported: Exported | None = None,
    ) -> Stream[dict[str, Any]]:
        """Records of the runs and conversations with these ids, or of all runs that have ended and fit what is given.

        A run has several records: a ``message`` for each of its conversation's that was not there yet, the
        ``conversation``, an ``event`` for each of its events but token deltas, and last the ``run``: once that is
        there, so is all the rest. What is in ``exported`` is left out, and what was taken is added to it. So is a run
        left out that is deleted meanwhile, or whose retention passes.

        Raises:
            NotFound: an id is of nothing that is there (any more).
            APIError, ConnectionFailed: not everything was brought. Asking again with ``exported`` brings the rest.
            ValueError: ids together with filters, a time without a zone, or an empty ``status``.
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
        if ids and wanted:
            raise ValueError("name runs and conversations, or give a filter, not both")
        known = Exported() if exported is None else exported
        if not ids:
            yield from self._export_all({"status": _ENDED, **wanted}, known)
        for each in ids:
            if each.startswith("conv_"):
                yield from self._export_conversation(each, known)
                yield from self._export_all({"conversation_id": each}, known)
            else:
                response = yield from self._call(requests.get_run(each))
                answers.run_of(response)
                yield from self._export_run(answers.object_of(response), known)

    def _export_all(self, wanted: dict[str, Any], known: Exported) -> Stream[dict[str, Any]]:
        cursor: str | None = None
        while True:
            response = yield from self._call(requests.list_runs(wanted, PAGE, cursor))
            page = answers.page_of(response)
            # As they came: a newer API may say more of them than this version knows.
            for run, _ in zip(page.data, answers.runs_of(page, response), strict=True):
                try:
                    yield from self._export_run(run, known)
                except NotFound:
                    continue
            cursor = page.cursor
            if cursor is None:
                return

    def _export_run(self, run: dict[str, Any], known: Exported) -> Stream[dict[str, Any]]:
        run_id = run["id"]
        if run_id in known:
            return
        yield from self._export_conversation(run["conversation_id"], known)
        yield from self._pages(
            lambda position: requests.get_events(run_id, position),
            0,
            lambda event: None if event["type"] == _PASSING else record("event", event=event),
            known,
        )
        yield from _emit(record("run", run=run), known)

    def _export_conversation(self, conversation_id: str, known: Exported) -> Stream[dict[str, Any]]:
        yield from self._pages(
            lambda position: requests.get_messages(conversation_id, position, 200),
            known.position(conversation_id),
            lambda message: record("message", conversation_id=conversation_id, message=message),
            known,
        )
        found = answers.object_of((yield from self._call(requests.get_conversation(conversation_id))))
        yield from _emit(record("conversation", conversation=found), known)

    def _pages(
        self,
        request: Callable[[int], Request],
        position: int,
        made: Callable[[dict[str, Any]], dict[str, Any] | None],
        known: Exported,
    ) -> Stream[dict[str, Any]]:
        while True:
            page = answers.page_of((yield from self._call(request(position))))
            for item in page.data:
                if (found := made(item)) is not None:
                    yield from _emit(found, known)
            if page.after is None or page.after <= position:
                return
            position = page.after


def _emit(found: dict[str, Any], known: Exported) -> Stream[dict[str, Any]]:
    yield Emit(found)
    # Whoever iterates has come back for more: this one is taken.
    known.add(found)
