"""Changes of a log without a run: the user's words are added, its end is withdrawn, another log begins with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import Final, assert_never

import orjson

from palaver.errors import IdempotencyMismatch, StateConflict, UnknownConversation
from palaver.schemas.conversation import Conversation
from palaver.schemas.conversation import Fork as ForkRequest
from palaver.schemas.first_words import TITLE, first_words
from palaver.schemas.models import Message
from palaver.store.conversations.conversations import DialectTexts, fields_of
from palaver.store.conversations.vault import Vault, with_key
from palaver.store.reading.existing import check_conversation_id, unknown_conversation
from palaver.store.redis import keys
from palaver.store.redis.capacity import Capacity
from palaver.store.runs.runs import Runs
from palaver.store.scripting.contracts.conversations import HashField
from palaver.store.scripting.contracts.logs import (
    Append,
    Appended,
    FindPlace,
    Fork,
    Forked,
    Misplaced,
    NoPlace,
    Place,
    ToCopy,
    WithdrawAfter,
    WithdrawnBehind,
)
from palaver.store.scripting.contracts.replies import Busy, Mismatch, Unknown
from palaver.store.scripting.contracts.runs import Rejected
from palaver.store.scripting.idempotency import IdempotencyRecord
from palaver.store.scripting.moving import durable_reply
from palaver.store.scripting.refusals import refusal
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.ids import new_run_id, shard_of, tenant_of

_MISPLACED: Final[Mapping[Misplaced, str]] = {
    "beyond": "is behind the end of the log",
    "withdrawn": "is in a part of the log that is withdrawn",
    "open_turn": "is within a turn: a call has no result there",
    "far": "is too far behind the last message to see whether a turn is open there: name one nearer to it",
}
_ABOUT: Final = ("title", "metadata", "tags", "agent")


class History:
    """Changes of logs that no run makes."""

    def __init__(self, scripts: Scripts, runs: Runs, capacity: Capacity, vault: Vault) -> None:
        self._scripts = scripts
        self._runs = runs
        self._capacity = capacity
        self._vault = vault

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Appended:
        """Add ``messages`` to the log. An active run sees those of the user in its next model call; if it is being
        cancelled, they come behind it. Others are whole turns, which it does not take in.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            IdempotencyMismatch: the key was used with another request.
            StateConflict: ``conversation_full`` or ``steering_full``, there is no room for them; ``conversation_busy``,
                a run is active, and they are not the user's alone.
            NotDurable: taken, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        check_conversation_id(conversation_id)
        texts = tuple(orjson.dumps(message.model_dump(exclude_defaults=True)) for message in messages)
        key = IdempotencyRecord.of(idempotency_key, conversation_id, b" ".join(texts).decode(), by)
        title = first_words(messages, TITLE)
        append = Append(
            run=keys.of_run(_no_run(conversation_id), conversation_id),
            idempotency=key.record,
            fingerprint=key.fingerprint,
            request=key.request,
            messages=texts,
            title=title,
            folded=title and title.casefold(),
            by=by,
            turns=any(message.role != "user" for message in messages),
        )
        return await durable_reply(self._scripts.run_durably(append), partial(_appended, conversation_id))

    async def withdraw(
        self, conversation_id: str, after: int, *, idempotency_key: str | None = None, by: str | None = None
    ) -> WithdrawnBehind:
        """Go back to position ``after``: models do not see any more what the log has behind it.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            IdempotencyMismatch: the key was used with another request.
            StateConflict: ``conversation_busy``, a run is active; ``unknown_position``, it cannot be gone back to that.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        check_conversation_id(conversation_id)
        key = IdempotencyRecord.of(idempotency_key, conversation_id, f"after {after}", by)
        withdraw = WithdrawAfter(
            run=keys.of_run(_no_run(conversation_id), conversation_id),
            idempotency=key.record,
            fingerprint=key.fingerprint,
            request=key.request,
            position=after,
        )
        return await durable_reply(self._scripts.run_durably(withdraw), partial(_withdrawn, conversation_id))

    async def fork(
        self,
        conversation_id: str,
        body: ForkRequest,
        target: str | None = None,
        *,
        received: ForkRequest | None = None,
        dialect_texts: DialectTexts | None = None,
        idempotency_key: str | None = None,
        by: str | None = None,
        agent_by: Collection[str] | None = None,
    ) -> tuple[Conversation, bool]:
        """A new conversation that begins with the log of this one; with true, one that an earlier request made.
        ``target`` is its id, on the same shard. ``received`` is the body as it came, as for `Runs.submit`, and
        ``agent_by`` as in `Submit`.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            IdempotencyMismatch: the key was used with another request.
            StateConflict: ``unknown_position``, it cannot be cut there; ``conversation_changed`` since then;
                ``conversation_busy``, there is another one of the id ``target``.
            NoRoom: ``store_nearly_full``.
            NotDurable: done, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        check_conversation_id(conversation_id)
        key = IdempotencyRecord.of(
            idempotency_key, conversation_id, f"fork {(received or body).model_dump_json(exclude_unset=True)}", by
        )
        chosen = target or self._runs.new_conversation_beside(conversation_id)
        fork = Fork(
            conversation=keys.conversation(chosen),
            log=keys.log(chosen),
            source=keys.conversation(conversation_id),
            idempotency=key.record,
            fingerprint=key.fingerprint,
            request=key.request,
            forked_from=conversation_id,
            copy=None,
            through=0,
            withdrawals=b"",
            withdrawn=None,
            by=by,
            seen_agent=None,
            hash_fields=(),
        )
        earlier = await self._scripts.run(fork)
        if not isinstance(earlier, ToCopy):
            forked = await durable_reply(self._scripts.run_durably(fork), _forked)
            return await self._runs.conversation(forked.conversation_id), forked.replayed
        await self._capacity.admit()
        source = await self._runs.conversation(conversation_id)
        through = await self._place(conversation_id, body.through)
        about = {name: getattr(body if name in body.model_fields_set else source, name) for name in _ABOUT}
        standing = None if "agent" in body.model_fields_set else await self._runs.agent_of(conversation_id)
        if standing is not None:
            about["agent"] = standing.spec
        copied = await self._runs.copy(conversation_id, through=through, made_anew=None, agent=about["agent"])
        try:
            secrets = self._vault.begun_with(chosen, {**copied.secrets, **with_key(body.secrets, body.spec)})
            fields = (
                *fields_of(about, dialect_texts or {}, agent_by=agent_by), *starmap(HashField, secrets.items()),
            )  # fmt: skip
            fork = replace(
                fork,
                copy=copied.copy,
                through=through,
                withdrawals=copied.withdrawals,
                withdrawn=copied.withdrawn or None,
                seen_agent=None if standing is None else standing.text,
                hash_fields=tuple(entry for entry in fields if entry.value is not None),
            )
            forked = await durable_reply(self._scripts.run_durably(fork), _forked)
        except (StateConflict, IdempotencyMismatch):
            await self._runs.forget_copy(copied)
            raise
        if forked.replayed:
            await self._runs.forget_copy(copied)
        return await self._runs.conversation(forked.conversation_id), forked.replayed

    async def _place(self, conversation_id: str, position: int | None) -> int:
        """Return the position where a log can be cut that is to be cut at ``position``, or at its end."""
        conversation, log = keys.conversation(conversation_id), keys.log(conversation_id)
        match await self._scripts.run(FindPlace(conversation=conversation, log=log, position=position)):
            case Place(place):
                return place
            case NoPlace(why):
                raise StateConflict("unknown_position", None, _MISPLACED[why])
            case Unknown():
                raise unknown_conversation(conversation_id)
            case other:
                assert_never(other)


