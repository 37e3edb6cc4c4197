"""`palaver up` before it starts anything, and `palaver --version`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.demo import forget_settings
from features.stack.ports import Ports
from features.stack.provider_table import keys_that_lack, model_to_try
from features.stack.stack import Stack
from features.stack.up import main, welcome
from palaver.cli.app import app
from palaver.config.roles import ROLES
from palaver.errors import ConfigurationError
from palaver.version import __version__

Typed = Callable[..., tuple[int, str]]
URL = 'base_url = "http://127.0.0.1:1/v1"\n'


@pytest.fixture
def typed(capfd: pytest.CaptureFixture[str]) -> Typed:
    """The exit code, and what is said, in the terminal's own files."""

    def type_words(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, words)
        return result.exit_code, result.output + capfd.readouterr().err

    return type_words


def test_the_version_is_said(typed: Typed) -> None:
    assert typed("--version") == (0, f"palaver {__version__}\n")


def test_the_help_lists_the_roles(typed: Typed) -> None:
    _, said = typed("--help")
    assert all(
        re.search(rf"^    {role} +{re.escape(sentence)}$", said, re.MULTILINE) for role, sentence in ROLES.items()
    )


def test_without_the_server_it_says_what_to_install(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.config.roles.find_spec", lambda name: None)
    assert typed("up") == (78, "palaver: palaver up needs celery: pip install 'palaver[server]'\n")


def test_a_file_of_providers_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "providers.toml"
    file.write_text("[providers]\n")
    monkeypatch.setenv("PALAVER_PROVIDERS", str(file))
    with pytest.raises(SystemExit, match="78"):
        main()
    assert capfd.readouterr().err == f"palaver: PALAVER_PROVIDERS: {file} has no [providers.NAME]\n"


@pytest.mark.parametrize(
    ("entries", "shown"),
    [
        (f"[providers.mine]\n{URL}", ("mine/MODEL", ", with a model of mine for MODEL")),
        (f"[providers.mine]\n{URL}prices.small = {{ input = 1, output = 1 }}\n", ("mine/small", "")),
        (
            f'[providers.mine]\n{URL}prices."*" = {{ input = 1, output = 1 }}\n',
            ("mine/MODEL", ", with a model of mine for MODEL"),
        ),
    ],
)
def test_the_model_to_try_is_one_of_the_file(tmp_path: Path, entries: str, shown: tuple[str, str]) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(entries)
    assert model_to_try(str(file)) == shown


def test_the_first_request_has_a_key_where_one_is_wanted(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    said = welcome(stack, "fake/tool-20", "", keyed=True)
    assert "Submit a run, with a key of PALAVER_API_KEYS for KEY:\n" in said
    assert f"  curl -sS {stack.url}/v1/runs -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json'" in said
    assert f"{stack.url}/docs" not in said, "it wants a key, too"


def test_without_keys_the_first_request_has_none(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    said = welcome(stack, "fake/tool-20", "", keyed=False)
    assert "Submit a run:\n" in said
    assert f"  curl -sS {stack.url}/v1/runs -H 'Content-Type: application/json' -H 'Prefer: wait=30' \\\n" in said
    assert f"(try {stack.url}/docs)" in said
    assert f"\n  Console {stack.url}/console\n" in said
    assert "onsole" not in welcome(stack, "fake/tool-20", "", keyed=False, console=False)


def test_a_port_that_moved_is_named_for_other_terminals(tmp_path: Path) -> None:
    for port, named in ((18080, True), (8080, False)):
        stack = Stack(tmp_path, ports=replace(Ports.free(), api=port))
        said = welcome(stack, "fake/tool-20", "", keyed=False)
        assert (f"  export PALAVER_URL=http://127.0.0.1:{port}\n" in said) == named


def test_keys_that_are_not_set_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "providers.toml"
    file.write_text("".join(f'[providers.{name}]\n{URL}api_key_env = "{name.upper()}_KEY"\n' for name in ("a", "b")))
    monkeypatch.setenv("A_KEY", "a secret")
    monkeypatch.delenv("B_KEY", raising=False)
    assert keys_that_lack(str(file)) == {"b": "B_KEY"}
    assert keys_that_lack(None) == {}
    said = welcome(Stack(tmp_path), "a/MODEL", "", keyed=False, lacks={"b": "B_KEY"})
    assert "  B_KEY is not set: no worker asks b." in said


def test_the_demo_has_settings_of_its_own() -> None:
    environment = {"PALAVER_RETRY_POLICIES": "policies.toml", "PALAVER_API_KEYS_FILE": "/nowhere", "PATH": "/bin"}
    forget_settings(environment)
    assert environment == {"PATH": "/bin"}


def test_without_a_file_it_is_the_model_server() -> None:
    assert model_to_try(None) == model_to_try("") == ("fake/tool-20", "")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        model_to_try("nowhere.toml")
