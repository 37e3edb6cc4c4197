"""The file of PALAVER_TOOL_SOURCES: which guests it names, what it may say, and ``palaver tools check``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver import ToolContext
from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError
from palaver.feature import Feature, features
from palaver.vocabulary.limits import limit_of
from workers.commands import tool_sources
from workers.sources import SOURCES, guests, open_toolbox, sources_of

_GUEST = "tests.unit.shouting"


def install(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Have a feature of the tests beside those that are installed."""
    installed = {**features(), "shout": Feature("tests.unit", source=("shout", place))}
    monkeypatch.setattr(guests, "features", lambda: installed)


@pytest.fixture(autouse=True)
def guest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest of the tests."""
    install(monkeypatch, "shouting:KIND")
    monkeypatch.delitem(sys.modules, _GUEST, raising=False)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that the settings name."""
    path = tmp_path / "tools.toml"
    monkeypatch.setenv("PALAVER_TOOL_SOURCES", str(path))
    settings.cache_clear()
    yield path
    settings.cache_clear()


def _declaring(file: Path, text: str) -> Settings:
    file.write_text(text)
    return Settings()


async def test_tools_that_a_file_declares_are_called_as_others(file: Path) -> None:
    here = _declaring(file, "[shout.once]\n[shout.often]\nmarks = 3\n")
    async with open_toolbox(here, sources_of(here)) as tools:
        assert {"calculator", "shout_once", "shout_often"} <= {tool.name for tool in tools.declarations}
        assert await tools.call("shout_often", {}, ToolContext()) == "HEY!!!"


def test_a_guest_is_imported_by_nobody_whose_file_does_not_name_it(file: Path) -> None:
    file.write_text("")
    assert sources_of(Settings()) == SOURCES
    assert sources_of(Settings(tool_sources=None)) == SOURCES
    assert _GUEST not in sys.modules


@pytest.mark.slow
def test_who_has_no_file_imports_no_guest_and_nothing_that_one_needs() -> None:
    program = (
        "import sys; from workers.sources import guests, sources_of; from palaver.config.settings import Settings\n"
        "sources_of(Settings(redis_url='redis://x'))\n"
        "wanted = 'features.', 'palaver.celery', 'aiohttp', 'kombu'\n"
        "print([name for name in sys.modules if name.startswith(wanted)])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[shuot.once]", "[shuot] is no kind of source; did you mean 'shout'?"),
        ("[mail.once]", "[mail] is no kind of source; there are: "),
        ("[shout.once]\nmraks = 3", "shout.once.mraks: is no key here; did you mean 'marks'?"),
        ("[shout.once]\nmarks = 'x'", "shout.once.marks: must be a valid integer"),
        ("[shout.'a b']", "shout.a b"),
        ("shout = 3", "shout: must be a"),
        ("[shout", "is not TOML"),
        (
            "\n".join(f"[shout.s{number}]" for number in range(limit_of("tool_sources") + 1)),
            f"{limit_of('tool_sources') + 1} sources; at most {limit_of('tool_sources')}",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence_that_names_the_place(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        sources_of(Settings())
    assert str(refused.value).startswith(f"PALAVER_TOOL_SOURCES: {file}")
    assert said in str(refused.value)


def test_a_file_that_is_not_there_is_a_sentence(file: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"PALAVER_TOOL_SOURCES: cannot read .*tools.toml"):
        sources_of(Settings())


def test_a_guest_whose_package_is_not_installed_says_what_to_install(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "nowhere:KIND")
    file.write_text("[shout.once]")
    said = r"\[shout\.…\] needs tests\.unit\.nowhere: pip install 'palaver\[shout\]'"
    with pytest.raises(ConfigurationError, match=said):
        sources_of(Settings())


def test_check_says_of_each_source_whether_it_answers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[shout.once]\n[shout.hoarse]\nbroken = true\n")
    assert tool_sources.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "shout.once  ok     It shouts.",
        "                   tools: shout_once",
        "shout.hoarse  WRONG  It is hoarse.",
        "                     what to do: Give it tea.",
    ]
    assert tool_sources.main(["shout.once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "data": [{"source": "shout.once", "ok": True, "found": "It shouts.", "tools": ["shout_once"], "advice": ""}]
    }


@pytest.mark.parametrize(("text", "arguments", "code"), [("", [], 78), ("[shout.once]", ["shout.onec"], 2)])
def test_check_refuses_what_it_cannot_do(file: Path, text: str, arguments: list[str], code: int) -> None:
    file.write_text(text)
    with pytest.raises(SystemExit) as refused:
        tool_sources.main(arguments)
    assert refused.value.code == code
