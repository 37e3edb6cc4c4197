"""Conversations as a resource: begin one, and change what is known about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Final, assert_never

import orjson

from palaver.conversation import Conversation, ConversationPatch, NewConversation
from palaver.errors import StateConflict
from palaver.fields import revealed
from palaver.ids import is_id
from palaver.models import AgentSpec
from palaver.store import keys, records
from palaver.store.capacity import Capacity
from palaver.store.connection import Connection
from palaver.store.contracts import BeginConversation, ChangeConversation
from palaver.store.contracts.conversations import Begun, Changed, GivenField, Revised
from palaver.store.contracts.replies import Busy, Unknown
from palaver.store.moving import promised
from palaver.store.reading import Reading, unknown_conversation
from palaver.store.scripts import Scripts
from palaver.store.vault import Vault

Kept = Mapping[str, str | None]
"""For the name of a dialect, a text that it keeps with a conversation; None takes it away."""
_ABOUT: Final[tuple[str, ...]] = ("title", "metadata", "tags", "agent")


@dataclass(frozen=True, slots=True)
class KeptText:
    """What a dialect keeps with a conversation."""

    text: str | None
    revision: int
    """Of the conversation, to change it by if nobody else has meanwhile."""


class Conversations:
    """Conversations, beside what is said in them."""

    def __init__(self, redis: Connection, scripts: Scripts, reading: Reading, capacity: Capacity, vault: Vault) -> None:
        self._vault = vault
        self._redis = redis
        self._scripts = scripts
        self._reading = reading
        self._capacity = capacity

    async def begin(
        self, wanted: NewConversation, conversation_id: str | None = None, *, kept: Kept | None = None
    ) -> tuple[Conversation, bool]:
        """An empty conversation, or the one that has that id already: then it is left as it is, and the second value
        is true. It goes after the retention unless a run uses it.

        Raises:
            NoRoom: ``store_nearly_full``.
            StateConflict: ``conversation_busy``, it is being deleted; ``secrets_full``.
            NotDurable: begun, but not as safely as PALAVER_DURABILITY asks; with the same id it is found.
        """
        await self._capacity.admit()
        chosen = conversation_id or self._reading.new_conversation()
        about = {name: getattr(wanted, name) for name in _ABOUT}
        secrets = starmap(GivenField, self._vault.begun_with(chosen, revealed(wanted.secrets)).items())
        begin = BeginConversation(
            conversation=keys.conversation(chosen),
            log=keys.log(chosen),
            given=tuple(each for each in (*_fields(about, kept or {}), *secrets) if each.value is not None),
        )
        there = await promised(self._scripts.promise(begin), _begun)
        return await self._reading.conversation(chosen), there

    async def change(
        self, conversation_id: str, wanted: ConversationPatch, *, kept: Kept | None = None
    ) -> Conversation:
        """The conversation with what ``wanted`` gives, and with these texts.

        Raises:
            UnknownConversation: there is none of that id (any more).
            StateConflict: ``conversation_revised``, it has another revision than ``wanted`` says.
            NoRoom: ``store_nearly_full``.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks.
        """
        if not is_id("conv", conversation_id):
            raise unknown_conversation(conversation_id)
        await self._capacity.admit()
        about = {name: getattr(wanted, name) for name in _ABOUT if name in wanted.model_fields_set}
        change = ChangeConversation(
            conversation=keys.conversation(conversation_id),
            log=keys.log(conversation_id),
            revision=wanted.revision,
            given=tuple(_fields(about, kept or {})),
        )
        await promised(self._scripts.promise(change), lambda reply: _changed(conversation_id, reply))
        return await self._reading.conversation(conversation_id)

    async def kept(self, conversation_id: str, dialect: str) -> KeptText:
        """What a dialect keeps with a conversation.

        Raises:
            UnknownConversation: there is none of that id (any more).
        """
        fields = ("id", "deleting", "revision", f"kept:{dialect}")
        known = is_id("conv", conversation_id)
        found = await self._redis.hmget(keys.conversation(conversation_id), fields) if known else [None] * 4
        if found[0] is None or found[1] is not None:
            raise unknown_conversation(conversation_id)
        return KeptText(None if found[3] is None else found[3].decode(), int(found[2] or 0))


def _fields(about: Mapping[str, object], kept: Kept) -> Iterator[GivenField]:
    """The fields of the hash for what is said about a conversation; None for those that it is not to have."""
    for name, value in about.items():
        if name == "agent":
            agent = value if isinstance(value, AgentSpec) else None
            yield GivenField("agent", records.agent_json(agent) if agent else None)
            yield GivenField("names", records.names(agent) if agent else None)
            yield GivenField("max_steps", str(agent.max_steps) if agent else None)
        elif name == "title":
            yield GivenField("title", value if isinstance(value, str) else None)
            # What a search compares: scripts know the small letters of ASCII only.
            yield GivenField("folded", value.casefold() if isinstance(value, str) else None)
        else:
            yield GivenField(name, orjson.dumps(value).decode() if value else None)
    for dialect, text in kept.items():
        yield GivenField(f"kept:{dialect}", text)


def _begun(reply: Begun | Busy) -> bool:
    match reply:
        case Begun(there):
            return there
        case Busy():
            raise StateConflict("conversation_busy", None, "a conversation of that id is being deleted")
        case other:
            assert_never(other)


def _changed(conversation_id: str, reply: Changed | Revised | Unknown) -> None:
    match reply:
        case Changed():
            return
        case Revised():
            raise StateConflict(
                "conversation_revised", None, "somebody else has changed the conversation: read it, and change it again"
            )
        case Unknown():
            raise unknown_conversation(conversation_id)
        case other:
            assert_never(other)
