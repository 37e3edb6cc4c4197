"""Somebody who reads a page beside a stack: types its commands, and compares what comes with what the page shows."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import Final

from tests.pages import Memory, commands
from tests.process.clocks import Clocks
from tests.process.cluster import Cluster
from tests.process.typed import shell
from tests.waiting import PATIENCE, eventually

_LOOKS: Final = ("palaver show", "palaver list", "palaver queues", "curl ", "grep ")
"""What changes nothing may be typed again until it is as the page says: what was asked for takes a moment."""


@dataclass
class Reader:
    """Reads one page, or a part of it; `url` is an API beside the cluster's, `environment` is of the commands."""

    cluster: Cluster
    url: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    clocks: Clocks | None = None
    """Of the cluster's processes, if they can be moved."""
    memory: Memory = field(default_factory=Memory)

    def follow(self, block: str) -> None:
        """Type the commands of a block. Raises AssertionError where the page does not say what comes."""
        for command, shown in commands(block):
            self._follow(command, shown)

    def answer(self, command: str) -> str:
        """What a terminal shows."""
        stack = self.cluster.stack
        meant = {
            "http://127.0.0.1:8080": self.url or stack.url,
            "http://127.0.0.1:5555": stack.flower_url,
            ".palaver/": f"{stack.data_dir}/",
        }
        for written, here in meant.items():
            command = command.replace(written, here)
        own = {"PALAVER_URL": self.url or stack.url, "PYTHONUTF8": "1", "COLUMNS": "200"}
        done = shell(command, {**own, **self.environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.removesuffix("\n") + "\n"

    def _follow(self, command: str, shown: str) -> None:
        typed = self.memory.typed(command)
        seen: list[str] = []

        def as_shown() -> bool:
            seen.append(self.answer(typed))
            return self.memory.matches(shown, seen[-1])

        try:
            eventually(as_shown, within=PATIENCE if any(word in command for word in _LOOKS) else 0)
        except AssertionError:
            raise AssertionError(f"$ {typed}\n{seen[-1]}\nand the page says\n{shown}") from None
        run_id = self.memory.meant.get("run_00…")
        if run_id and run_id not in self.cluster.submitted:
            self.cluster.submitted.append(run_id)
