"""The how-to pages show what happens: their commands are typed, and the answers are compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from palaver.testing import eventually
from tests.pages import ROOT, Memory, blocks, commands, files
from tests.process.cluster import Cluster

pytestmark = pytest.mark.process

OWN_TEST: Final = "failures.md"
"""Compared in full, by test_failures_page.py."""
PAGES: Final = [
    page
    for page in files("docs/how-to/*.md")
    if page.name != OWN_TEST and any(kind == "console" for kind, _ in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_page_says_what_happens(page: Path, cluster: Cluster) -> None:
    memory = Memory()
    for kind, content in blocks(page):
        if kind == "console":
            for command, shown in commands(content):
                follow(cluster, memory, command, shown)


def follow(cluster: Cluster, memory: Memory, command: str, shown: str) -> None:
    """Type it. What only looks is looked at again until it is as the page says: what was asked for takes a moment."""
    typed = memory.typed(command)
    seen: list[str] = []

    def as_shown() -> bool:
        seen.append(answer(cluster, typed))
        return memory.matches(shown, seen[-1])

    looks = any(word in command for word in ("palaver show", "palaver list", "palaver queues"))
    try:
        eventually(as_shown, within=20 if looks else 0)
    except AssertionError:
        raise AssertionError(f"$ {typed}\n{seen[-1]}\nand the page says\n{shown}") from None
    run_id = memory.meant.get("run_00…")
    if run_id and run_id not in cluster.submitted:
        cluster.submitted.append(run_id)


def answer(cluster: Cluster, command: str) -> str:
    """What a terminal shows."""
    url = cluster.stack.url
    here = {"PALAVER_URL": url, "PYTHONUTF8": "1", "COLUMNS": "200"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command.replace("http://127.0.0.1:8080", url)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **here, "PATH": path},
        timeout=60,
    )
    return done.stdout.removesuffix("\n") + "\n"
