"""Dialects are found by their entry points, and those that nobody chose are not there."""

from __future__ import annotations

import ast
from importlib.metadata import entry_points
from pathlib import Path

import httpx
import pytest

from api.app import create_app
from api.app.installed import dialects_of
from api.native import NATIVE
from palaver.config.settings import Settings
from palaver.config.variables import DIALECTS
from palaver.errors import ConfigurationError
from palaver.feature import features, loaded
from tests.pages import ROOT, syntax
from tests.unit.api_world import world
from tests.unit.toy_dialect import TOY

OFFERED = """
[palaver.dialects]
toy = tests.unit.toy_dialect:TOY
gone = tests.unit.nothing:THERE
lost = tests.unit.toy_dialect:NOTHING
wrong = tests.unit.toy_dialect:LINES
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is installed and offers some."""
    folder = tmp_path / "offers-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: offers\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(OFFERED)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_all_that_are_installed_are_spoken_unless_some_are_chosen() -> None:
    assert Settings().dialects == ("*",)
    installed = {entry.name: loaded(entry) for entry in entry_points(group=DIALECTS) if entry.name != "console"}
    folders = {path.parent.name for path in (ROOT / "features").glob("*/dialect.py")}
    assert folders == {entry.module.rpartition(".")[2] for entry in entry_points(group=DIALECTS)}
    everything = tuple(sorted(installed))
    assert dialects_of(("*",)) == dialects_of(everything) == (NATIVE, *(installed[name] for name in everything))
    assert all(dialects_of((name,)) == (NATIVE, each) for name, each in installed.items())
    assert dialects_of(("native",)) == (NATIVE,)


@pytest.mark.usefixtures("package")
def test_another_package_brings_one() -> None:
    assert dialects_of(("toy",)) == dialects_of(("native", "toy")) == (NATIVE, TOY)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "toys",
            r"no dialect 'toys' is installed, there is .*toy.*; did you mean 'toy'\?",
        ),
        ("gone", "'gone' cannot be imported from tests.unit.nothing: No module named"),
        ("lost", "'lost' cannot be imported from tests.unit.toy_dialect: .* has no attribute 'NOTHING'"),
        ("wrong", "tests.unit.toy_dialect:LINES, which 'wrong' names, is no Dialect"),
    ],
)
def test_what_cannot_be_spoken_is_refused_in_a_sentence(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^PALAVER_DIALECTS: .*{said}"):
        create_app(Settings(dialects=(name,)))


async def test_one_that_is_switched_off_is_not_there() -> None:
    settings = Settings(redis_url="redis://fake/0", dialects=("native",))
    async with world(settings, dialects=dialects_of(settings.dialects)) as api:
        answer: httpx.Response = await api.client.get("/openhands/health")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        document = (await api.client.get("/openapi.json")).json()
    assert "openhands" not in {tag["name"] for tag in document["tags"]}
    assert not [path for path in document["paths"] if path.startswith("/openhands")]


def test_dialects_and_routes_reach_the_store_only_through_the_use_cases() -> None:
    folders = {entry.module.removeprefix("palaver.features.") for entry in entry_points(group=DIALECTS)}
    modules = [path for folder in folders for path in (ROOT / "features" / folder).glob("*.py")]
    modules += [ROOT / "features" / name / "routes.py" for name, feature in features().items() if feature.routes]
    assert len(modules) > 2 * len(folders)
    for path in modules:
        named = {node.module for node in ast.walk(syntax(path)) if isinstance(node, ast.ImportFrom) and node.module}
        assert not [name for name in named if name.startswith("palaver.store")], path
