"""Batches: made, filled, read, cancelled, retried, removed, and the table of their results."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from secrets import token_hex
from typing import Final

from palaver.errors import FieldError, Refused
from palaver.operations.admission import admit_submission, refuse
from palaver.operations.admission.judging import input_faults, ordered_faults
from palaver.operations.admission.places import below
from palaver.operations.backend import Backend, Caller, within_deadline
from palaver.operations.bearers import bearer_of_order
from palaver.operations.scopes import refuse_held
from palaver.schemas.batches import Batch, BatchItem, BatchResult
from palaver.schemas.models import AgentSpec, Submission
from palaver.vocabulary.limits import count_exceeded, limit_of

from .batches import Batches, BatchOrder
from .bodies import BatchHead, BatchVerb, MoreItems, NewBatch
from .problems import UnknownBatch

_GOING_ON: Final = frozenset({"open", "running", "cancelling"})
_ID: Final = re.compile(r"batch_[0-9a-f]{24}")


async def create_batch(
    backend: Backend, body: NewBatch, caller: Caller, *, key: str | None = None
) -> tuple[Batch, bool]:
    """Make a batch, and say whether there was none. Each agent is checked with the first item, as a submit of now would
    be; with the same ``key`` again it is the same batch.

    Raises:
        InsufficientScope: the caller's key is held to one conversation.
        Refused: everything that is wrong with it.
        StateConflict: ``batches_full``, ``batch_full``, ``tenant_erased``.
        IdempotencyMismatch, NoRoom, NotDurable, StoreUnavailable: it was not made, or not safely.
    """
    request = hashlib.sha256(body.model_dump_json(exclude_defaults=True).encode()).hexdigest() if key else ""
    head = body.head
    order = BatchOrder(head, bearer_of_order(caller), request)
    if len(order.to_json()) > limit_of("batch_head"):
        count_exceeded("batch_head")
        raise Refused.at("/agents", f"with all but the items, have more than {limit_of('batch_head')} bytes, as JSON")
    if body.complete and not body.items:
        raise Refused.at("/items", "has nothing in it, and no more are to come")
    _check_items(body.items)
    await _check_head(head, body.items, backend, caller)
    batch_id = _new_id(caller, key)
    new = await within_deadline(backend.store.part(Batches).create(caller.tenant, batch_id, order))
    await _append(backend, batch_id, order, 0, body.items, caller, complete=body.complete)
    return await read_batch(backend, batch_id, caller), new


async def append_items(backend: Backend, batch_id: str, body: MoreItems, caller: Caller) -> Batch:
    """Append items to a batch. It is judged as the submit of their runs, which are in the name of the caller.

    Raises:
        InsufficientScope: the caller's key is held to one conversation.
        Refused: an item says nothing, or the caller may not submit a run of the batch.
        UnknownBatch, StateConflict: there is none of this id; ``batch_offset``, ``batch_full``.
        NoRoom, NotDurable, StoreUnavailable: they were not appended, or not safely.
    """
    _check_items(body.items)
    order = await _judged(backend, batch_id, body.items, caller)
    await _append(backend, batch_id, order, body.offset, body.items, caller, complete=body.complete)
    return await read_batch(backend, batch_id, caller)


async def read_batch(backend: Backend, batch_id: str, caller: Caller) -> Batch:
    """Return a batch, and how far it is. Raises UnknownBatch."""
    batch = await within_deadline(backend.store.part(Batches).get(caller.tenant, _known(batch_id)))
    return (await within_deadline(backend.catalog.with_waiting([batch], _goes_on)))[0]


async def list_batches(
    backend: Backend, caller: Caller, *, limit: int, cursor: str | None
) -> tuple[list[Batch], str | None]:
    """Return a page of the caller's batches, the newest first. The cursor is the id behind which it begins."""
    if cursor and not _ID.fullmatch(cursor):
        raise Refused("invalid_cursor", "The cursor is not one that a list of batches gave.")
    listed, more = await within_deadline(
        backend.store.part(Batches).listed(caller.tenant, before=cursor or "", limit=limit)
    )
    return await within_deadline(backend.catalog.with_waiting(listed, _goes_on)), more


async def batch_results(
    backend: Backend, batch_id: str, caller: Caller, *, after: int, limit: int
) -> tuple[list[BatchResult], int | None]:
    """Return what came of cells from the number ``after`` on, and where the next page begins. Raises UnknownBatch."""
    reading = backend.store.part(Batches).results(caller.tenant, _known(batch_id), after=after, limit=limit)
    found, behind = await within_deadline(reading)
    return found, None if behind < 0 else behind


