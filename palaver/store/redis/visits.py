"""Visits to many places of the store in one go: to every shard, to some runs, to the reports of all workers.

One server answers for all of them, or for none. Of a cluster some masters may be away: then a visit goes on with what
the others answer. What it leaves out comes again in the next round of a loop; who answers a request has to say so, and
without a `Gap` to say it with, nothing is left out of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from redis.exceptions import ConnectionError, TimeoutError

from palaver.processes.context import Holding
from palaver.store.redis.connection import Connection, Pipeline

T = TypeVar("T")
R = TypeVar("R")
AWAY: Final = (ConnectionError, TimeoutError)
"""Errors of a server that does not answer."""


class Gap:
    """The parts of the store that a request could not see, as their servers are away."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        """Names of shards, and of providers."""


_gap: Final[ContextVar[Gap | None]] = ContextVar("palaver-gap", default=None)


def telling(gap: Gap) -> AbstractContextManager[None]:
    """Have what is answered within the block leave out what is away, and note it in ``gap``."""
    return Holding(_gap, gap)


def nothing_left_out() -> AbstractContextManager[None]:
    """Have all there is, or an error, within the block."""
    return Holding(_gap, None)


def answered(things: Iterable[T], replies: Iterable[R | Exception]) -> list[tuple[T, R]]:
    """Return those things whose server answered, each with its reply.

    Raises the first error that a server answered with; if none answers, that of the first.
    """
    there: list[tuple[T, R]] = []
    away: Exception | None = None
    for thing, reply in zip(things, replies, strict=True):
        if not isinstance(reply, Exception):
            there.append((thing, reply))
        elif isinstance(reply, AWAY):
            away = away or reply
        else:
            raise reply
    if away is not None and not there:
        raise away
    return there


async def ask_each(
    redis: Connection, things: Iterable[T], put: Callable[[Pipeline, T], object]
) -> list[tuple[T, Sequence[Any]]]:
    """Ask for each of these what ``put`` adds to the pipeline; return the answers about each whose server answers.

    Raises as `answered`.
    """
    pipeline = redis.pipeline(transaction=False)
    asked: list[tuple[T, int, int]] = []
    for thing in things:
        begin = len(pipeline)
        put(pipeline, thing)
        asked.append((thing, begin, len(pipeline)))
    replies = await pipeline.execute(raise_on_error=False) if len(pipeline) else []
    return answered([thing for thing, _, _ in asked], [_together(replies[begin:end]) for _, begin, end in asked])


async def tell_each(pipeline: Pipeline) -> None:
    """Have these carried out by those servers that answer. Raises as `answered`."""
    replies = await pipeline.execute(raise_on_error=False) if len(pipeline) else []
    answered(replies, replies)


def whole(parts: Sequence[str], there: Sequence[tuple[str, R]]) -> list[tuple[str, R]]:
    """Return what parts of the store answered, for an answer to a request: all of them, unless it tells how many are
    missing.

    Raises:
        ConnectionError: some did not answer, and the caller would not hear of it.
    """
    if len(there) < len(parts):
        gap, missing = _gap.get(), {*parts} - {part for part, _ in there}
        if gap is None:
            raise ConnectionError(f"{len(missing)} of {len(parts)} parts of the store do not answer")
        gap.missing |= missing
    return [*there]


def note_missing(parts: Iterable[str]) -> None:
    """Note that an answer to a request may lack what is in these parts of the store."""
    gap = _gap.get()
    if gap is not None:
        gap.missing |= {*parts}


def is_away(redis: Connection, key: str) -> bool:
    """Return whether the master that has this key did not answer the last time. False if one server has all keys."""
    knows = getattr(redis, "is_away", None)
    return knows is not None and bool(knows(key))


def _together(replies: Sequence[Any]) -> Sequence[Any] | Exception:
    """Return replies about one thing, or the first error among them."""
    return next((reply for reply in replies if isinstance(reply, Exception)), replies)
