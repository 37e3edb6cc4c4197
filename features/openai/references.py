"""References to items: the responses that made them keep them, so they are found in the log by their ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import field
from typing import Any, Final

from palaver import operations
from palaver.errors import FieldError, Refused, UnknownConversation, UnknownRun
from palaver.late import dataclass
from palaver.operations import Backend, Caller
from palaver.schemas.models import Run
from palaver.vocabulary.ids import is_id
from palaver.vocabulary.limits import count_exceeded, limit_of

from .ids import ResponseId
from .inputs import ClientInput, read_input
from .projection import ResponseProjection

InputItems = str | Sequence[Mapping[str, Any]] | None
REFERENCE: Final = "item_reference"
_KEPT: Final = re.compile(
    r"(?:(?:mcpa_)?act_[0-9a-f]{24}_|(?:msg|rs|fc|mcp)_)?([0-9a-z]{28}|[0-9a-z]{8}_[0-9a-z]{26})(?:_[0-9a-z_]{1,80})?"
)
_AGAIN: Final = re.compile(r"_again[1-9][0-9]*$")
_THOUGHT: Final = "rs_"
_UNKNOWN: Final = (
    "is the id of no item that is kept here, or not any more: send the item itself, or name the response or the "
    "conversation that has it as previous_response_id or conversation"
)


@dataclass(frozen=True, slots=True)
class KeptItem:
    """An item of a response that was made here."""

    item: Mapping[str, Any]
    response: ResponseId
    conversation_id: str


@dataclass(slots=True)
class ReferringInput:
    """The input of a request whose references are resolved."""

    value: InputItems
    kept: Mapping[str, KeptItem] = field(default_factory=dict)
    """The items that it refers to, by id."""
    where: str = "/input"

    @property
    def newest(self) -> ResponseId | None:
        """The response that the last reference is about; None without any."""
        ids = [item["id"] for _, item in references_in(self.value)]
        return self.kept[ids[-1]].response if ids else None

    def read(self, beside: str | None = None) -> ClientInput:
        """Return the input, with the items in place of references to them. Those of the conversation that it comes
        ``beside`` are there already, and what is referred to again was said before.

        Raises:
            Refused: an item cannot be carried, and which.
        """
        if not self.kept or self.value is None or isinstance(self.value, str):
            return read_input(self.value, self.where)
        items, said = list[Mapping[str, Any]](), set[str]()
        for item in self.value:
            if item.get("type") != REFERENCE:
                kept = self.kept.get(str(item.get("id")))
                if kept is None or kept.conversation_id != beside:
                    items.append(item)
                continue
            item_id = item["id"]
            if self.kept[item_id].conversation_id != beside and item_id not in said:
                items.append(self.kept[item_id].item)
            said.add(item_id)
        return read_input([item for item in items if not self._is_decided(item)], self.where)

    def _is_decided(self, item: Mapping[str, Any]) -> bool:
        """Tell whether an item is a decision that the log has already."""
        return item.get("type") == "mcp_approval_response" and f"mcpa_{item.get('approval_request_id')}" in self.kept

    def answering(self, output: Sequence[Mapping[str, Any]]) -> ClientInput | None:
        """Return what is said behind the last reference, with the answers to the calls that the ``output`` of its
        response ends with; None if there are none of these, or an answer follows them already.

        Raises:
            Refused: an item cannot be carried, and which.
        """
        asked = {str(item["call_id"]) for item in output if item["type"] == "function_call"}
        asked |= {str(item["id"]) for item in output if item["type"] == "mcp_approval_request"}
        items = [] if self.value is None or isinstance(self.value, str) else list(self.value)
        last = max((place for place, _ in references_in(items)), default=-1)
        behind, answers = list[Mapping[str, Any]](), 0
        for place, item in enumerate(items):
            of_call = item.get("call_id" if item.get("type") != "mcp_approval_response" else "approval_request_id")
            if of_call in asked and item.get("type") in ("function_call_output", "mcp_approval_response"):
                behind.append(item)
                answers += 1
            elif place > last and not (of_call in asked and item.get("type") == "function_call"):
                behind.append(item)
        given = read_input(behind) if answers else None
        followed = given is not None and any(message["role"] != "user" for message in given.messages)
        return None if followed else given


def references_in(value: InputItems) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the references of an input, with their places."""
    for place, item in enumerate(() if value is None or isinstance(value, str) else value):
        if item.get("type") == REFERENCE:
            yield place, item


def without_references(value: InputItems) -> InputItems:
    """Return the rest of an input."""
    return value if isinstance(value, str) or not value else [each for each in value if each.get("type") != REFERENCE]


def run_referred_to(item_id: str) -> str | None:
    """Return the id of the run whose item this id would be; None if no item of a response has such an id."""
    match = _KEPT.fullmatch(item_id)
    return f"run_{match[1]}" if match is not None and is_id("run", f"run_{match[1]}") else None


