"""What is installed without a checkout: the sdist, the wheel of it, and that wheel at work.

`make test` borrows what the wheel needs from the environment of the tests; `make check-package` installs all of it into
an empty one, from a package index.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Final

import httpx
import pytest

from deploy.release_check import install
from features.stack.ports import VARIABLES, Ports
from palaver import Palaver
from palaver.events import MessageDelta, StepStarted
from palaver.processes.process_tree import below
from palaver.version import __version__
from tests.pages import ROOT
from tests.process.wheels import ALONE, borrowing, outside, run, wheel_of
from tests.processes import gone
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.slow]

TOY: Final = ROOT / "examples" / "feature"
"""A distribution of its own, made by the recipe of CONTRIBUTING.md."""
PACKAGES: Final = ("palaver", "workers", "api", "features")
TOOL: Final = '''
from palaver import tool


@tool(idempotent=True)
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"
'''


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", folder)
    (made,) = folder.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Of the sdist, not of the checkout."""
    return wheel_of(sdist, sdist.parent)


@pytest.fixture(
    scope="module",
    params=["borrowed", pytest.param("installed", marks=pytest.mark.chaos)],
    ids=lambda param: str(param),
)
def environment(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel, and no other Palaver."""
    folder = tmp_path_factory.mktemp("environment")
    return borrowing(wheel, folder) if request.param == "borrowed" else install(wheel, folder, "server")


def test_the_sdist_has_what_the_wheel_is_built_from(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {PurePosixPath(name).parts[1] for name in archive.getnames()}
    documents = {"CHANGELOG.md", "LICENSE", "README.md", "PKG-INFO", "pyproject.toml", ".gitignore"}
    assert names == {*PACKAGES, "deploy", *documents}


def test_sdist_and_wheel_are_the_same_each_time(
    sdist: Path, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From files of another time and mode, in another folder: as in another clone."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for path in source.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (0, 0))
    run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path, cwd=source)
    (again,) = tmp_path.glob("*.tar.gz")
    assert again.read_bytes() == sdist.read_bytes()
    assert wheel_of(again, tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_has_every_module_under_one_name_and_nothing_else(wheel: Path) -> None:
    about = f"palaver-{__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        licence = archive.read(f"{about}/licenses/LICENSE").decode()
        told = archive.read(f"{about}/METADATA").decode()
    assert {name.partition("/")[0] for name in names} == {"palaver", about}
    sources = {path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()}
    sources = {path for path in sources if not {"conftest.py", "tests"} & {*path.parts}}
    expected = {f"palaver/{path}" if path.parts[0] != "palaver" else str(path) for path in sources}
    assert {name for name in names if name.startswith("palaver/")} == {
        name for name in expected if "__pycache__" not in name
    }
    assert licence == (ROOT / "LICENSE").read_text()
    assert "License-Expression: Apache-2.0" in told
    assert f"Version: {__version__}" in told


def test_the_wheel_answers_as_a_provider_and_has_no_judge(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")}
    assert "palaver/features/fake_provider/server.py" in texts
    assert not [name for name in texts if name.startswith("palaver/testing/")]
    assert not [name for name, text in texts.items() if "LedgerEntry" in text or "tests.model_server" in text]


def test_nothing_of_the_checkout_is_seen(environment: Path, tmp_path: Path) -> None:
    asked = "import json, palaver.workers.steps.step, palaver.api, sys, importlib.util as found; palaver.asgi();"
    asked += (
        "print(json.dumps([palaver.__file__, *(bool(found.find_spec(name)) for name in ('workers', 'api', 'tests'))]))"
    )
    place, *others = json.loads(run(environment / "python", "-c", asked, cwd=tmp_path))
    assert Path(place).is_relative_to(environment.parent)
    assert others == [False, False, False]
    assert run(environment / "palaver", "--version", cwd=tmp_path) == f"palaver {__version__}\n"


@pytest.mark.parametrize("command", ["worker", "serve", "up", "check"])
def test_it_does_not_start_in_a_clone_where_half_of_it_would_be_the_clone_s(environment: Path, command: str) -> None:
    started = [str(environment / "palaver"), command]
    done = subprocess.run(started, cwd=ROOT, env=outside(), capture_output=True, text=True, timeout=PATIENCE)
    said = "this folder is a clone, from which it would start in part: start it elsewhere"
    assert (done.returncode, done.stderr) == (78, f"palaver: palaver {command}: {said}\n")


@contextmanager
def is_up(environment: Path, folder: Path, **more: str) -> Iterator[tuple[subprocess.Popen[str], Ports]]:
    """`palaver up` in an empty folder, but for a tool."""
    ports = Ports.free()
    (folder / "greeting.py").write_text(TOOL)
    where = {VARIABLES[name]: str(port) for name, port in asdict(ports).items()}
    with subprocess.Popen(
        [environment / "palaver", "up"],
        cwd=folder,
        env=outside(PALAVER_TOOLS="greeting", PALAVER_LEASE_SECONDS="2", **where, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if "Ctrl-C" in line:
                    break
            assert "Palaver is up.\n" in lines, "".join(lines)
            yield process, ports
        finally:
            process.terminate()
            process.wait(30)


def test_a_run_outlives_its_worker_and_ctrl_c_leaves_nothing(environment: Path, tmp_path: Path) -> None:
    with is_up(environment, tmp_path) as (process, ports):
        url = f"http://127.0.0.1:{ports.api}"

        said = run(
            environment / "palaver", "run", "hello", "-m", "fake/tool-1", "-t", "greet", "--url", url, cwd=tmp_path
        )
        assert "← greet Hello, " in said
        assert httpx.get(f"{url}/openhands/health", trust_env=False, timeout=PATIENCE).status_code == 200, (
            "a dialect by its entry point"
        )

        with Palaver(url) as client:
            run_id = client.submit("Tell me a story.", model="fake/tokens-60+rate-20").id
            killed = ""
            workers = set[str]()
            for event in client.events(run_id):
                if isinstance(event, StepStarted):
                    workers.add(event.worker)
                elif isinstance(event, MessageDelta) and not killed:
                    (killed,) = workers
                    os.kill(int(killed.rpartition("/")[2]), signal.SIGKILL)
            assert client.get(run_id).status == "completed"
            assert len(workers) == 2

        pids = below(process.pid)
        assert len(pids) >= len(["redis", "fake_provider", "api", "worker", "tools", "flower"])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        eventually(lambda: all(gone(pid) for pid in pids))


def test_a_feature_of_another_distribution_is_at_work(environment: Path, tmp_path: Path) -> None:
    """Last: the environment has it from here on."""
    # Built here: an environment without a checkout has nothing to build with.
    run(sys.executable, "-m", "pip", "wheel", *ALONE, "--wheel-dir", tmp_path, TOY)
    (made,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "pip", "--python", environment / "python", "install", *ALONE, made)
    with is_up(environment, tmp_path, PALAVER_TALLY_HIDDEN='["incomplete"]') as (_, ports):
        url = f"http://127.0.0.1:{ports.api}"
        program = "import runpy; runpy.run_path('test_tally.py')['test_each_end_is_counted']()"
        done = subprocess.run(
            [environment / "python", "-c", program],
            cwd=TOY,
            env=outside(PALAVER_URL=url),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shown = run(environment / "palaver", "tally", "show", "--url", url, cwd=tmp_path)
        assert json.loads(shown) == {"completed": 1, "failed": 1}
