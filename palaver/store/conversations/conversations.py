"""Conversations as a resource: begin one, and change its fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import starmap
from typing import Any, Final, Literal, assert_never, cast

import orjson

from palaver.errors import StateConflict
from palaver.late import dataclass
from palaver.schemas.conversation import (
    Conversation,
    ConversationCount,
    ConversationFilter,
    ConversationOrder,
    ConversationPatch,
    NewConversation,
)
from palaver.schemas.models import AgentSpec
from palaver.store.conversations.vault import Vault, endpoint_of, with_key
from palaver.store.reading import records
from palaver.store.reading.existing import check_conversation_id, known_fields, unknown_conversation
from palaver.store.reading.finding import Place, Search, ShardLists, find, look
from palaver.store.reading.reading import Reading
from palaver.store.reading.recall import Memories
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity
from palaver.store.redis.connection import Connection
from palaver.store.scripting.contracts.conversations import (
    BeginConversation,
    Begun,
    ChangeConversation,
    Changed,
    HashField,
    Revised,
)
from palaver.store.scripting.contracts.listing import FieldTest
from palaver.store.scripting.contracts.replies import Busy, Unknown
from palaver.store.scripting.contracts.runs import Rejected
from palaver.store.scripting.contracts.secrets import Overfull
from palaver.store.scripting.moving import durable_reply
from palaver.store.scripting.refusals import refusal
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.limits import count_exceeded, limit_of

DialectTexts = Mapping[str, str | None]
"""For the name of a dialect, a text that it keeps with a conversation; None takes it away."""
_ABOUT: Final[tuple[str, ...]] = ("title", "metadata", "tags", "agent")


@dataclass(frozen=True, slots=True)
class ListedConversations:
    """Conversations in the order that was asked for, and where the next page starts."""

    conversations: list[Conversation] = field(default_factory=list)
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class DialectText:
    """A text that a dialect stores with a conversation."""

    text: str | None
    revision: int
    """The conversation's revision: with it, a change is made only if no other client has changed it meanwhile."""


