"""Pages of a kit for chats, as a browser has them but without a screen, in one process of Node.js."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from tests.process.cluster import Cluster
from tests.process.node import NodeProgram
from tests.waiting import PATIENCE, eventually

Shown = dict[str, Any]


def has_word(word: str) -> Callable[[Shown], bool]:
    """A condition: a page shows an answer with this word, which is not its first. Ids may have the same letters, but no
    blank before them."""
    return lambda shown: f" {word}" in str(shown["messages"])


class NodePages:
    """Pages with a chat, in a process. Its program, `pages.mjs`, takes a line of JSON for what the user does on one of
    them, and answers with what the page shows after that."""

    def __init__(self, cluster: Cluster, process: subprocess.Popen[str]) -> None:
        self.cluster = cluster
        self._process = process

    def keep(self, model: str, **agent: Any) -> str:
        """Keep an agent on the server; its name."""
        name = f"agent-{uuid4().hex[:8]}"
        kept = self.cluster.http.put(f"/v1/agents/{name}", json={"model": f"fake/{model}", **agent})
        assert kept.status_code == 201, kept.text
        return name

    def act(self, do: str, page: str, **more: Any) -> Shown:
        """Do something on a page; what it shows then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "page": page, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the pages have ended"
        shown: Shown = json.loads(line)
        return shown

    def shows(self, page: str, condition: Callable[[Shown], Any], within: float = PATIENCE) -> Shown:
        """What a page shows once it is as ``condition`` wants it."""
        found: Shown = {}

        def looks() -> bool:
            found.update(self.act("look", page))
            return bool(condition(found))

        try:
            eventually(looks, within=within, why=f"{page} does not get there")
        except AssertionError as error:
            raise AssertionError(f"{error}: {found}") from None
        return found


@contextmanager
def node_process(program: NodeProgram) -> Iterator[subprocess.Popen[str]]:
    """The process of such a program."""
    with subprocess.Popen(
        [program.node, "pages.mjs"],
        cwd=program.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=program.environment,
    ) as process:
        yield process
        process.kill()
