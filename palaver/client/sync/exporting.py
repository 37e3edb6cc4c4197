# Generated from palaver/client/aio/exporting.py by `make twin`: change that file, not this one.
"""Everything that is known of runs and conversations, as records."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from palaver.client.answers import object_of, page_of, run_of, runs_of
from palaver.client.errors import NotFound
from palaver.client.exported import Exported, record
from palaver.client.requests import conversations, runs
from palaver.client.requests.request import Request
from palaver.client.sync.paging import pages
from palaver.client.sync.transport import ApiTransport
from palaver.events import UNDER_WAY
from palaver.schemas.filters import RunFilter
from palaver.vocabulary.lifecycle import RunStatus


def export(
    transport: ApiTransport, ids: tuple[str, ...], filters: RunFilter, known: Exported
) -> Generator[dict[str, Any], None, None]:
    """Records of what has these ids, or of all runs that have ended and that ``filters`` admits."""
    exporting = _Exporting(transport, known)
    admitted = runs.run_filter(filters)
    if ids and admitted:
        raise ValueError("name runs and conversations, or give a filter, not both")
    if not ids:
        ended = [status.value for status in RunStatus if status.terminal]
        for entry in exporting.runs({"status": ended, **admitted}):
            yield entry
            known.add(entry)  # whoever iterates has come back for more: this one is taken
    for id in ids:
        for entry in exporting.one(id):
            yield entry
            known.add(entry)


class _Exporting:
    """Asks for the records that are not ``known`` yet."""

    def __init__(self, transport: ApiTransport, known: Exported) -> None:
        self._transport = transport
        self._known = known

    def one(self, id: str) -> Generator[dict[str, Any], None, None]:
        """Yield the records of a run, or of a conversation and its runs."""
        if not id.startswith("conv_"):
            response = self._transport.call(runs.get_run(id))
            run_of(response)
            for entry in self._run(object_of(response)):
                yield entry
            return
        for entry in self._conversation(id):
            yield entry
        for entry in self.runs({"conversation_id": id}):
            yield entry

    def runs(self, admitted: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Yield the records of all runs that fit."""
        with closing(pages(self._transport, partial(runs.list_runs, admitted))) as run_pages:
            for page, response in run_pages:
                # As they came: a newer API may say more of them than this version knows.
                for run, _ in zip(page.data, runs_of(page, response), strict=True):
                    try:
                        yield from self._run(run)
                    except NotFound:
                        continue

    def _run(self, run: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        run_id = run["id"]
        if run_id in self._known:
            return
        yield from self._conversation(run["conversation_id"])
        for event in self._pages(lambda position: runs.get_events(run_id, position), 0):
            # The results of these have events of their own, and of no other kinds there may be thousands.
            if event["type"] not in UNDER_WAY:
                yield record("event", event=event)
        yield record("run", run=run)

    def _conversation(self, conversation_id: str) -> Generator[dict[str, Any], None, None]:
        known = self._known.position(conversation_id)
        messages = self._pages(lambda position: conversations.get_messages(conversation_id, position, 200), known)
        for message in messages:
            yield record("message", conversation_id=conversation_id, message=message)
        response = self._transport.call(conversations.get_conversation(conversation_id))
        yield record("conversation", conversation=object_of(response))

    def _pages(self, request: Callable[[int], Request], position: int) -> Generator[dict[str, Any], None, None]:
        while True:
            page = page_of(self._transport.call(request(position)))
            yield from page.data
            if page.after is None or page.after <= position:
                return
            position = page.after
