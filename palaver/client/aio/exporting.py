"""Everything that is known of runs and conversations, as records."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from palaver.client.aio.paging import pages
from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import object_of, page_of, run_of, runs_of
from palaver.client.errors import NotFound
from palaver.client.exported import Exported, record
from palaver.client.requests import conversations, runs
from palaver.client.requests.request import Request
from palaver.events import UNDER_WAY
from palaver.schemas.filters import RunFilter
from palaver.vocabulary.lifecycle import RunStatus


async def export(
    transport: ApiTransport, ids: tuple[str, ...], filters: RunFilter, known: Exported
) -> AsyncGenerator[dict[str, Any], None]:
    """Records of what has these ids, or of all runs that have ended and that ``filters`` admits."""
    exporting = _Exporting(transport, known)
    admitted = runs.run_filter(filters)
    if ids and admitted:
        raise ValueError("name runs and conversations, or give a filter, not both")
    if not ids:
        ended = [status.value for status in RunStatus if status.terminal]
        async for entry in exporting.runs({"status": ended, **admitted}):
            yield entry
            known.add(entry)  # the caller has asked for more: this one is taken
    for id in ids:
        async for entry in exporting.one(id):
            yield entry
            known.add(entry)


class _Exporting:
    """Asks for the records that are not ``known`` yet."""

    def __init__(self, transport: ApiTransport, known: Exported) -> None:
        self._transport = transport
        self._known = known

    async def one(self, id: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the records of a run, or of a conversation and its runs."""
        if not id.startswith("conv_"):
            response = await self._transport.call(runs.get_run(id))
            run_of(response)
            async for entry in self._run(object_of(response)):
                yield entry
            return
        async for entry in self._conversation(id):
            yield entry
        async for entry in self.runs({"conversation_id": id}):
            yield entry

    async def runs(self, admitted: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the records of all runs that fit."""
        async with aclosing(pages(self._transport, partial(runs.list_runs, admitted))) as run_pages:
            async for page, response in run_pages:
                # As they came: a newer API may say more of them than this version knows.
                for run, _ in zip(page.data, runs_of(page, response), strict=True):
                    try:
                        async for entry in self._run(run):
                            yield entry
                    except NotFound:
                        continue

    async def _run(self, run: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        run_id = run["id"]
        if run_id in self._known:
            return
        async for entry in self._conversation(run["conversation_id"]):
            yield entry
        async for event in self._pages(lambda position: runs.get_events(run_id, position), 0):
            # The results of these have events of their own, and of no other kinds there may be thousands.
            if event["type"] not in UNDER_WAY:
                yield record("event", event=event)
        yield record("run", run=run)

    async def _conversation(self, conversation_id: str) -> AsyncGenerator[dict[str, Any], None]:
        known = self._known.position(conversation_id)
        messages = self._pages(lambda position: conversations.get_messages(conversation_id, position, 200), known)
        async for message in messages:
            yield record("message", conversation_id=conversation_id, message=message)
        response = await self._transport.call(conversations.get_conversation(conversation_id))
        yield record("conversation", conversation=object_of(response))

    async def _pages(self, request: Callable[[int], Request], position: int) -> AsyncGenerator[dict[str, Any], None]:
        while True:
            page = page_of(await self._transport.call(request(position)))
            for item in page.data:
                yield item
            if page.after is None or page.after <= position:
                return
            position = page.after
