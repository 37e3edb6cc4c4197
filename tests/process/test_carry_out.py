"""Without a feature: its folder and its entry points are gone, and all else is as it was. A wheel says so of what it
brings, and a checkout runs the units of the core."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from datetime import date
from importlib.metadata import distributions, entry_points
from pathlib import Path
from typing import Any, Final

import pytest

from features.stack.redis_server import RedisServer
from palaver.config.variables import DIALECTS
from palaver.feature import GROUP, Feature, features
from tests.pages import ROOT, files
from tests.process.wheels import outside
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.slow]

_FOLDERS: Final = sorted(
    {entry.module.rpartition(".")[2] for group in (GROUP, DIALECTS) for entry in entry_points(group=group)}
)
_COUNTED: Final = frozenset(
    {
        *("submit", "act", "append", "ask", "attend", "cancel", "claim", "hand_back", "postpone", "settle", "sweep"),
    }
)
"""The scripts of the core that may submit or end a run, lease a step, or end a lease."""
_HOOKED: Final[Mapping[str, frozenset[str]]] = {
    "webhooks": frozenset(
        {
            *("submit", "act", "ask", "attend", "cancel", "hand_back", "postpone", "settle", "sweep"),
            *("claim", "promote", "fill", "append", "withdraw_after", "reserve", "find_allowed", "delete_run"),
        }
    ),
    "statistics": _COUNTED,
    "tracing": _COUNTED | {"promote"},
}
"""The scripts of the core that have a part of a feature, read for one, or leave runs that it sees to others.
Of one that is not here they are at least one."""
_LONGEST: Final = 1500
"""Seconds for a suite."""
_TODAY: Final = _FOLDERS[date.today().toordinal() % len(_FOLDERS)]
"""The one that is carried out in a usual run: each takes seconds. The long tier has all of them."""
_PROGRAM: Final = """
import json
import sys
from contextlib import redirect_stdout
from importlib.metadata import entry_points
from io import StringIO
from re import sub
from unittest.mock import patch

from redis import Redis
from typer.main import get_command
from palaver.api.app import create_app
from palaver.api.http.problems import CODES
from palaver.api.kit.signatures import Takes
from palaver.cli.app import app
from palaver.config.settings import Settings
from palaver.config.variables import DIALECTS, variables
from palaver.feature import features, loaded as loaded_entry
from palaver.store.scripting.scripts import VERSION, _sources
from palaver.store.scripting.shared_names import ScriptSettings
from palaver.store.server.needs import needs
from palaver.telemetry.metrics import all_metrics
from palaver.vocabulary.limits import all_limits
from palaver.workers.sources.guests import kinds_of_sources
from palaver.workers.steps import step

texts = _sources(ScriptSettings.of(Settings()), VERSION)
with Redis.from_url(sys.argv[1]) as server:
    loaded = {name: server.script_load(texts[name]) for name in texts}
with redirect_stdout(StringIO()) as said:
    get_command(app).main(["--help"], standalone_mode=False, max_content_width=1000, terminal_width=1000)
consoles = [loaded_entry(entry) for entry in entry_points(group=DIALECTS) if entry.name == "console"]
with patch.object(Takes, "of", wraps=Takes.of) as routed:
    document = create_app().openapi()
modules = {sub(":[a-z]+}", "}", call.args[1]): call.args[0].__module__.split(".") for call in routed.call_args_list}
brought_by = {path: module[2] for path, module in modules.items() if module[1] == "features"}
used = {tag for methods in document["paths"].values() for each in methods.values() for tag in each["tags"]}
print(json.dumps({
    "codes": sorted(CODES),
    "features": sorted(features()),
    "groups": [each["name"] for each in document["tags"]],
    "help": said.getvalue().splitlines(),
    "limits": [*all_limits()],
    "metrics": [*all_metrics()],
    "pages": sorted(path for console in consoles for path in console.pages if "/assets/" not in path),
    "paths": {path: brought_by.get(path) for path in sorted(document["paths"])},
    "rights": sorted({word for line in needs("api", ["store"]) for word in line if word.startswith("{palaver:")}),
    "scripts": loaded,
    "used": sorted(used),
    "telling": sorted(name for name in texts if "outbox" in texts[name]),
    "sources": sorted(kinds_of_sources()),
    "tool_classes": sorted(place for each in features().values() for place, _ in each.tool_classes),
    "variables": sorted(variables()),
}))
"""
"""Says what an installation has; a server has taken all of its scripts."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE)
    (made,) = folder.glob("*.whl")
    return made


