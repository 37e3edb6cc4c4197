"""Clients of many runs, several of each, who do not know of each other: what they do is what recorders write down."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from tests.histories.recorder import Recorder
from tests.waiting import PATIENCE

_APPROVALS: Final = {"approvals": {"require": "always"}}
_TOOLS: Final = ("calculator", "record", "record_idempotent")
_AGENTS: Final[Sequence[tuple[str, Mapping[str, Any]]]] = (
    ("say-30+rate-100", {}),
    ("tool-3+use-each+rate-400", {}),
    ("tool-2+use-each", _APPROVALS),
    ("parallel-2+use-each", _APPROVALS),
)
_WAIT: Final = 5
"""Seconds that a client lets a read wait for something new."""
_ENDS: Final = frozenset({"completed", "incomplete", "failed", "cancelled", "expired"})


class Crowd:
    """Some runs at once, one after the other, until there were enough and `over` is said."""

    def __init__(self, recorder: Recorder, chance: random.Random, body: Callable[..., dict[str, Any]]) -> None:
        """`body`: what submits a run of a model and an agent, with tools."""
        self._recorder = recorder
        self._chance = chance
        self._body = body
        self._watching = Counter[str]()
        self._served: list[tuple[str, dict[str, Any]]] = []
        self.over = False
        self.runs: dict[str, str] = {}
        """By key."""
        self.clients = 0

    async def go(self, runs: int, at_once: int) -> None:
        """Until all has ended and was looked at a last time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._go_on(runs))
        # An end that was seen, and that the store has forgotten since.
        for key, body in self._served:
            if not await self._ended(key, self.runs[key]):
                await self._serve(key, body)
        await self._recorder.find()
        await self._recorder.close()

    async def _go_on(self, runs: int) -> None:
        while len(self._served) < runs or not self.over:
            model, agent = self._chance.choice(_AGENTS)
            key, body = uuid.uuid4().hex, self._body(model, tools=_TOOLS, agent=agent)
            self._served.append((key, {**body, "metadata": {"key": key}}))
            await self._serve(*self._served[-1])

    async def _serve(self, key: str, body: dict[str, Any]) -> None:
        """One run, from its submit to its end; a store that goes back may have forgotten either."""
        async with asyncio.timeout(PATIENCE):
            ended = False
            while not ended:
                submits = [self._submit(key, body) for _ in range(self._some(1, 2))]
                run = self.runs[key] = (await asyncio.gather(*submits))[0]
                self._watching[key] = watchers = self._some(1, 2)
                clients = [self._watch(key, run) for _ in range(watchers)]
                deciders = self._some(1, 3) if "approvals" in body["agent"] else 0
                clients += [self._decide(key, run) for _ in range(deciders)]
                clients += [self._speak(key, run) for _ in range(self._some(0, 3) // 2)]
                clients += [self._cancel(key, run) for _ in range(self._some(0, 4) // 3)]
                self.clients += len(submits) + len(clients)
                await asyncio.gather(*clients)
                if not self._some(0, 3):
                    # This comes too late.
                    await self._cancel(key, run)
                await self._recorder.events(key, run)
                ended = await self._ended(key, run)

    async def _ended(self, key: str, run: str) -> bool:
        return (await self._surely(key, run)).get("status") in _ENDS

    async def _submit(self, key: str, body: Mapping[str, Any]) -> str:
        while (run := await self._recorder.submit(key, body)) is None:
            pass
        return run

    async def _watch(self, key: str, run: str) -> None:
        """Look at it again and again."""
        while await self._goes_on(key, run):
            await self._recorder.events(key, run)
            await self._recorder.read(key, run)
        self._watching[key] -= 1

    async def _decide(self, key: str, run: str) -> None:
        """Decide on each call that waits, as another one may at the same time, while the run goes on for any client: an
        end that the store forgets is none."""
        while self._watching[key]:
            shown = await self._surely(key, run, wait=_WAIT, until="action")
            for action in shown.get("pending_actions", ()):
                decided, token = self._chance.choice(("approve", "approve", "deny")), uuid.uuid4().hex
                await self._twice(self._recorder.decide, key, run, action["id"], decided, token)

    async def _speak(self, key: str, run: str) -> None:
        """Say something into it, some time."""
        await self._some_time(key, run)
        await self._twice(self._recorder.say, key, run, uuid.uuid4().hex)

    async def _cancel(self, key: str, run: str) -> None:
        """Cancel it, some time."""
        await self._some_time(key, run)
        await self._twice(self._recorder.cancel, key, run)

    async def _twice(self, ask: Callable[..., Awaitable[bool]], *what: str) -> None:
        """Ask until that is answered, and sometimes again although it was."""
        for _ in range(self._some(1, 2)):
            while not await ask(*what):
                pass

    async def _some_time(self, key: str, run: str) -> None:
        for _ in range(self._some(0, 2)):
            await self._goes_on(key, run)

    async def _goes_on(self, key: str, run: str) -> bool:
        """Whether it does after the next change."""
        return (await self._surely(key, run, wait=_WAIT)).get("status", "completed") not in _ENDS

    async def _surely(self, key: str, run: str, **how: Any) -> dict[str, Any]:
        """The run, as often as its answer is lost."""
        while not (shown := await self._recorder.read(key, run, **how)):
            pass
        return shown

    def _some(self, least: int, most: int) -> int:
        return self._chance.randint(least, most)