def _no_run(conversation_id: str) -> str:
    """Return an id that a run of the conversation could have, and none has."""
    return new_run_id(shard_of(conversation_id), tenant_of(conversation_id))


def _appended(conversation_id: str, reply: Appended | Mismatch | Rejected | Unknown) -> Appended:
    match reply:
        case Appended() as appended:
            return appended
        case Mismatch() | Rejected() | Unknown() as none:
            raise _hindrance(conversation_id, none)
        case other:
            assert_never(other)


def _withdrawn(
    conversation_id: str, reply: WithdrawnBehind | NoPlace | Mismatch | Rejected | Unknown
) -> WithdrawnBehind:
    match reply:
        case WithdrawnBehind() as withdrawn:
            return withdrawn
        case NoPlace(why):
            raise StateConflict("unknown_position", None, _MISPLACED[why])
        case Mismatch() | Rejected() | Unknown() as none:
            raise _hindrance(conversation_id, none)
        case other:
            assert_never(other)


def _forked(reply: Forked | ToCopy | Busy | Mismatch | Rejected) -> Forked:
    match reply:
        case Forked() as forked:
            return forked
        case Busy():
            raise StateConflict("conversation_busy", None, "there is another conversation of that id")
        case ToCopy():
            raise StateConflict("conversation_changed", None, "the fork was there, and was deleted meanwhile")
        case Mismatch() | Rejected() as none:
            raise _hindrance("", none)
        case other:
            assert_never(other)


def _hindrance(
    conversation_id: str, reply: Mismatch | Rejected | Unknown
) -> IdempotencyMismatch | StateConflict | UnknownConversation:
    match reply:
        case Mismatch():
            return IdempotencyMismatch("this Idempotency-Key was used with another request")
        case Rejected(code, other):
            return refusal(code, other)
        case Unknown():
            return unknown_conversation(conversation_id)
