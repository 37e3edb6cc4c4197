"""Processes that share a run of the suite: every test is run once, reported once, and blamed if its process ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import forks
from tests.pages import ROOT
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process

CONFTEST = """
import os, pytest
from tests.forks import run

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    run(session, 3)
    return True

@pytest.fixture(scope="session")
def opened(tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    yield folder
    print(f"{os.getpid()}", file=open(os.environ["LEDGER"], "a"))
"""
WELL = """
import os, pytest, warnings

@pytest.mark.parametrize("number", range(5))
def test_well(number, opened):
    pass

def test_prints(opened, capfd):
    os.write(1, b"there")
    assert capfd.readouterr().out == "there"

def test_skipped():
    pytest.skip("not here")
"""
BADLY = """
import os, signal, warnings

def test_fails(opened):
    print("printed before it")
    assert {"a": 1} == {"a": 2}

def test_ends_its_process():
    os._exit(3)

def test_behind_it(opened):
    warnings.warn("from a process")

def test_is_killed_as_the_last_one():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _run(folder: Path, *options: str, **files: str) -> str:
    for name, text in {"conftest": CONFTEST, **files}.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    # What is printed goes to a file: the end of a pipe comes only when whatever a test has left behind ends as well.
    with (folder / "printed").open("w+b") as printed:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", str(folder), f"--rootdir={folder}", "-c", os.devnull, *options],
            env={**os.environ, "PYTHONPATH": str(ROOT), "LEDGER": str(folder / "ledger")},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
        )
    return f"{(folder / 'printed').read_text()}exit {done.returncode}"


def test_each_test_is_run_once_whatever_becomes_of_a_process(tmp_path: Path) -> None:
    """Two files of the same tests, and one whose processes end: by themselves, and by a signal, with others behind."""
    printed = _run(tmp_path, "-rf", test_1=WELL, test_2=WELL, test_3=BADLY, test_4=WELL)
    assert "exit 1" in printed
    assert re.search(r"3 failed, 19 passed, 3 skipped, 1 warning\b", printed), printed
    assert "process 2 has ended with 3" in printed
    assert "process 2 has ended with -9" in printed
    assert "printed before it" in printed
    assert "{'a': 1} == {'a': 2}" in printed
    assert printed.count("UserWarning: from a process") == 1
    failed = re.findall(r"^FAILED \S+::(\w+)", printed, re.MULTILINE)
    assert failed == ["test_fails", "test_ends_its_process", "test_is_killed_as_the_last_one"]
    ended = (tmp_path / "ledger").read_text().split()
    assert len(ended) == len(set(ended)) >= 2, "fixtures end once in each process that lives to its end"


def test_who_has_computed_all_that_there_is_helps_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processes have a file that starts processes, and wait for a fourth one to have one as well, which then
    gives way to nobody. Each that is at its last test has taken another file by then."""
    together = """
import os
from pathlib import Path
from tests.waiting import eventually

def test_together():
    begun = Path(os.environ["LEDGER"]).parent / "begun"
    begun.mkdir(exist_ok=True)
    (begun / str(os.getpid())).write_text(str(os.nice(0)))
    eventually(lambda: len(list(begun.iterdir())) == 4, within=30)
"""
    waits = f"import pytest\npytestmark = pytest.mark.process\n{together}"
    computes = "import os\n\ndef test_computes():\n    assert os.nice(0) == min(int(os.environ['NICE']) + 10, 19)\n"
    monkeypatch.setenv("NICE", str(os.nice(0)))
    files = {f"tests/process/test_{number}": together for number in range(6)}
    files |= {"tests/unit/test_6": waits, "tests/unit/test_7": computes}
    printed = _run(tmp_path, conftest=CONFTEST.replace("(session, 3)", "(session, 4)"), **files)
    assert "exit 0" in printed, printed
    assert "8 passed" in printed
    assert {file.read_text() for file in (tmp_path / "begun").iterdir()} == {os.environ["NICE"]}


def test_long_files_are_there_and_begin_first() -> None:
    assert all((ROOT / file).is_file() for file in forks._LONG)
    nodes = ["tests/a/test_a.py::test_a", f"{forks._LONG[0]}::test_b", f"{forks._LONG[0]}::test_c"]
    items: Any = [SimpleNamespace(nodeid=node) for node in nodes]
    assert list(forks._by_file(items).items()) == [(forks._LONG[0], [1, 2]), ("tests/a/test_a.py", [0])]


def test_files_that_share_something_are_there_and_are_one() -> None:
    assert all(any(ROOT.glob(f"{beginning}*")) for group in forks._TOGETHER for beginning in group)
    group = next(group for group in forks._TOGETHER if len(group) > 1)
    nodes = ["tests/a/test_a.py::test_a", f"{group[-1]}::test_b", "tests/a/test_b.py::test_c", f"{group[0]}::test_d"]
    items: Any = [SimpleNamespace(nodeid=node) for node in nodes]
    assert list(forks._by_file(items).values()) == [[1, 3], [0], [2]]


def test_an_interrupt_within_a_test_loses_no_failure(tmp_path: Path) -> None:
    interrupts = """
def test_well():
    pass

def test_stops():
    raise KeyboardInterrupt

def test_no():
    assert False
"""
    printed = _run(tmp_path, "-rf", test_1=interrupts, test_2=WELL)
    assert "exit 1" in printed
    assert "has ended badly: with tests left" in printed


def test_a_process_that_dies_is_noticed_though_what_it_forked_lives(tmp_path: Path) -> None:
    leaves = """
import os, signal, time

def test_leaves_one_behind():
    if (pid := os.fork()) == 0:
        signal.alarm(100)
        signal.pause()
    with open(os.environ["LEDGER"] + ".left", "w") as left:
        print(pid, file=left)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    printed = _run(tmp_path, "-rf", test_1=leaves, test_2=WELL)
    assert "has ended with -9" in printed
    assert "exit 1" in printed
    # It lives until here.
    os.kill(int((tmp_path / "ledger.left").read_text()), signal.SIGKILL)


def test_a_run_that_stops_at_the_first_failure_ends_what_its_fixtures_have_begun(tmp_path: Path) -> None:
    printed = _run(tmp_path, "-x", test_1=WELL, test_2="def test_no(opened):\n    assert False\n", test_3=WELL)
    assert "stopping after 1 failures" in printed
    assert "exit 1" in printed
    ended = (tmp_path / "ledger").read_text().split()
    assert len(ended) == len(set(ended))
    assert ended