async def change_batch(backend: Backend, batch_id: str, verb: BatchVerb, caller: Caller) -> Batch:
    """Cancel a batch, or begin again what has failed: that is judged as the submit of these runs.

    Raises:
        InsufficientScope: the caller's key is held to one conversation.
        Refused: the caller may not submit a run of the batch.
        UnknownBatch, NotDurable, StoreUnavailable: there is none of this id; it may not be done safely.
    """
    if verb == "retry":
        batch = await read_batch(backend, batch_id, caller)
        if batch.state == "failed":
            # What cannot be read is not begun again.
            return batch
        await _judged(backend, batch_id, (), caller)
    changing = backend.store.part(Batches).change(caller.tenant, _known(batch_id), verb, by=caller.identity)
    await within_deadline(changing)
    await backend.wake_planners()
    return await read_batch(backend, batch_id, caller)


async def remove_batch(backend: Backend, batch_id: str, caller: Caller) -> None:
    """Forget a batch that has ended. Its runs stay.

    Raises:
        UnknownBatch, StateConflict: there is none of this id; ``batch_active``.
        NotDurable, StoreUnavailable: it may be there still.
    """
    await within_deadline(backend.store.part(Batches).remove(caller.tenant, _known(batch_id)))


def submission_of(batch_id: str, head: BatchHead, agent: AgentSpec | str, item: BatchItem) -> Submission:
    """Return the body of a run of a batch, which lists find by a tag."""
    return Submission(
        agent=agent,
        input=item.input,
        budget=head.budget,
        priority=head.priority,
        metadata=item.metadata,
        tags=(*head.tags, f"batch:{batch_id}"),
    )


def scoring_of(batch_id: str, head: BatchHead, item: BatchItem, answer: str) -> Submission:
    """Return the body of the run that judges an answer.

    Raises:
        Refused: ``too_long``, with the item and what was expected it is more than an input may have.
    """
    said = item.input if isinstance(item.input, str) else "\n\n".join(message.text for message in item.input)
    parts = {"input": said, "expected": item.expected, "answer": answer}
    text = "\n\n".join(f"<{name}>\n{part}\n</{name}>" for name, part in parts.items() if part is not None)
    if len(text) > limit_of("input_text"):
        count_exceeded("input_text")
        why = f"has, with all that the scorer is told, more than {limit_of('input_text'):,} characters"
        raise Refused.of_faults([FieldError("/input", "too_long", why)])
    return Submission(agent=head.scorer, input=text, priority=head.priority, tags=(*head.tags, f"batch:{batch_id}"))


async def _append(
    backend: Backend,
    batch_id: str,
    order: BatchOrder,
    offset: int,
    items: Sequence[BatchItem],
    caller: Caller,
    *,
    complete: bool,
) -> None:
    append, bearer = backend.store.part(Batches).append, bearer_of_order(caller)
    await within_deadline(append(caller.tenant, batch_id, order, offset, items, complete=complete, bearer=bearer))
    await backend.wake_planners()


def _goes_on(batch: Batch) -> bool:
    return batch.state in _GOING_ON


async def _judged(backend: Backend, batch_id: str, items: Sequence[BatchItem], caller: Caller) -> BatchOrder:
    """Return the order of a batch of which the caller lets runs begin, once that is judged as a submit of these."""
    refuse_held(caller)
    order = await within_deadline(backend.store.part(Batches).order(caller.tenant, _known(batch_id)))
    await _check_head(order.head, items, backend, caller)
    return order


async def _check_head(head: BatchHead, items: Sequence[BatchItem], backend: Backend, caller: Caller) -> None:
    first = items[0] if items else BatchItem(input="?")
    if len(head.tags) == limit_of("tags"):
        raise Refused.at("/tags", f"has {limit_of('tags')} entries: one more is the batch's own")
    for place, agent in enumerate(head.agents):
        refuse(ordered_faults(agent, f"/agents/{place}"))
        with below("", {"/agent": f"/agents/{place}", "/input": "/items/0/input"}):
            await admit_submission(submission_of("", head, agent, first), backend, caller)
    if head.scorer is not None:
        refuse(ordered_faults(head.scorer, "/scorer"))
        with below("", {"/agent": "/scorer", "/input": "/items/0/input"}):
            await admit_submission(scoring_of("", head, first, "?"), backend, caller)


def _check_items(items: Sequence[BatchItem]) -> None:
    for place, item in enumerate(items):
        for fault in input_faults(item.input):
            raise Refused.of_faults([FieldError(f"/items/{place}{fault.pointer}", fault.code, fault.message)])


def _new_id(caller: Caller, key: str | None) -> str:
    if key is None:
        return f"batch_{token_hex(12)}"
    return f"batch_{hashlib.sha256(repr((caller.tenant, caller.name, key)).encode()).hexdigest()[:24]}"


def _known(batch_id: str) -> str:
    if not _ID.fullmatch(batch_id):
        raise UnknownBatch(batch_id)
    return batch_id
