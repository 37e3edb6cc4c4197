"""docs/how-to/failures.md is what happens, and so is what more_failures.txt has besides: the commands are run, and what
they answer is compared.

With REWRITE_PAGES=1 in the environment the answers are written into the page instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.pages import ROOT
from tests.process.cluster import Cluster
from tests.process.typed import shell

pytestmark = [pytest.mark.process, pytest.mark.long]

PAGES: Final = (ROOT / "docs/how-to/failures.md", ROOT / "tests/process/more_failures.txt")
BLOCK: Final = re.compile(r"(```console\n|```json\n)(.*?)(```)", re.DOTALL)
ID: Final = re.compile(r"\b(run|conv)_\w{28}")
FIELDS: Final = ("status", "stop_reason", "error")
DETAILS: Final = ("incomplete_details",)
"""Shown where there are some."""
VARIES: Final = (
    (ID, r"\1_00…"),
    (re.compile(r"again in [\d.]+ s"), "again in … s"),
    (re.compile(r"\breq-\d+"), "req-…"),
    (re.compile(r"^w1[ w\d]*(?=\n\(step 1 broke off)", re.MULTILINE), "w1 …"),
)


class Reader:
    """Follows the page: types its commands, and asks the API about the run that it saw last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, str] = {}
        """The newest run and conversation, by what the page writes in their place."""
        self._code = 0

    def answer(self, block: re.Match[str]) -> str:
        """The block as it is, from its first line to its last."""
        begin, content, end = block.groups()
        answer = self._type(content) if "console" in begin else self._look()
        for pattern, instead in VARIES:
            answer = pattern.sub(instead, answer)
        return begin + answer + end

    def _type(self, content: str) -> str:
        """The commands of a block, each with its answer behind it."""
        self._cluster.forget_cool_downs()
        answer = ""
        for command in [line for line in content.splitlines() if line.startswith("$ ")]:
            answer += f"{command}\n{self._run(command.removeprefix('$ '))}"
        return answer

    def _run(self, command: str) -> str:
        if command == "echo $?":
            return f"{self._code}\n"
        for written, meant in self._seen.items():
            command = command.replace(written, meant)
        here = {"PALAVER_URL": self._cluster.stack.url, "PYTHONUTF8": "1"}
        done = shell(command, here, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Signs of life are for slow machines.
        assert not [line for line in done.stderr.splitlines() if not line.startswith("… ")], done.stderr
        self._code = done.returncode
        for found in ID.finditer(done.stdout):
            self._seen[f"{found[1]}_00…"] = found[0]
        run_id = self._seen["run_00…"]
        if run_id not in self._cluster.submitted:
            self._cluster.submitted.append(run_id)
        return done.stdout

    def _look(self) -> str:
        run = self._cluster.http.get(f"/v1/runs/{self._seen['run_00…']}").json()
        shown = {name: run[name] for name in FIELDS} | {name: run[name] for name in DETAILS if run[name]}
        return json.dumps(shown, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_says_what_happens(cluster: Cluster, page: Path) -> None:
    written = page.read_text()
    happened = BLOCK.sub(Reader(cluster).answer, written)
    if os.environ.get("REWRITE_PAGES"):
        page.write_text(happened)
    else:
        assert happened == written, "if the page is to say this: REWRITE_PAGES=1"
