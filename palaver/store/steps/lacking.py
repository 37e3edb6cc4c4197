"""The index of what steps wait for because no worker that took them has it: a tool, a provider, or its key; or because
no worker takes from their queue.

Each shard has an index of such steps, sorted by what they lack, which the scripts maintain. So they can be counted by
what they lack without reading each of them.
"""

from __future__ import annotations

import orjson

from palaver.config.settings import Settings
from palaver.late import dataclass
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Pipeline
from palaver.store.redis.visits import AWAY, ask_each, whole
from palaver.vocabulary.ids import all_shards
from palaver.vocabulary.lifecycle import StepState, WaitReason
from palaver.vocabulary.limits import count_exceeded, limit_of
from palaver.vocabulary.step_kinds import LACKED


@dataclass(frozen=True, slots=True)
class Lacked:
    """Something that steps wait for."""

    code: str
    """The code, as in ``waiting`` of their runs."""
    steps: int
    run_id: str
    """One of their runs."""


class LackingIndex:
    """The lacking index of every shard."""

    def __init__(self, redis: Connection, settings: Settings) -> None:
        self._redis = redis
        self._shards = all_shards(settings.shards)
        self._shard, self._after = 0, "-"
        """The shard and the place where the next look for stale entries begins."""

    async def read(self) -> list[Lacked]:
        """All that is lacked, by code; no more than the limit says."""
        lacks: dict[str, Lacked] = {}
        after = dict.fromkeys(self._shards, "-")
        while after and len(lacks) <= limit_of("lacks"):
            firsts = await self._first(after)
            after = {}
            for shard, first, count in firsts:
                code, _, member = first.partition(" ")
                before = lacks.get(code)
                lacks[code] = Lacked(code, count + (before.steps if before else 0), member.partition("/")[0])
                after[shard] = f"[{code}!"
        if len(lacks) > limit_of("lacks"):
            count_exceeded("lacks")
        return sorted(lacks.values(), key=lambda lacked: lacked.code)[: limit_of("lacks")]

    async def forget_stale(self, limit: int = 20) -> int:
        """Take out entries whose step does not wait for that: its run was deleted by hand, or evicted. How many.

        Looks at ``limit`` entries of one shard: the next ones each time, and the next shard after the last of them.
        """
        index = keys.lacking(self._shards[self._shard])
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zrange(index, self._after, "+", bylex=True, offset=0, num=limit)
        try:
            (members,) = await pipeline.execute()
        except AWAY:
            # The next one may be there.
            self._shard, self._after = (self._shard + 1) % len(self._shards), "-"
            raise
        if len(members) == limit:
            self._after = f"({members[-1].decode()}"
        else:
            self._shard, self._after = (self._shard + 1) % len(self._shards), "-"
        for member in members:
            run_id, _, step = member.decode().partition(" ")[2].partition("/")
            pipeline.hget(keys.steps(run_id), step)
        steps = await pipeline.execute() if members else []
        stale = [member for member, step in zip(members, steps, strict=True) if not _waits(member, step)]
        if stale:
            # One that came to wait for it since it was read is here again when it is offered the next time.
            pipeline.zrem(index, *stale)
            await pipeline.execute()
        return len(stale)

    async def _first(self, after: dict[str, str]) -> list[tuple[str, str, int]]:
        """Return, for each shard that has one, the first entry behind a place, and how many steps lack the same."""
        found = await ask_each(
            self._redis,
            after.items(),
            lambda pipeline, at: pipeline.zrange(keys.lacking(at[0]), at[1], "+", bylex=True, offset=0, num=1),
        )
        whole([*after], [(shard, members) for (shard, _), members in found])
        firsts = [(shard, members[0].decode()) for (shard, _), (members,) in found if members]

        def count(pipeline: Pipeline, at: tuple[str, str]) -> None:
            code = at[1].partition(" ")[0]
            # "!" is what comes behind " ", which ends a code.
            pipeline.zlexcount(keys.lacking(at[0]), f"[{code} ", f"({code}!")

        counts = await ask_each(self._redis, firsts, count)
        return [(shard, first, number) for (shard, first), (number,) in counts]


def _waits(member: bytes, text: bytes | None) -> bool:
    """Tell whether a step waits for what its entry says."""
    step = orjson.loads(text or b"{}")
    if step.get("state") == StepState.READY and "unattended" in step:
        return member.decode().startswith(f"{LACKED}{step['queue']} ")
    waits = step.get("state") == StepState.LATER and step.get("postponed") == step["until"]
    return waits and step["reason"] == WaitReason.NO_WORKER and member.decode().startswith(f"{step['code']} ")
