"""`palaver up`, as somebody types it: real processes, on ports and in a directory of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from features.stack.ports import VARIABLES, Ports
from palaver.processes.process_tree import below
from palaver.schemas.models import Run
from tests.processes import gone
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.long]


@dataclass
class Up:
    """The command, while it runs."""

    process: subprocess.Popen[str]
    data_dir: Path

    def read_until(self, text: str) -> str:
        """What it prints up to the line with `text`."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if text in line:
                return "".join(lines)
        raise AssertionError(f"{text!r} never came:\n{''.join(lines)}")

    @property
    def pids(self) -> list[int]:
        """Every process that it started, and those that these have started."""
        return below(self.process.pid)


@contextmanager
def running(folder: Path, *words: str, **environment: str) -> Iterator[Up]:
    """The command, or another one of these words, from here to the end of the block."""
    places = {"PALAVER_DATA_DIR": str(folder / "data"), "PALAVER_REDIS_URL": "", "PALAVER_PROVIDERS": ""}
    with subprocess.Popen(
        [sys.executable, "-m", "palaver.cli", *(words or ["up"])],
        env={**os.environ, **places, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield Up(process, folder / "data")
        finally:
            process.terminate()
            process.wait(30)


def on(ports: Ports) -> dict[str, str]:
    """The variables that say so."""
    return {VARIABLES[name]: str(port) for name, port in asdict(ports).items()}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with running(tmp_path, **on(Ports.free())) as command:
        yield command


def ends(up: Up, ending: signal.Signals, least: int = 6) -> None:
    """By this signal, and one more behind it, with exit code 0 and no process left; there were as many as Redis, the
    model server and four roles are, or ``least``."""
    pids = up.pids
    assert len(pids) >= least
    up.process.send_signal(ending)
    up.process.send_signal(signal.SIGTERM)
    up.read_until("stopped")
    assert up.process.wait(10) == 0
    assert [pid for pid in pids if not gone(pid)] == []


def test_it_runs_until_ctrl_c_and_leaves_nothing(up: Up) -> None:
    assert "http://127.0.0.1:" in up.read_until("Ctrl-C")
    ends(up, signal.SIGINT)


def test_the_command_that_it_shows_works_with_an_own_file_of_providers(tmp_path: Path) -> None:
    """Until it is told to stop."""
    ports = Ports.free()
    file = tmp_path / "providers.toml"
    file.write_text(
        f'[providers.mine]\nbase_url = "http://127.0.0.1:{ports.fake_provider}/v1"\n'
        "prices.tool-1 = { input = 1, output = 1 }\n"
    )
    with running(tmp_path, PALAVER_PROVIDERS=str(file), **on(ports)) as up:
        shown = up.read_until("Ctrl-C")
        assert "http://127.0.0.1:" in shown
        (command,) = re.findall(r"^  (curl .*\\\n.*)$", shown, re.MULTILINE)
        answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
        run = Run.model_validate_json(answer)
        assert (run.status, run.model) == ("completed", "mine/tool-1")
        ends(up, signal.SIGTERM)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_what_has_ended_is_started_again_and_all_of_it_ends_when_it_is_killed(up: Up) -> None:
    redis = re.search(r"redis is ready \(process (\d+)\)", up.read_until("Ctrl-C"))
    assert redis
    os.kill(int(redis[1]), signal.SIGKILL)
    up.read_until("redis has ended; starting it again in 1 s")
    log = up.data_dir / "redis" / "redis.log"
    eventually(lambda: log.read_text().count("Ready to accept") == 2, why="redis runs again")
    pids = up.pids
    up.process.kill()
    eventually(lambda: all(gone(pid) for pid in pids), why="no process of the stack is left")
