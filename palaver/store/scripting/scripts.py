"""The Lua scripts: loaded once, called by their declarations, each one atomic on one hash slot.

Constants that Python knows too (the lifecycle table, the retention) are written into the scripts, so that they are
defined once. A change of them changes a script's SHA: old and new workers never run the same script with different
constants.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar

from redis.exceptions import NoScriptError, ResponseError

from palaver.config.settings import Settings
from palaver.errors import CorruptRecord, NewerVersion, NotDurable
from palaver.store.redis.busy import FEW, BusyMarks
from palaver.store.redis.connection import Connection, Value
from palaver.store.redis.keys import promised
from palaver.store.redis.visits import AWAY, answered
from palaver.store.scripting.additions import all_hooks, all_lua_files, all_scripts
from palaver.store.scripting.assembly import Assembler
from palaver.store.scripting.contracts.declaration import DECLARED, Script
from palaver.store.scripting.shared_names import ScriptSettings, shared_names
from palaver.vocabulary.ids import is_id

log = logging.getLogger("palaver.store.scripting.scripts")

VERSION: Final = 1
"""The version of the data that the scripts write. A change that older code would misread increments it (ADR 0015)."""

_WAIT_MS: Final = 2000
"""Milliseconds that a promise waits for disk or replicas: the API answers within three seconds."""
_WHEN_FULL: Final = "#!lua flags=allow-oom\n"
"""The first line of a script that Redis runs without memory left, too."""
_UNREADABLE: Final = re.compile(
    r"attempt to (perform|compare|index|concatenate|call|get) |bad argument #|Expected .{1,40} but found "
    r"|WRONGTYPE |is not an integer|The ID specified in XADD |Invalid stream ID "
)
"""Redis's messages for a script that met a record which is not as it was written. A full or busy Redis says something
else."""
R = TypeVar("R")
T = TypeVar("T")
Command = Sequence[Value]
"""A command of Redis with its arguments."""


class Scripts:
    """Runs the scripts of ``lua/`` on one connection pool."""

    def __init__(self, redis: Connection, settings: Settings, *, send: bool = False) -> None:
        """If scripts are to ``send`` deliveries to the broker, they do so where that is this very server."""
        self._redis = redis
        self.searching = asyncio.Semaphore()
        """The code that goes through lists has it, a part at a time."""
        self.taken = 0
        """Bytes that this process has asked Redis to store for clients, since it began."""
        self._marks = BusyMarks(redis) if settings.shards > FEW else None
        self._wait = _waiting(settings.durability)
        self._clustered = settings.clustered
        self._sources = _sources(ScriptSettings.of(settings, sends=send), VERSION)
        self._shas = self._sources.shas

    @property
    def names(self) -> Mapping[str, str]:
        """The name of each script by its SHA, which is all that SLOWLOG and MONITOR show of it."""
        return {self._shas[name]: name for name in self._sources}

    async def prepare(self, script: type[Script[Any]]) -> None:
        """Make the text of a script that is to be run later, in parts of a millisecond or a few."""
        for _ in self._sources.make(script.name):
            await asyncio.sleep(0)

    async def run(self, script: Script[R]) -> R:
        """The reply of one script.

        Raises:
            NewerVersion: newer code has worked on this conversation. Nothing was written.
            CorruptRecord: what the script has read is not as it was written.
            TypeError: a field of the script is not of its type; Redis was not asked.
        """
        keys, args = self._packed(script)
        try:
            try:
                answer = await self._redis.evalsha(self._shas[script.name], len(keys), *keys, *args)
            except NoScriptError:
                answer = await self._redis.eval(self._sources[script.name], len(keys), *keys, *args)
        except ResponseError as error:
            record_error = _of_record(error, keys)
            if record_error is error:
                raise
            raise record_error from error
        return script.read(answer)

    async def run_durably(self, script: Script[R]) -> R:
        """The reply of one script, once its writes, and all writes before them, are as durable as PALAVER_DURABILITY
        asks.

        Raises:
            NewerVersion: newer code has worked on this conversation. Nothing was written.
            NotDurable: that took too long; the script has run.
        """
        if self._wait is None:
            return await self.run(script)
        (answer,), _, durable = await self._run_durably([script], ())
        return _durable(_checked(answer), durable)

    async def run_durably_and_read(self, script: Script[R], reads: Sequence[Command]) -> tuple[R, list[Any]]:
        """The same, and the raw answers to ``reads``, errors among them: they travel with the script, and come right
        behind it. Raises as `run_durably`."""
        (answer,), answers, durable = await self._run_durably([script], reads)
        return _durable((_checked(answer), answers), durable)

    async def run_all(self, scripts: Iterable[Script[R]]) -> list[R]:
        """The replies of several scripts, sent at once; each is atomic, all together are not.

        Raises the first error that a script answered, after all have run.
        """
        return [_checked(reply) for reply in await self.run_each(scripts)]

    async def run_each(self, scripts: Iterable[Script[R]], *, visit: bool = False) -> list[R | Exception]:
        """As `run_all`, with the error in the place of the reply of a script that answered with one. To ``visit`` a
        shard is not to be busy there."""
        scripts = list(scripts)
        return _replies(scripts, await self._answers(scripts, (), visit=visit))

    async def run_for_each(self, things: Sequence[T], make: Callable[[T], Script[R]]) -> list[tuple[T, R]]:
        """The reply of the script that ``make`` makes for each of these, as `answered` has them: without those whose
        server is away. Raises as that. It is a visit."""
        return answered(things, await self.run_each(map(make, things), visit=True))

    def note_busy(self, shards: Iterable[str]) -> None:
        """Mark these shards for those who sweep, where there are many."""
        if self._marks is not None:
            for shard in shards:
                self._marks.touch(shard)

    async def close(self) -> None:
        """Say no more of what is busy."""
        if self._marks is not None:
            await self._marks.close()

    async def run_all_durably(self, scripts: Iterable[Script[R]]) -> tuple[list[R | Exception], bool]:
        """The reply of each script, or the error that it answered with; and whether what they wrote is as durable as
        PALAVER_DURABILITY asks."""
        replies, _, durable = await self._run_durably(list(scripts), ())
        return replies, durable

    async def write_durably(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands that no script is for. They are sent together, to keys of one slot, and each of them
        is carried out in its turn.

        Raises the first error among them, after all were carried out; NotDurable: what they wrote may be lost yet.
        """
        pipeline = self._redis.pipeline(transaction=False)
        for command in (*commands, *([self._wait[0]] if self._wait else ())):
            pipeline.execute_command(*command)
        answers = await pipeline.execute(raise_on_error=False)
        replies = [_checked(answer) for answer in answers[: len(commands)]]
        if self._wait:
            return _durable(replies, _reached(answers[-1]) >= self._wait[1])
        return replies

    async def _run_durably(
        self, scripts: Sequence[Script[R]], reads: Sequence[Command]
    ) -> tuple[list[R | Exception], list[Any], bool]:
        if self._wait is None or not scripts:
            answers = await self._answers(scripts, reads)
            return _replies(scripts, answers[: len(scripts)]), answers[len(scripts) :], True
        command, enough = self._wait
        # All on one connection: otherwise, after a failover, the wait would be for the writes of another server. A
        # script that finds its work done writes nothing, and the server waits for a connection's own writes. Of a
        # cluster, each server that has some of them waits.
        marks = [promised(script.pack()[0][0]) for script in (scripts if self._clustered else scripts[:1])]
        writes = [("SET", mark, 1, "EX", 60) for mark in dict.fromkeys(marks)]
        *answers, reached = await self._answers(scripts, (*reads, *writes, command))
        replies, written = _replies(scripts, answers[: len(scripts)]), answers[-len(writes) :]
        read_answers = answers[len(scripts) : -len(writes)]
        # Nothing is promised that a server was to write that is away.
        done = {mark for mark, reply in zip(marks, replies, strict=False) if not isinstance(reply, AWAY)}
        waited = [answer for write, answer in zip(writes, written, strict=True) if write[1] in done]
        failed = next((answer for answer in (*waited, reached) if isinstance(answer, Exception)), None)
        if failed:
            log.warning("what is promised cannot be waited for: %s", failed)
            return replies, read_answers, False
        return replies, read_answers, _reached(reached) >= enough

    async def _answers(
        self, scripts: Sequence[Script[Any]], then: Sequence[Command], *, visit: bool = False
    ) -> list[Any]:
        """The answers of scripts and of the commands behind them, errors among them. Scripts that the server does not
        have are loaded and sent again, with the commands."""
        answers = await self._pipeline(scripts, then, visit=visit)
        missed = [i for i, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if missed:
            for name in {scripts[i].name for i in missed}:
                await self._redis.script_load(self._sources[name])
            again = await self._pipeline([scripts[i] for i in missed], then, visit=visit)
            places = [*missed, *range(len(scripts), len(answers))]
            for i, answer in zip(places, again, strict=True):
                answers[i] = answer
        return answers

    def _packed(self, script: Script[Any], *, visit: bool = False) -> tuple[list[str], list[Value]]:
        keys, args = script.pack()
        if self._marks is not None and not visit:
            self._marks.touch_of(keys[0])
        if script.grows:
            self.taken += sum(len(arg) for arg in args if isinstance(arg, str | bytes))
        return keys, args

    async def _pipeline(
        self, scripts: Sequence[Script[Any]], then: Sequence[Command], *, visit: bool = False
    ) -> list[Any]:
        if not scripts:
            return []
        pipeline = self._redis.pipeline(transaction=False)
        for script in scripts:
            keys, args = self._packed(script, visit=visit)
            pipeline.evalsha(self._shas[script.name], len(keys), *keys, *args)
        for command in then:
            pipeline.execute_command(*command)
        return await pipeline.execute(raise_on_error=False)


def _replies(scripts: Sequence[Script[R]], answers: Sequence[Any]) -> list[R | Exception]:
    replies: list[R | Exception] = []
    for script, answer in zip(scripts, answers, strict=True):
        try:
            if isinstance(answer, Exception):
                answer = _of_record(answer, script.pack()[0])
            replies.append(answer if isinstance(answer, Exception) else script.read(answer))
        except (NewerVersion, TypeError) as error:
            replies.append(error)
    return replies


def _of_record(error: Exception, keys: Sequence[str]) -> Exception:
    """The error that a script answered, or what it says of the record that the script is about."""
    if type(error) is not ResponseError or not _UNREADABLE.search(str(error)):
        return error
    ids = dict.fromkeys(name for key in keys if is_id("run", name := key.rpartition(":")[2]) or is_id("conv", name))
    corrupt = CorruptRecord(" or ".join(ids) or "the lists")
    corrupt.__cause__ = error
    return corrupt


def _checked(reply: R | Exception) -> R:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _reached(answer: Any) -> int:
    """The number that WAIT or WAITAOF answers; 0 for an error."""
    if isinstance(answer, Exception):
        return 0
    return int(answer[0] if isinstance(answer, list) else answer)


def _durable(reply: R, durable: bool) -> R:
    if not durable:
        raise NotDurable(reply)
    return reply


class _Sources(Mapping[str, str]):
    """The text of each script, by its name, made when it is first asked for: few processes run more than a dozen."""

    def __init__(self, settings: ScriptSettings, version: int) -> None:
        self._names = shared_names(settings, version)
        self._assembler = Assembler(self._names, all_lua_files(), all_hooks())
        self._texts: dict[str, str] = {}
        self.shas: Mapping[str, str] = _Shas(self)
        """The name that Redis has for each of them, by its own."""

    def __getitem__(self, name: str) -> str:
        if name not in self._texts:
            script = DECLARED.get(name) or self._all[name]
            self._texts[name] = _WHEN_FULL * script.when_full + self._assembler.script(script).text
        return self._texts[name]

    def make(self, name: str) -> Iterator[None]:
        """Make a text, and its name for Redis, ahead of its use, with a pause before each part of that."""
        for part in self._assembler.parts(name):
            yield
            self._assembler.translate(part)
        yield
        self.shas[name]

    @cached_property
    def _all(self) -> Mapping[str, type[Script[Any]]]:
        return {script.name: script for script in all_scripts()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


_sources = lru_cache(maxsize=8)(_Sources)
"""They are the same for all stores of a process that have the same settings."""


class _Shas(dict[str, str]):
    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def __missing__(self, name: str) -> str:
        self[name] = sha = hashlib.sha1(self._sources[name].encode(), usedforsecurity=False).hexdigest()
        return sha


def _waiting(durability: str) -> tuple[Command, int] | None:
    """The command that waits, and the smallest number that it must answer; None if no wait is configured."""
    kind, _, number = durability.partition("=")
    match kind:
        case "replicas":
            return ("WAIT", int(number), _WAIT_MS), int(number)
        case "fsync":
            return ("WAITAOF", 1, 0, _WAIT_MS), 1
        case _:
            return None
