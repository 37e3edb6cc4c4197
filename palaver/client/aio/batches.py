"""Batches: agents over many inputs, and the table of what came of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Unpack

from palaver.client.aio.paging import pages
from palaver.client.aio.transport import ApiTransport
from palaver.client.answers import batch_of, batches_of, results_of
from palaver.client.errors import ClientError
from palaver.client.options import BatchOptions, named_or_wire
from palaver.client.parts import Item, check_number, parts_of
from palaver.client.requests import plans
from palaver.client.requests.request import budget_object
from palaver.schemas.batches import Batch, BatchResult
from palaver.schemas.models import AgentSpec


class AsyncBatches:
    """The methods of the client about batches."""

    _transport: ApiTransport

    async def create_batch(
        self,
        agents: Sequence[AgentSpec | Mapping[str, Any] | str],
        items: Iterable[Item],
        **options: Unpack[BatchOptions],
    ) -> Batch:
        """Run each of the agents on each of the items, of which any number are sent in parts. An item is an input, or
        an object with ``input``, ``id``, ``expected`` and ``metadata``.

        Raises:
            ValueError: these are more items than a batch may have; nothing was sent.
            Conflict: there are too many batches, items or runs.
            APIError, ConnectionFailed: it was not made, or only with some of its items, and a note of the error names
                it; `Unprocessable` names the fields.
        """
        check_number(items)
        parts = parts_of(items)
        first = next(parts, [])
        following = next(parts, None)
        body = {
            "agents": [named_or_wire(each) for each in agents],
            "items": first,
            "complete": following is None,
            "repeats": options.get("repeats"),
            "scorer": named_or_wire(options.get("scorer")),
            "window": options.get("window"),
            "priority": options.get("priority"),
            "budget": budget_object(options.get("budget")),
            "tags": list(options.get("tags") or ()) or None,
            "name": options.get("name"),
        }
        batch = batch_of(await self._transport.call(plans.create_batch(body, options.get("idempotency_key"))))
        offset = len(first)
        while following is not None:
            part, following = following, next(parts, None)
            request = plans.append_items(batch.id, offset, part, complete=following is None)
            try:
                batch = batch_of(await self._transport.call(request))
            except ClientError as error:
                error.add_note(f"{batch.id} has the first {offset:,} items, which run: cancel it, or append the rest.")
                raise
            offset += len(part)
        return batch

    async def batch(self, batch_id: str) -> Batch:
        """The batch, and how far it is.

        Raises:
            NotFound: there is none of that id (any more).
            APIError, ConnectionFailed: it cannot be had.
        """
        return batch_of(await self._transport.call(plans.get_batch(batch_id)))

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """The batches, the newest first, page by page as you iterate.

        Raises:
            APIError, ConnectionFailed: a page cannot be had.
        """
        async with aclosing(pages(self._transport, plans.list_batches)) as batch_pages:
            async for page, response in batch_pages:
                for batch in batches_of(page, response):
                    yield batch

    async def batch_results(self, batch_id: str) -> AsyncGenerator[BatchResult, None]:
        """The results of the runs of a batch that have ended, page by page as you iterate.

        Raises:
            NotFound: there is none of that id (any more).
            APIError, ConnectionFailed: a page cannot be had.
        """
        after: int | None = 0
        while after is not None:
            results, after = results_of(await self._transport.call(plans.get_results(batch_id, after)))
            for result in results:
                yield result

    async def cancel_batch(self, batch_id: str) -> Batch:
        """Begin nothing more of a batch, and cancel what is under way.

        Raises:
            NotFound: there is none of that id (any more).
            APIError, ConnectionFailed: it may go on.
        """
        return batch_of(await self._transport.call(plans.change_batch(batch_id, "cancel")))

    async def retry_batch(self, batch_id: str) -> Batch:
        """Begin again what has failed.

        Raises:
            NotFound: there is none of that id (any more).
            APIError, ConnectionFailed: it may not be begun.
        """
        return batch_of(await self._transport.call(plans.change_batch(batch_id, "retry")))

    async def delete_batch(self, batch_id: str) -> None:
        """Remove a batch that has ended, with its results; its runs stay.

        Raises:
            NotFound: there is none of that id (any more).
            Conflict: it has not ended.
            APIError, ConnectionFailed: it may be there still.
        """
        await self._transport.call(plans.delete_batch(batch_id))