class Conversations:
    """Conversations, besides their messages."""

    def __init__(
        self,
        redis: Connection,
        scripts: Scripts,
        reading: Reading,
        capacity: Capacity,
        memories: Memories,
        vault: Vault,
    ) -> None:
        self._vault = vault
        self._redis = redis
        self._scripts = scripts
        self._reading = reading
        self._capacity = capacity
        self._memories = memories

    async def begin(
        self,
        new: NewConversation,
        conversation_id: str | None = None,
        *,
        dialect_texts: DialectTexts | None = None,
        by: str | None = None,
        agent_by: Collection[str] | None = None,
    ) -> tuple[Conversation, bool]:
        """An empty conversation, or the one that has that id already: then it is left as it is, and the second value
        is true. It goes after the retention unless a run uses it. ``by`` is the name of the key of who
        begins it, which counts if it has secrets; ``agent_by`` are the names of those who wrote its agent, '' for one
        without a name.

        Raises:
            NoRoom: ``store_nearly_full``.
            StateConflict: ``conversation_busy``, it is being deleted; ``secrets_full``; ``tenant_erased``.
            NotDurable: begun, but not as safely as PALAVER_DURABILITY asks; with the same id it is found.
        """
        await self._capacity.admit()
        chosen = conversation_id or self._reading.new_conversation()
        about = {name: getattr(new, name) for name in _ABOUT}
        secrets = starmap(HashField, self._vault.begun_with(chosen, with_key(new.secrets, new.spec)).items())
        voices = [HashField("voices", orjson.dumps({by or "": 1}).decode())] if new.secrets else []
        begin = BeginConversation(
            conversation=keys.conversation(chosen),
            log=keys.log(chosen),
            hash_fields=tuple(
                entry
                for entry in (*fields_of(about, dialect_texts or {}, agent_by=agent_by), *secrets, *voices)
                if entry.value is not None
            ),
        )
        there = await durable_reply(self._scripts.run_durably(begin), _begun)
        return await self._reading.conversation(chosen), there

    async def change(
        self,
        conversation_id: str,
        patch: ConversationPatch,
        *,
        dialect_texts: DialectTexts | None = None,
        agent_by: Collection[str] | None = None,
    ) -> Conversation:
        """The conversation with what ``patch`` gives, and with these texts. ``agent_by`` are as with `begin`.

        Raises:
            UnknownConversation: there is none of that id (any more).
            StateConflict: ``conversation_revised``, it has another revision than ``patch`` says; ``secrets_full``.
            NoRoom: ``store_nearly_full``.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks.
        """
        check_conversation_id(conversation_id)
        await self._capacity.admit()
        about = {name: getattr(patch, name) for name in _ABOUT if name in patch.model_fields_set}
        change = ChangeConversation(
            conversation=keys.conversation(conversation_id),
            log=keys.log(conversation_id),
            revision=patch.revision,
            hash_fields=tuple(fields_of(about, dialect_texts or {})),
            secrets=self._vault.sealed(conversation_id, with_key({}, patch.spec)),
            endpoint=endpoint_of(patch.spec) if "agent" in about else None,
            agent_by=records.names_json(agent_by),
        )
        await durable_reply(self._scripts.run_durably(change), lambda reply: _changed(conversation_id, reply))
        return await self._reading.conversation(conversation_id)

    async def dialect_text(self, conversation_id: str, dialect: str) -> DialectText:
        """Return the text that a dialect stores with a conversation.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        text, revision = await known_fields(self._redis, conversation_id, f"kept:{dialect}", "revision")
        return DialectText(None if text is None else text.decode(), int(revision or 0))

    async def leave_position(self, conversation_id: str, dialect: str, position: int, lasts: int) -> None:
        """Say up to which position a watcher of a dialect was told everything, for ``lasts`` seconds. Of several the
        smallest stays, as long as the last one. It is no change of the conversation, and goes by itself."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zadd(keys.left(conversation_id), {dialect: position}, lt=True)
        pipeline.expire(keys.left(conversation_id), lasts)
        await pipeline.execute()

    async def position_left(self, conversation_id: str, dialect: str) -> int | None:
        """That position, while it lasts."""
        position = await self._redis.zscore(keys.left(conversation_id), dialect)
        return None if position is None else int(position)

    async def list(
        self,
        admitted: ConversationFilter,
        *,
        limit: int,
        cursor: str | None = None,
        order: ConversationOrder = "-updated",
    ) -> ListedConversations:
        """A page of conversations: few where they are long, or where many that do not fit lie between them. One that
        changes meanwhile has another place by ``updated``.

        Raises:
            ValueError: the cursor is none of ours.
        """
        search, first = self._search(admitted, order)
        place = records.parse_cursor(cursor, "conv") if cursor else first

        async def read(ids: Sequence[str]) -> dict[str, tuple[Conversation, int]]:
            conversations = await self._reading.conversations(ids)
            return {
                conversation.id: (conversation, len(conversation.model_dump_json())) for conversation in conversations
            }

        page = await self._memories.beside(
            find(self._scripts, search, read, limit=limit, place=place),
            lambda memory, until: memory.conversations(admitted, limit=limit, place=place, until=until, order=order),
            limit=limit,
            ascending=search.ascending,
        )
        return ListedConversations(page.results, records.cursor(page.behind) if page.behind else None)

    async def count(
        self, admitted: ConversationFilter, *, most_looked: int = limit_of("count_looked")
    ) -> ConversationCount:
        """Count the conversations that fit, looking at about ``most_looked`` at most. One that a feature remembers
        counts as it was when it rested last."""
        search, place = self._search(admitted, "-created")
        remembered = await self._memories.conversation_count(admitted, most=most_looked)
        if remembered is not None:
            search = search._replace(tests=(*search.tests, FieldTest(remembered.mark, "unset")))
        count = looked = 0
        while True:
            part = await look(self._scripts, search, place, most_looked - looked)
            count, looked, place = count + len(part.places), looked + part.looked, part.end
            if place is None or looked >= most_looked:
                break
        if place is not None:
            count_exceeded("count_looked")
        if remembered is None:
            return ConversationCount(count=count, complete=place is None)
        return ConversationCount(count=count + remembered.conversations, complete=place is None and remembered.complete)

    def _search(self, admitted: ConversationFilter, order: ConversationOrder) -> tuple[Search, Place | None]:
        """Return the search for a filter in that order, and the place before the first conversation that may fit."""
        field, ascending = order.removeprefix("-"), not order.startswith("-")
        index: Literal["", ":updated"] = ":updated" if field == "updated" else ""
        shards = [
            ShardLists(
                shard,
                keys.conversation_prefix(shard),
                [keys.conversations(shard, index, of) for of in keys.reached_owners()],
            )
            for shard in self._reading.shards
        ]
        after, before = (
            records.millis(moment) if isinstance(moment, datetime) else None
            for moment in (admitted.get(f"{field}_after"), admitted.get(f"{field}_before"))
        )
        first, last = (after, before) if ascending else (None if before is None else before + 1, after)
        return Search(shards, tuple(_tests(admitted, field)), last, ascending), None if first is None else (first, "")


