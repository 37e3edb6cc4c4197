"""Notices that the store has less than it had: after a restart, a failover or a restore that lost something.

The scripts count what they do, and the counts only grow. A process that has seen a larger number than there is now
knows that something was lost. A store that was replaced by another one has another generation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from redis.exceptions import RedisError

from palaver.late import dataclass
from palaver.store.redis import keys
from palaver.store.redis.connection import Connection, Pipeline, now_ms
from palaver.store.redis.rounds import Rounds
from palaver.store.redis.visits import ask_each, is_away
from palaver.telemetry.metrics import METRICS
from palaver.vocabulary.step_kinds import KINDS

log = logging.getLogger("palaver.store.server.rewinds")

EVERY: Final = 2.0
"""Seconds between two looks: what comes in meanwhile hides as much of a loss."""
REMEMBERED: Final = 24 * 3600
"""Seconds for which a rewind is shown."""
_RUNS: Final = METRICS["palaver_runs_submitted_total"].series
_STEPS: Final = tuple(f"{METRICS['palaver_steps_total'].series} {kind.name} done" for kind in KINDS)


@dataclass(frozen=True, slots=True)
class Rewind:
    """A loss that was noticed."""

    at: int
    """Unix time in seconds, by Redis's clock."""
    runs: int
    """Runs that had been taken on and are gone, at least: those that came meanwhile hide as many."""
    steps: int
    """Steps that had been done and are not any more, at least."""
    replaced: bool
    """True if it is another store, or an empty one."""


@dataclass(frozen=True, slots=True)
class _State:
    """The state of the store at one look."""

    at: int
    generation: bytes
    counts: Mapping[str, tuple[int, int]]
    """The runs and the steps of each shard."""

    def sums(self, shards: Iterable[str]) -> tuple[int, int]:
        """Return the runs and the steps of these."""
        numbers = [self.counts[shard] for shard in shards]
        return sum(runs for runs, _ in numbers), sum(steps for _, steps in numbers)


class Rewinds:
    """The last known state of the store, compared with its present one."""

    def __init__(self, redis: Connection, rounds: Rounds) -> None:
        self._redis = redis
        self._rounds = rounds
        self._known: _State | None = None

    async def watch(self) -> None:
        """Look for ever, and log each loss. A store that does not answer is looked at later."""
        while True:
            with contextlib.suppress(RedisError, OSError):
                await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> Rewind | None:
        """Compare with the look before. Return the loss since, if there was one. Raises what Redis raises."""
        known, now = self._known, await self._state()
        # What is away now is compared with what it had when it comes back.
        self._known = replace(now, counts={**known.counts, **now.counts}) if known else now
        if known is None:
            return None
        both = known.counts.keys() & now.counts.keys()
        runs, steps = (max(0, before - there) for before, there in zip(known.sums(both), now.sums(both), strict=True))
        rewind = Rewind(now.at, runs, steps, bool(known.generation) and known.generation != now.generation)
        if not (rewind.runs or rewind.steps or rewind.replaced):
            return None
        log.error(
            "the store lost data: %d runs and %d steps that it had counted are gone%s. "
            'See docs/how-to/find-the-cause.md, "The store has lost something"',
            rewind.runs,
            rewind.steps,
            ", and it is another store than before" if rewind.replaced else "",
        )
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hset(
            keys.rewound(),
            mapping={"at": now.at, "runs": rewind.runs, "steps": rewind.steps, "replaced": int(rewind.replaced)},
        )
        pipeline.expire(keys.rewound(), REMEMBERED)
        await pipeline.execute()
        return rewind

    async def last(self) -> Rewind | None:
        """The last one that any process noticed within a day. Raises what Redis raises, unless it is only the server
        that would know which is away."""
        if is_away(self._redis, keys.rewound()):
            await self._redis.ping()
            return None
        stored = await self._redis.hgetall(keys.rewound())
        if not stored:
            return None
        return Rewind(int(stored[b"at"]), int(stored[b"runs"]), int(stored[b"steps"]), stored[b"replaced"] == b"1")

    async def _state(self) -> _State:

        def put(pipeline: Pipeline, shard: str | None) -> None:
            if shard is None:
                pipeline.time()
                pipeline.get(keys.generation())
            else:
                pipeline.hmget(keys.counts(shard), (_RUNS, *_STEPS))

        found = dict(await ask_each(self._redis, (None, *self._rounds.seldom("rewinds", 1 / EVERY)), put))
        counts = {shard: _numbers(*reply) for shard, reply in found.items() if shard is not None}
        if None not in found:
            # The server that has the name is away.
            return _State(await now_ms(self._redis) // 1000, self._known.generation if self._known else b"", counts)
        (seconds, _), generation = found[None]
        if generation is None:
            # The first process names it.
            await self._redis.set(keys.generation(), secrets.token_hex(8), nx=True)
            generation = await self._redis.get(keys.generation()) or b""
        return _State(seconds, generation, counts)


def _numbers(counts: Sequence[bytes | None]) -> tuple[int, int]:
    """The runs and the steps of a shard."""
    runs, *steps = (int(count or 0) for count in counts)
    return runs, sum(steps)
