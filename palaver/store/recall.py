"""Recall: what the store does not have any more comes back from a feature that remembers it.

The methods of a part of the store raise `UnknownRecord` for an id that nothing has. Where a feature remembers things,
they are called through `recalling`: then that id is asked for, and the method is called once more. What is there costs
nothing but the call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Protocol, TypeVar, cast

from palaver.errors import UnknownRecord
from palaver.feature import features
from palaver.store.redis import keys
from palaver.store.redis.reach import is_reached
from palaver.store.sides import Ground
from palaver.vocabulary.ids import is_id

T = TypeVar("T")
Recall = Callable[[str], Awaitable[bool]]
"""Brings back what has an id, and tells whether it is there now."""


class Remembering(Protocol):
    """Has runs and conversations that the store does not have any more."""

    async def recall(self, ground: Ground, any_id: str) -> bool:
        """Bring back a run that has ended, with its conversation, or a conversation; tell whether it is there now.

        Raises:
            StoreUnavailable: what remembers it does not answer.
            NoRoom: ``store_nearly_full``.
        """

    async def prepare(self) -> None:
        """Load what the first recall needs."""

    async def close(self) -> None:
        """Give back what it holds."""


class Memories:
    """The memories of features, for one store."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        made = (each.load(each.recall)(ground.settings) for each in features().values() if each.recall and each.on)
        self._memories: list[Remembering] = [memory for memory in made if memory is not None]

    async def bring_back(self, conversation_id: str) -> None:
        """See to it that a conversation is there, if there was ever one of that id. Raises as `Remembering.recall`."""
        if self._memories and not await self._ground.redis.exists(keys.conversation(conversation_id)):
            await self._recall(conversation_id)

    def recalling(self, part: T) -> T:
        """Return the part of a store, with methods that ask once for what is not there."""
        return cast(T, _Recalling(part, self._recall)) if self._memories else part

    async def prepare(self) -> None:
        """Load what the first recall needs."""
        for memory in self._memories:
            await memory.prepare()

    async def close(self) -> None:
        """Close them."""
        for memory in self._memories:
            await memory.close()

    async def _recall(self, any_id: str) -> bool:
        # Beyond the reach of a caller there is nothing, there and here.
        known = (is_id("run", any_id) or is_id("conv", any_id)) and is_reached(any_id)
        if known:
            for memory in self._memories:
                if await memory.recall(self._ground, any_id):
                    return True
        return False


class _Recalling:
    """A part of a store, with its methods."""

    def __init__(self, part: Any, recall: Recall) -> None:
        self._part = part
        self._recall = recall

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if iscoroutinefunction(found):
            found = _again(found, self._recall)
        elif isasyncgenfunction(found):
            found = _from_the_start(found, self._recall)
        else:
            return found
        setattr(self, name, found)
        return found


def _again(method: Callable[..., Awaitable[Any]], recall: Recall) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(*values: Any, **named: Any) -> Any:
        try:
            return await method(*values, **named)
        except UnknownRecord as unknown:
            if not await recall(unknown.unknown):
                raise
        return await method(*values, **named)

    return call


def _from_the_start(
    method: Callable[..., AsyncGenerator[Any, None]], recall: Recall
) -> Callable[..., AsyncGenerator[Any, None]]:
    @wraps(method)
    async def call(*values: Any, **named: Any) -> AsyncGenerator[Any, None]:
        begun = False
        try:
            async with aclosing(method(*values, **named)) as found:
                async for each in found:
                    begun = True
                    yield each
                return
        except UnknownRecord as unknown:
            if begun or not await recall(unknown.unknown):
                raise
        async with aclosing(method(*values, **named)) as found:
            async for each in found:
                yield each

    return call