def _tests(filters: ConversationFilter, ordered_by: str) -> Iterator[FieldTest]:
    """Yield the tests for the hash of a conversation that fits, except for the time that the list is ordered by."""
    for name in ("created", "updated"):
        if name != ordered_by:
            for edge, kind in (("after", "from"), ("before", "to")):
                if isinstance(moment := filters.get(f"{name}_{edge}"), datetime):
                    yield FieldTest(f"{name}_at", cast(Any, kind), str(records.millis(moment)))
    if (title := filters.get("title")) is not None:
        yield FieldTest("folded", "has", title.casefold())
    if (tag := filters.get("tag")) is not None:
        yield FieldTest("tags", "entry", _written(tag))
    for key, value in (filters.get("metadata") or {}).items():
        yield FieldTest("metadata", "entry", f"{_written(key)}:{_written(value)}")
    if (status := filters.get("status")) is not None:
        named = status if isinstance(status, str) else ",".join(status)
        yield FieldTest("status", "status", f",{named},")
    # Last: most of those that are gone do not fit anyway, and every look costs.
    yield FieldTest("id", "set")
    yield FieldTest("deleting", "unset")


def _written(text: str) -> str:
    """As it is in tags and metadata."""
    return orjson.dumps(text).decode()


def fields_of(
    about: Mapping[str, object], texts: DialectTexts, *, agent_by: Collection[str] | None = None
) -> Iterator[HashField]:
    """Yield the fields of the hash for these values; None for those that it is not to have."""
    if agent_by is not None:
        yield HashField("agent_by", records.names_json(agent_by))
    for name, value in about.items():
        if name == "agent":
            agent = value if isinstance(value, AgentSpec) else None
            yield HashField("agent", records.agent_json(agent) if agent else None)
            yield HashField("names", records.names(agent) if agent else None)
            yield HashField("max_steps", str(agent.max_steps) if agent else None)
        elif name == "title":
            yield HashField("title", value if isinstance(value, str) else None)
            # For searches to compare: scripts know the small letters of ASCII only.
            yield HashField("folded", value.casefold() if isinstance(value, str) else None)
            yield HashField("titled_by", None)
        else:
            yield HashField(name, orjson.dumps(value).decode() if value else None)
    for dialect, text in texts.items():
        yield HashField(f"kept:{dialect}", text)


def _begun(reply: Begun | Busy | Rejected) -> bool:
    match reply:
        case Begun(there):
            return there
        case Busy():
            raise StateConflict("conversation_busy", None, "a conversation of that id is being deleted")
        case Rejected(code):
            raise refusal(code, None)
        case other:
            assert_never(other)


def _changed(conversation_id: str, reply: Changed | Overfull | Revised | Unknown) -> None:
    match reply:
        case Changed():
            return
        case Overfull(code):
            raise refusal(code, None)
        case Revised():
            raise StateConflict(
                "conversation_revised",
                None,
                "another client has changed the conversation: read it, and change it again",
            )
        case Unknown():
            raise unknown_conversation(conversation_id)
        case other:
            assert_never(other)
