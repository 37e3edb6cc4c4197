"""The tutorial and the README are followed word by word, on free ports: that one in a copy of the repository, with
`make up`; the README in an empty folder, where what is installed here is on the path.

What the README calls `openai` is a server of the test's own: the one word that a reader does not find is its address.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

import pytest

from features.stack.ports import VARIABLES, Ports
from tests.pages import ROOT, Memory, blocks, blocks_of, commands, files
from tests.process.attentive_model import attentive_model
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.slow]

PATIENCE: Final = 60.0
"""Seconds that a reader waits for what the page shows."""


class Program:
    """A command in a terminal: what it has written so far, and Ctrl-C."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str], screen: Path) -> None:
        self.screen = screen
        with screen.open("wb") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.screen.read_text()

    def interrupt(self) -> None:
        """Ctrl-C: to every process of the terminal."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> str:
        """Wait for the end; everything that it wrote, up to the prompt in a line of its own."""
        self._process.wait(PATIENCE)
        return self.output.removesuffix("\n") + "\n" if self.output else ""

    def close(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self.interrupt()
            self._process.wait(PATIENCE)


class Reader:
    """Somebody who has two terminals, and does what the page says."""

    def __init__(self, home: Path, screens: Path, openai: str = "") -> None:
        self._home = home
        self._openai = openai
        self._screens = screens
        self._memory = Memory()
        self._ports = Ports.free()
        self._stack: Program | None = None
        """What runs in the first terminal."""
        self._count = 0

    def follow(self, kind: str, content: str) -> None:
        """Do what a block of the page says, and compare."""
        content = content.replace(":8080", f":{self._ports.api}").replace(":5555", f":{self._ports.flower}")
        if kind in ("python", "toml"):
            name = re.match(rf"# (\w+\.{kind[:2]}\w*)\n", content)
            assert name, "the first line of a file says its name"
            entry = f'[providers.openai]\nbase_url = "{self._openai}"\napi_key_env = "OPENAI_API_KEY"\n'
            (self._home / name[1]).write_text(content.replace("[providers.openai]\n", entry))
        elif content.startswith("^C\n"):
            self._stop(content.removeprefix("^C\n"))
        elif kind == "text":
            self._expect(self._first_terminal, f"…\n{content}")
        else:
            for command, shown in commands(content) if kind == "console" else ():
                self._type(self._memory.typed(command), shown)

    def close(self) -> None:
        if self._stack:
            self._stack.close()

    @property
    def _first_terminal(self) -> Program:
        assert self._stack
        return self._stack

    def _type(self, command: str, shown: str) -> None:
        if re.search(r"\b(make|palaver) up$", command):
            self._stack = self._start(command)
            self._expect(self._stack, shown)
        elif "^C\n" in shown:
            first, _, rest = shown.partition("^C\n")
            program = self._start(command)
            self._expect(program, first)
            program.interrupt()
            self._compare(command, f"{first}\n{rest}", program.end())
        elif " show " in command:
            # What the reader did a moment ago may not have had its effect yet: he looks again.
            eventually(lambda: self._memory.matches(shown, self._start(command).end()), within=PATIENCE, why=shown)
        else:
            self._compare(command, shown, self._start(command).end())

    def _start(self, command: str) -> Program:
        self._count += 1
        return Program(command, self._home, self._environment(), self._screens / f"{self._count}.txt")

    def _stop(self, shown: str) -> None:
        """Ctrl-C in the first terminal."""
        stack = self._first_terminal
        before = len(stack.output)
        stack.interrupt()
        self._compare("^C", f"…\n{shown}", stack.end()[before:])

    def _expect(self, program: Program, shown: str) -> None:
        """Wait for it."""
        try:
            eventually(lambda: self._memory.matches(shown, program.output, so_far=True), within=PATIENCE)
        except AssertionError:
            raise AssertionError(f"{program.output}\nand the page says\n{shown}") from None

    def _compare(self, command: str, shown: str, answer: str) -> None:
        assert self._memory.matches(shown, answer), f"$ {command}\n{answer}\nand the page says\n{shown}"

    def _environment(self) -> dict[str, str]:
        """As it is in a terminal, but for the ports, and for what tells CI its processes."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER_")}
        ports = {variable: str(getattr(self._ports, name)) for name, variable in VARIABLES.items()}
        ours = {name: os.environ[name] for name in ("PALAVER_CI_DATA_DIR",) if name in os.environ}
        url = f"http://127.0.0.1:{self._ports.api}"
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        return {**inherited, **ours, **ports, "PATH": path, "PALAVER_URL": url, "PYTHONUTF8": "1", "COLUMNS": "200"}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository with an environment that is installed already, and with nothing else that was made in it but what
    is compiled: that takes seconds, and tells a reader nothing."""
    home = tmp_path / "palaver"
    for file in (each for found in files() for each in (found, Path(cache_from_source(str(found)))) if each.exists()):
        copy = home / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    (home / ".venv").symlink_to(sys.prefix)
    for requirement in ("pyproject.toml", "palaver/version.py", "constraints.txt"):
        os.utime(home / requirement, (0, 0))
    return home


def parts() -> Iterator[Any]:
    """The parts of the README that start a stack: who reads the next has stopped it."""
    for number, part in enumerate(re.split(r"^## ", (ROOT / "README.md").read_text(), flags=re.MULTILINE)):
        if any(kind == "console" for kind, _ in blocks_of(part)):
            yield pytest.param(part, id=part.partition("\n")[0] if number else "README")


def follow(text: str, home: Path, screens: Path) -> None:
    with attentive_model() as openai, closing(Reader(home, screens, openai)) as reader:
        for kind, content in blocks_of(text):
            reader.follow(kind, content)


def test_the_tutorial_can_be_followed_word_by_word(clone: Path, tmp_path: Path) -> None:
    follow((ROOT / "docs/tutorial/first-run.md").read_text(), clone, tmp_path)


@pytest.mark.parametrize("part", [*parts()])
def test_the_readme_can_be_followed_word_by_word(tmp_path: Path, part: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    follow(part, home, tmp_path)


def test_the_first_screen_has_an_agent_in_twelve_lines() -> None:
    (program,) = [code for kind, code in blocks(ROOT / "README.md") if kind == "python"]
    assert len([line for line in program.splitlines() if line]) <= 12
