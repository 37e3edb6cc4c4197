"""What becomes of a conversation's log without a run: the user's words are added."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from secrets import token_hex
from typing import assert_never

import orjson

from palaver.errors import IdempotencyMismatch, UnknownConversation
from palaver.ids import is_id, new_run_id, shard_of
from palaver.models import Message
from palaver.store import keys
from palaver.store.contracts import Append
from palaver.store.contracts.logs import Appended
from palaver.store.contracts.replies import Mismatch, Unknown
from palaver.store.contracts.runs import Refused
from palaver.store.moving import promised
from palaver.store.refusals import refusal
from palaver.store.runs import idempotency, sha256
from palaver.store.scripts import Scripts


class History:
    """Changes of logs that no run makes."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[Message],
        *,
        idempotency_key: str | None = None,
        by: str | None = None,
    ) -> Appended:
        """Add the user's ``messages`` to the log. A run that is active is told them by its next model call; if it is
        being cancelled, they come behind it.

        Raises:
            UnknownConversation: the conversation is not there (any more).
            IdempotencyMismatch: the key was used with another request.
            StateConflict: ``conversation_full`` or ``steering_full``, there is no room for them.
            NotDurable: taken, but not as safely as PALAVER_DURABILITY asks; with the same key it is found.
        """
        if not is_id("conv", conversation_id):
            raise UnknownConversation(f"there is no conversation {conversation_id[:80]!r}")
        texts = tuple(orjson.dumps(message.model_dump(exclude_defaults=True)) for message in messages)
        shard, request = shard_of(conversation_id), token_hex(16)
        key = idempotency(idempotency_key, f"{conversation_id} {b' '.join(texts).decode()}", by)
        append = Append(
            run=keys.of_run(new_run_id(shard), conversation_id),
            idempotency=keys.idempotency(shard, key.digest or sha256(request)),
            fingerprint=key.fingerprint or None,
            request=request,
            messages=texts,
        )
        return await promised(self._scripts.promise(append), partial(_appended, conversation_id))


def _appended(conversation_id: str, reply: Appended | Mismatch | Refused | Unknown) -> Appended:
    match reply:
        case Appended() as appended:
            return appended
        case Mismatch():
            raise IdempotencyMismatch("this Idempotency-Key was used with another request")
        case Refused(code, other):
            raise refusal(code, other)
        case Unknown():
            raise UnknownConversation(f"there is no conversation {conversation_id}")
        case other:
            assert_never(other)