def _echoed_runs(value: InputItems) -> list[str]:
    """Return the runs whose items come back whole, the newest ones if they are many."""
    found = dict[str, None]()
    for item in () if value is None or isinstance(value, str) else reversed(value):
        item_id = item.get("id")
        run_id = run_referred_to(item_id) if item.get("type") != REFERENCE and isinstance(item_id, str) else None
        if run_id is not None and len(found) < limit_of("referenced"):
            found[run_id] = None
    return [*found]


async def _runs_beside(backend: Backend, caller: Caller, beside: str, run_ids: Sequence[str]) -> dict[str, Run]:
    """Return the runs of a conversation, or of that of a run, among these."""
    found = dict[str, Run]()
    conversation_id = None if is_id("run", beside) else beside
    for run_id in [beside, *run_ids] if conversation_id is None else run_ids:
        with suppress(UnknownRun):
            run = await operations.read_run(backend, run_id)
            conversation_id = conversation_id or run.conversation_id
            if run.conversation_id == conversation_id and caller.conversation in (None, conversation_id):
                found[run.id] = run
    return found


async def resolved(
    backend: Backend, caller: Caller, value: InputItems, where: str = "/input", *, beside: str | None = None
) -> ReferringInput:
    """Return an input with the items that it refers to, and those that were made in the conversation, or that of the
    run, ``beside`` which it comes, and that it has whole.

    Raises:
        Refused: there is no such item within the caller's reach, or there are items of too many conversations.
        InsufficientScope: the caller's key may not read them.
        StoreUnavailable: the store took too long.
    """
    places = dict[str, int]()
    for place, item in references_in(value):
        if not isinstance(item.get("id"), str):
            raise Refused.at(f"{where}/{place}/id", "must be a text")
        places.setdefault(item["id"], place)
    runs = dict[str, Run]()
    if beside is not None and (echoed := _echoed_runs(value)):
        runs = await _runs_beside(backend, caller, beside, echoed)
    if not places and not runs:
        return ReferringInput(value, where=where)
    if places:
        operations.require_scope(caller, "runs:read")
    for item_id, place in places.items():
        run_id = run_referred_to(item_id)
        if run_id is not None and run_id not in runs:
            with suppress(UnknownRun):
                if caller.conversation is not None:
                    await operations.keep_to_run(backend, caller, run_id)
                runs[run_id] = await operations.read_run(backend, run_id)
        if run_id not in runs:
            raise _unknown(where, place)
    kept = dict[str, KeptItem]()
    conversations = {run.conversation_id for run in runs.values()}
    if len(conversations) > limit_of("referenced"):
        count_exceeded("referenced")
        why = f"refers to items of more than {limit_of('referenced')} conversations: go on with previous_response_id"
        raise Refused.of_faults([FieldError(where, "validation_error", why)])
    for conversation_id in conversations:
        with suppress(UnknownConversation):
            kept |= await _kept_in(backend, conversation_id, {run.id: run for run in runs.values()})
    for item_id, place in places.items():
        same = kept.get(_AGAIN.sub("", item_id))
        if same is None and item_id.startswith(_THOUGHT):
            # No model is told of it again: what its provider wants back stands beside the answer in the log.
            run = runs[run_referred_to(item_id) or ""]
            same = KeptItem({"type": "reasoning"}, ResponseId(run.id), run.conversation_id)
        if same is None:
            raise _unknown(where, place)
        kept[item_id] = same
    return ReferringInput(value, kept, where)


async def _kept_in(backend: Backend, conversation_id: str, runs: Mapping[str, Run]) -> dict[str, KeptItem]:
    """Return all items that these runs have in the log of a conversation, by id; none that were taken back."""
    found = dict[str, KeptItem]()
    projections = {
        run.id: ResponseProjection(ResponseId(run.id), run.agent, every=True)
        for run in runs.values()
        if run.conversation_id == conversation_id
    }
    async with aclosing(operations.read_log(backend, conversation_id)) as pages:
        async for page in pages:
            for entry in page:
                projection = projections.get(entry.run_id)
                if projection is None:
                    continue
                before = len(projection.output), len(projection.input)
                projection.read(entry, entry.opaque.reasoning() if entry.opaque else "")
                if not entry.withdrawn:
                    new = [*projection.output[before[0] :], *projection.input[before[1] :]]
                    response = ResponseId(entry.run_id, max(projection.part, 0))
                    found |= {item["id"]: KeptItem(item, response, conversation_id) for item in new}
    return found


def _unknown(where: str, place: int) -> Refused:
    return Refused.of_faults([FieldError(f"{where}/{place}/id", "not_found", _UNKNOWN)])
