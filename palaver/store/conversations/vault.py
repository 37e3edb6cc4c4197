"""The secrets of conversations: sealed before Redis sees them, in the conversation's hash, so that they go with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from secrets import token_hex
from typing import Final, assert_never

import orjson
from pydantic import SecretStr

from palaver.config.settings import Settings
from palaver.errors import UnknownConversation
from palaver.late import dataclass
from palaver.schemas.fields import revealed
from palaver.schemas.models import AgentSpec
from palaver.secrets.sealing import KeyMissing, SealBroken
from palaver.store.reading.existing import check_conversation_id, known_fields, unknown_conversation
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection
from palaver.store.scripting.contracts.replies import RefusalCode, Unknown
from palaver.store.scripting.contracts.secrets import KeepSecrets, NewSecret, Overfull, Saved
from palaver.store.scripting.refusals import refusal
from palaver.store.scripting.scripts import Scripts
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.limits import limit_of

_OF_ENDPOINT: Final = "endpoint:"
_PAGE: Final = 500
"""Conversations that are asked for at once."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The outcome of sealing all secrets anew."""

    done: int
    """Secrets that were sealed anew."""
    left: int
    """Secrets whose key this process does not have."""
    broken: tuple[str, ...] = ()
    """Secrets that were changed in the store, so that they cannot be opened: ``CONVERSATION NAME``."""


class Vault:
    """The secrets of conversations, by name."""

    def __init__(self, redis: Connection, scripts: Scripts, settings: Settings) -> None:
        self._shards = all_shards(settings.shards)
        self._redis = redis
        self._scripts = scripts
        self._sealer = settings.sealer

    @property
    def usable(self) -> bool:
        """True if this process has a key to seal with."""
        return bool(self._sealer)

    def sealed(self, conversation_id: str, values: Mapping[str, str | None]) -> tuple[NewSecret, ...]:
        """``values`` as the conversation is to keep them; None removes one.

        Raises:
            KeyMissing: this process has no key.
        """
        return tuple(
            NewSecret(name, None if value is None else self._sealer.seal(value, conversation_id, name))
            for name, value in values.items()
        )

    def begun_with(self, conversation_id: str, values: Mapping[str, str | None]) -> Mapping[str, str]:
        """The fields of a new conversation's hash that say the same.

        Raises:
            StateConflict: ``secrets_full``.
            KeyMissing: this process has no key.
        """
        secrets = {
            secret.name: secret.sealed for secret in self.sealed(conversation_id, values) if secret.sealed is not None
        }
        text = orjson.dumps(secrets).decode()
        if len(secrets) > limit_of("secrets") or len(text) > limit_of("secrets_bytes"):
            raise refusal(RefusalCode.SECRETS_FULL, None)
        return {"secrets": text, "secrets_at": token_hex(20)} if secrets else {}

    async def keep(self, conversation_id: str, values: Mapping[str, str | None], *, by: str | None = None) -> None:
        """Set secrets of a conversation, and remove those that are None. Steps that begin from here on see them. ``by``
        is the name of the key of who does so.

        Raises:
            UnknownConversation: it is not there (any more).
            StateConflict: ``secrets_full``.
            KeyMissing: this process has no key.
        """
        check_conversation_id(conversation_id)
        sealed = self.sealed(conversation_id, values)
        keep = KeepSecrets(
            conversation=keys.conversation(conversation_id), log=keys.log(conversation_id), by=by or "", secrets=sealed
        )
        match await self._scripts.run(keep):
            case Saved():
                pass
            case Overfull(code):
                raise refusal(code, None)
            case Unknown():
                raise unknown_conversation(conversation_id)
            case other:
                assert_never(other)

    async def names(self, conversation_id: str) -> tuple[str, ...]:
        """The names of a conversation's secrets, in order.

        Raises:
            UnknownConversation: it is not there (any more).
        """
        return tuple(sorted(name for name in await self._sealed(conversation_id) if not is_of_endpoint(name)))

    async def opened(self, conversation_id: str, agent: AgentSpec | None = None) -> Mapping[str, str]:
        """A conversation's secrets by name: those for tools, and the key of the ``agent``'s endpoint, if it has one.

        Raises:
            UnknownConversation: it is not there (any more).
            KeyMissing: this process has not all the keys that they are sealed with.
            SealBroken: one was changed in the store.
        """
        secrets, own = await self._sealed(conversation_id), endpoint_of(agent)
        return {
            name: self._sealer.open(sealed, conversation_id, name)
            for name, sealed in secrets.items()
            if name == own or not is_of_endpoint(name)
        }

    async def seal_anew(self) -> Sealed:
        """Seal with the first key whatever is sealed with another one that this process has, in all conversations."""
        done, left, broken = 0, 0, dict[str, None]()
        for shard in self._shards:
            async for conversation_id in self._conversations_of(shard):
                try:
                    secrets = await self._sealed(conversation_id)
                except UnknownConversation:
                    continue
                old = {name: sealed for name, sealed in secrets.items() if not self._sealer.is_newest(sealed)}
                changes = []
                for name, sealed in old.items():
                    try:
                        value = self._sealer.open(sealed, conversation_id, name)
                    except KeyMissing:
                        left += 1
                        continue
                    except SealBroken:
                        broken[f"{conversation_id} {name}"] = None
                        continue
                    changes.append(NewSecret(name, self._sealer.seal(value, conversation_id, name), sealed))
                if changes:
                    keep = KeepSecrets(
                        conversation=keys.conversation(conversation_id),
                        log=keys.log(conversation_id),
                        by=None,
                        secrets=tuple(changes),
                    )
                    await self._scripts.run(keep)
                    done += len(changes)
        return Sealed(done, left, tuple(broken))

    async def _conversations_of(self, shard: str) -> AsyncIterator[str]:
        """Yield the conversations of a shard, those of each list by time of creation; one may come twice."""
        for owner in keys.reached_owners():
            async for conversation_id in self._listed(keys.conversations(shard, of=owner)):
                yield conversation_id

    async def _listed(self, name: str) -> AsyncIterator[str]:
        since, size = 0, _PAGE
        while True:
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.zrange(name, since, "+inf", byscore=True, offset=0, num=size, withscores=True)
            (page,) = await pipeline.execute()
            for member, _ in page:
                yield member.decode()
            if len(page) < size:
                return
            last = int(page[-1][1])
            # As many as a page has may have begun within one millisecond.
            since, size = last, size * 2 if last == since else _PAGE

    async def _sealed(self, conversation_id: str) -> Mapping[str, str]:
        (text,) = await known_fields(self._redis, conversation_id, "secrets")
        secrets: dict[str, str] = orjson.loads(text) if text else {}
        return secrets


def is_of_endpoint(name: str) -> bool:
    """Tell whether this is the name of an endpoint's key, which no tool gets."""
    return name.startswith(_OF_ENDPOINT)


def endpoint_of(agent: AgentSpec | None) -> str:
    """Return the name under which the key of an agent's endpoint is stored. Without an endpoint it is a name that
    nothing has."""
    return agent.endpoint.secret_name if agent is not None and agent.endpoint is not None else _OF_ENDPOINT


def with_key(secrets: Mapping[str, SecretStr | None], agent: AgentSpec | None) -> dict[str, str | None]:
    """``secrets`` as they are, and the key that came with the ``agent``."""
    endpoint = agent.endpoint if agent is not None else None
    if endpoint is None or endpoint.api_key is None:
        return revealed(secrets)
    return {**revealed(secrets), endpoint.secret_name: endpoint.api_key.get_secret_value()}