def installed(wheel: Path, folder: Path, *, without: str | None = None) -> Path:
    """Unpack a wheel, and carry out a feature."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    if without is not None:
        shutil.rmtree(folder / "palaver" / "features" / without)
        (about,) = folder.glob("palaver-*.dist-info")
        listed = (about / "entry_points.txt").read_text()
        (about / "entry_points.txt").write_text(re.sub(rf"(?m)^.*\bfeatures\.{without}:.*\n", "", listed))
    return folder


def checkout(folder: Path, *, without: str) -> Path:
    """Copy the repository but for a feature, which is not installed there."""
    for path in (*files(), *(ROOT / "palaver" / "client" / "sync").glob("*.py")):
        place = path.relative_to(ROOT)
        if place.parts[:2] != ("features", without):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / place)
    about = next(each for each in distributions() if each.metadata["Name"] == "palaver")
    names = re.sub(rf"(?m)^.*\bfeatures\.{without}:.*\n", "", about.read_text("entry_points.txt") or "")
    (folder / "palaver-0.dist-info").mkdir()
    (folder / "palaver-0.dist-info" / "METADATA").write_text(about.read_text("METADATA") or "")
    (folder / "palaver-0.dist-info" / "entry_points.txt").write_text(names)
    # Tests of pages ask git for them.
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True, timeout=PATIENCE)
    return folder


def told(folder: Path, server: RedisServer) -> Any:
    """What the program says in an installation."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, server.url],
        cwd=folder,
        env=outside(PYTHONPATH=str(folder)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="module")
def whole(wheel: Path, server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What an installation has that lacks nothing."""
    return told(installed(wheel, tmp_path_factory.mktemp("whole")), server)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == _TODAY else pytest.mark.long) for name in _FOLDERS]
)
def test_all_else_is_as_it_was(name: str, wheel: Path, server: RedisServer, whole: Any, tmp_path: Path) -> None:
    left = told(installed(wheel, tmp_path, without=name), server)
    assert left["features"] == [each for each in whole["features"] if each != name]
    assert left["paths"] == {path: of for path, of in whole["paths"].items() if of != name}
    assert left["groups"] == [each for each in whole["groups"] if each in left["used"]]
    page = "/console" if name == "console" else f"/console/{name}"
    assert left["pages"] == [path for path in whole["pages"] if not path.startswith(page)]
    commands = {each.name for each in brought(name, "commands")}
    assert left["help"] == [line for line in whole["help"] if not commands.intersection(line.split()[:1])]
    feature = features().get(name, Feature(name))
    own = {
        "codes": {*brought(name, "problems")},
        "limits": {each.name for rows in dict(brought(name, "limits")).values() for each in rows},
        "metrics": {each.name for rows in dict(brought(name, "metrics")).values() for each in rows},
        "rights": {f"{feature.hash_tag}:preflight"},
        "sources": {*(feature.source or ())},
        "tool_classes": {package for package, _ in feature.tool_classes},
        "variables": {*feature.variables},
    }
    for what, names in own.items():
        assert left[what] == [each for each in whole[what] if each not in names]
    scripts = {script.name for script in brought(name, "scripts")}
    assert left["scripts"].keys() == whole["scripts"].keys() - scripts
    changed = {script for script, sha in left["scripts"].items() if sha != whole["scripts"][script]}
    assert changed == _HOOKED[name] if name in _HOOKED else bool(changed) == bool(feature.hooks and feature.on)
    assert name != "webhooks" or not left["telling"]


def brought(name: str, part: str) -> Any:
    """What a feature says of a part; nothing of a dialect."""
    feature = features().get(name)
    place = feature and getattr(feature, part)
    return feature.load(place) if feature and place else ()


def test_what_goes_with_each_is_there(whole: Any) -> None:
    """Without that, the test above would see no difference."""
    assert {*_FOLDERS} >= {*features()}
    assert {*whole["paths"].values()} > {None, "ag_ui", "batches", "mcp_server", "openai", "schedules", "webhooks"}
    assert whole["sources"] == ["celery", "http", "mcp"]
    assert whole["tool_classes"] == ["agents", "langchain_core", "pydantic_ai"]
    commands = {line.split()[0] for line in whole["help"] if line}
    assert commands > {"batch", "schedules", "stats", "store", "up", "webhooks"}
    assert {*whole["codes"]} > {"schedules_full", "batch_offset", "default_tenant", "webhook_of_file"}
    assert {*whole["limits"]} > {"batch_cells", "foreign_token", "http_answer", "mcp_body", "schedules", "webhook_kept"}
    assert {*whole["limits"]} > {"spans", "statistics_journal", "statistics_models"}
    assert {*whole["metrics"]} > {"palaver_schedule_ticks_total", "palaver_webhook_pending"}
    assert {*whole["groups"]} > {"batches", "schedules", "webhooks"}
    assert {*whole["pages"]} > {"/console/batches", "/console/schedules", "/console/statistics", "/console/webhooks"}
    assert {*whole["variables"]} > {"PALAVER_COPY_FROM", "PALAVER_DATA_DIR"}
    assert {*whole["telling"]} >= {"settle", "sweep"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name == _TODAY else pytest.mark.chaos) for name in _FOLDERS]
)
def test_the_units_of_the_core_are_green(name: str, tmp_path: Path) -> None:
    """It takes a minute: the long tier has the one that is carried out today, and all are among the chaos."""
    folder = checkout(tmp_path, without=name)
    # pytest has the plugins of both, and one is of the tree that this environment is of.
    without = ["-p", "no:cacheprovider", "-p", "no:palaver"]
    command = [sys.executable, "-m", "pytest", "tests/unit", "-q", "--forks", "2", *without]
    done = subprocess.run(
        [*command, "-m", "not process and not slow and not long and not chaos", "--hypothesis-profile=quick"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=_LONGEST,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"[0-9]{4} passed", done.stdout), done.stdout[-500:]
