"""The connection of a process that dies between any two commands of Redis."""

from __future__ import annotations

import random
from typing import Any

from tests.contract.clock import TurnedRedis


class Killed(BaseException):
    """The process has died."""


class MortalRedis(TurnedRedis):
    """The connection of a process that dies at some command, before or behind it; then nothing of it goes on."""

    chance = 0.0
    dice = random.Random(0)
    dead = False

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        self._survive()
        answer = await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        self._survive()
        return answer

    def _survive(self) -> None:
        self.dead = self.dead or self.dice.random() < self.chance
        if self.dead:
            raise Killed
