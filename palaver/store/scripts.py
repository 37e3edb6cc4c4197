"""The Lua scripts: loaded once, called by name, each one atomic on one hash slot.

The lifecycle table and the retention are written into the scripts from Python, so that there is one table only; a change of
either changes the script's SHA, and old and new workers cannot disagree about what they run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from palaver.lifecycle import TRANSITIONS
from palaver.settings import Settings

_ABOUT_ONE_RUN: Final = ("submit", "claim", "settle", "attend", "hand_back", "cancel")
_ON_THEIR_OWN: Final = ("renew", "feed")

Call = tuple[str, Sequence[str], Sequence[str | int | float | bytes]]
"""A script's name, its KEYS and its ARGV."""


class Scripts:
    """Runs the scripts of ``lua/`` on one connection pool."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        folder = files("palaver.store") / "lua"
        constants = _constants(settings)
        prelude = constants + (folder / "_run.lua").read_text()
        sources = {name: prelude + (folder / f"{name}.lua").read_text() for name in _ABOUT_ONE_RUN}
        sources |= {name: constants + (folder / f"{name}.lua").read_text() for name in _ON_THEIR_OWN}
        self._redis = redis
        self._sources = sources
        self._shas = {name: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for name, text in sources.items()}

    async def run(self, name: str, keys: Sequence[str], args: Sequence[str | int | float | bytes]) -> Any:
        """The reply of one script."""
        try:
            return await self._redis.evalsha(self._shas[name], len(keys), *keys, *args)
        except NoScriptError:
            return await self._redis.eval(self._sources[name], len(keys), *keys, *args)

    async def run_all(self, calls: Iterable[Call]) -> list[Any]:
        """The replies of several scripts, sent at once; each is atomic, all together are not.

        Raises the first error that a script answered, after all have run.
        """
        calls = list(calls)
        replies = await self._pipeline(calls)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            for name in {name for name, _, _ in calls}:
                await self._redis.script_load(self._sources[name])
            missed = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            for i, reply in zip(missed, await self._pipeline([calls[i] for i in missed]), strict=True):
                replies[i] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _pipeline(self, calls: Sequence[Call]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for name, keys, args in calls:
            pipeline.evalsha(self._shas[name], len(keys), *keys, *args)
        return await pipeline.execute(raise_on_error=False)


def _constants(settings: Settings) -> str:
    edges = ", ".join(
        f"{source} = {{ {', '.join(f'{target} = true' for target in sorted(targets))} }}"
        for source, targets in TRANSITIONS.items()
    )
    return (
        f"local EDGES = {{ {edges} }}\n"
        f"local RETENTION, FEED_RETENTION = {int(settings.retention)}, {int(settings.feed_retention)}\n"
        f"local FEED_CAP, MAX_LOSSES = {settings.feed_cap}, {settings.max_losses}\n"
    )
