"""Features that are installed: what each says that it brings is there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args, get_type_hints

import pytest
from typer.main import get_command

from palaver import feature
from palaver.cli.app import app, program_of
from palaver.config.exits import EX_CONFIG
from palaver.config.variables import DIALECTS
from palaver.errors import ConfigurationError
from palaver.feature import Feature, NoSuchFeature, entries, features, with_rows
from palaver.store.scripting import scripts
from palaver.store.scripting.additions import all_lua_files, all_scripts
from palaver.store.scripting.assembly import lua_files
from palaver.store.scripting.contracts.core import SCRIPTS
from palaver.store.sides import StoreSide, exporting, sides
from palaver.telemetry.metrics import counted
from tests.imports import STANDS_ON, features_of
from tests.pages import ROOT
from tests.unit.api_world import SETTINGS, world
from tests.waiting import PATIENCE
from workers.sources import guests


class Row(NamedTuple):
    name: str


FIRST = next(iter(entries()))
PLACES = get_args(get_type_hints(feature.brought)["part"])


def test_each_folder_is_one() -> None:
    folders = {path.parent.name for path in (ROOT / "features").glob("*/__init__.py")}
    dialects = {entry.module.removeprefix("palaver.features.") for entry in entry_points(group=DIALECTS)}
    assert folders == {*features()} | dialects
    assert all((ROOT / "features" / name / "README.md").read_text().startswith("# ") for name in folders)


@pytest.mark.parametrize("name", features())
def test_what_it_brings_is_there(name: str) -> None:
    each = features()[name]
    assert all(each.load(place) is not None for place in (getattr(each, kind) for kind in PLACES) if place)


def test_its_scripts_and_its_side_of_the_store_are_known() -> None:
    assert {script.name for script in all_scripts()} > {script.name for script in SCRIPTS}
    assert all_lua_files().keys() > lua_files().keys()
    assert all(isinstance(side, StoreSide) for side in sides().values())


def test_its_keys_have_its_hash_tag() -> None:
    for name, side in sides().items():
        own = (*side.marks("acme00"), *side.traces("acme00"))
        assert all(key.startswith(f"{features()[name].hash_tag}:") for key in own)


def test_two_lua_files_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(each for each in features().values() if each.scripts)
    twice = dict.fromkeys(("once", "twice"), one)
    monkeypatch.setattr("palaver.store.scripting.additions.features", lambda: twice)
    with pytest.raises(ValueError, match="twice has a Lua file of a name that there is"):
        all_lua_files.__wrapped__()


def test_rows_stand_where_they_say_and_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {name: Row(name) for name in ("one", "two")}
    monkeypatch.setattr(feature, "brought", lambda part: [{"one": [Row("behind")], "unheard of": [Row("last")]}])
    assert [*with_rows(own, "limits")] == ["one", "behind", "two", "last"]
    monkeypatch.setattr(feature, "brought", lambda part: [{"one": [Row("two")]}])
    with pytest.raises(ValueError, match="have limits of one name: two"):
        with_rows(own, "limits")


def test_two_sections_of_an_export_with_one_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    number, side = next(exporting())
    twice = dict.fromkeys(("once", "twice"), side)
    monkeypatch.setattr("palaver.store.sides.sides", lambda: twice)
    with pytest.raises(ValueError, match=f"twice has a section in an export whose number .* has: {number}"):
        [*exporting()]


def test_an_entry_point_of_another_distribution_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    other = EntryPoint("notes", f"{__name__}:NOTES", feature.GROUP)
    monkeypatch.setattr(feature, "entries", lambda: {"notes": other})
    assert features.__wrapped__() == {"notes": NOTES}


def test_features_are_switched_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, *_ = entries()
    monkeypatch.setenv(feature.CHOICE, f"-{one}, -{other},")
    assert {*entries()} - {*entries.__wrapped__()} == {one, other}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("-nothing", f"there is no feature 'nothing' to switch off, but {FIRST}, "),
        (FIRST, f"'{FIRST}' is no feature that is switched off, such as -{FIRST}"),
    ],
)
def test_a_choice_that_does_not_fit_is_a_fault_of_the_settings(
    choice: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(feature.CHOICE, choice)
    with pytest.raises(NoSuchFeature, match=said):
        entries.__wrapped__()


@pytest.mark.process
@pytest.mark.parametrize("queue", ["model", "tools"])
def test_a_worker_says_itself_that_a_choice_does_not_fit(queue: str, tmp_path: Path) -> None:
    # `palaver worker` leaves it to the program that it becomes.
    (providers := tmp_path / "providers.toml").write_text('[providers.x]\nbase_url = "http://127.0.0.1:1/v1"\n')
    given = {"PALAVER_REDIS_URL": "redis://127.0.0.1:1/0", "PALAVER_PROVIDERS": str(providers)}
    done = subprocess.run(
        [sys.executable, "-m", "workers", "-A", "workers.app", "worker", "-Q", queue],
        cwd=ROOT,
        env={**os.environ, **given, feature.CHOICE: "-nothing"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == EX_CONFIG
    assert "there is no feature 'nothing' to switch off" in done.stderr


async def test_an_issuer_whose_tokens_no_feature_reads_is_a_fault_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Others of this process have these tables as they are made first.
    counted()
    monkeypatch.setattr(feature, "features", dict)
    # None that others of this process would have.
    monkeypatch.setattr(scripts, "_sources", scripts._Sources)
    settings = SETTINGS.model_copy(update={"oidc_issuer": "https://login.example.com", "oidc_audience": "palaver"})
    with pytest.raises(ConfigurationError, match="PALAVER_OIDC_ISSUER is set, and no feature that is installed reads"):
        async with world(settings):
            pass


def test_a_server_that_an_agent_names_wants_a_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature, "features", dict)
    with pytest.raises(ConfigurationError, match="no feature that is installed knows them"):
        guests.open_own_servers(SETTINGS, cast(Any, None))


def test_a_command_of_the_core_asks_for_no_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.cli.app.brought", lambda part: pytest.fail(part))
    get_command(app).main(["runs", "--help"], standalone_mode=False)
    assert [program_of(word) for word in ("runs", "show", "agents", "--help")] == [None] * 4
    with pytest.raises(pytest.fail.Exception, match="commands"):
        get_command(app).main(["--help"], standalone_mode=False)


def test_a_command_that_a_feature_had_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(feature, "features", dict)
    with pytest.raises(SystemExit, match="2"):
        get_command(app).main(["schedules", "list"])
    assert "No such command 'schedules'." in capsys.readouterr().err


NOTES = Feature("notes")


@pytest.mark.slow
def test_the_core_starts_without_any() -> None:
    asked = (
        "import sys; import palaver, palaver.store.store, palaver.operations, workers.steps.step, api;"
        "print([name for name in sys.modules if name.startswith('features.')])"
    )
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_tests_of_the_core_import_no_feature() -> None:
    """But for those that its tests stand on. What a feature has for them it brings (`tests/feature_cases.py`)."""
    files = [*ROOT.glob("tests/unit/*.py"), *ROOT.glob("tests/contract/*.py")]
    found = features_of(files)
    assert len(files) > 300
    assert {name: modules for name, modules in found.items() if name not in STANDS_ON} == {}
