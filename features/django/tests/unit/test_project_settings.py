"""``PALAVER`` in the settings of a project, the command that hands it over, and what ``manage.py check`` says of it."""

from __future__ import annotations

import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from features.django.tests import project as project

# isort: split
from django.apps import apps
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from palaver.contrib.django import project_settings

SAID = {
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "PROVIDERS": Path("/srv/providers.toml"),
    "CONSOLE": True,
    "RETENTION": 60,
    "WEBHOOK_HOSTS": ["a.internal", "b.internal"],
    "ARCHIVE_URL": None,
    "IDENTITY": "features.django.tests.site.by_name",
}
MADE = {
    "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0",
    "PALAVER_PROVIDERS": "/srv/providers.toml",
    "PALAVER_CONSOLE": "true",
    "PALAVER_RETENTION": "60",
    "PALAVER_WEBHOOK_HOSTS": "a.internal,b.internal",
    "PALAVER_TOOLS": "palaver.contrib.django.tools",
}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PALAVER_")]:
        monkeypatch.delenv(name)


def test_each_becomes_a_variable_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(PALAVER=SAID):
        assert project_settings.environment() == MADE
        monkeypatch.setenv("PALAVER_CONSOLE", "false")
        monkeypatch.setenv("PALAVER_REDIS_URL_FILE", "/run/secrets/redis")
        left = {name: text for name, text in MADE.items() if name not in ("PALAVER_CONSOLE", "PALAVER_REDIS_URL")}
        assert project_settings.environment() == left


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"REDIS_ULR": "redis://"}, "PALAVER['REDIS_ULR']: there is no such setting; did you mean 'REDIS_URL'?"),
        ({"redis_url": "redis://"}, "there is no such setting"),
        ({"PALAVER_REDIS_URL": "redis://"}, "did you mean 'REDIS_URL'?"),
        ({"IDENTITI": "a.b"}, "did you mean 'IDENTITY'?"),
        ({"REDIS_URL": object()}, "PALAVER['REDIS_URL'] is a text, a number"),
        ("redis://127.0.0.1", "PALAVER is a dict"),
        ({1: "redis://"}, "PALAVER is a dict"),
    ],
)
def test_what_does_not_fit_is_said_when_the_project_starts(said: Any, why: str) -> None:
    with override_settings(PALAVER=said), pytest.raises(ImproperlyConfigured) as refused:
        apps.get_app_config("palaver").ready()
    assert why in str(refused.value)


def test_the_command_becomes_palaver(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: became.append(arguments))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setattr(sys, "path", ["/srv/desk", *sys.path])
    with override_settings(PALAVER=SAID):
        call_command("palaver", "worker", "--tools", "-c", "4")
    [(program, words, there)] = became
    assert (program, words) == (sys.executable, [sys.executable, "-m", "palaver.cli", "worker", "--tools", "-c", "4"])
    assert there["PYTHONPATH"] == "/srv/desk:/elsewhere"
    assert MADE.items() <= there.items()
    call_command("palaver")
    assert became[-1][1][-1] == "--help"


def ids(**options: Any) -> dict[str, str]:
    return {each.id: each.msg for each in run_checks(tags=["palaver"], **options)}


def test_settings_are_checked_and_servers_only_for_a_deployment() -> None:
    with override_settings(PALAVER={}):
        assert ids() == {"palaver.W001": "Palaver has no Redis."}
    with override_settings(PALAVER={"REDIS_URL": "redis://127.0.0.1:1/0"}):
        assert ids() == {}
    with override_settings(PALAVER={"REDIS_URL": "redis://127.0.0.1:1/0", "SHARDS": "many"}):
        assert "PALAVER_SHARDS: " in ids()["palaver.E001"]
        with pytest.raises(CommandError, match="PALAVER_SHARDS"):
            call_command("check", "--tag", "palaver", stderr=StringIO())


@pytest.mark.process
def test_a_deployment_hears_what_palaver_check_says(redis_url: str, tmp_path: Path) -> None:
    with override_settings(PALAVER={"REDIS_URL": redis_url}):
        assert ids(include_deployment_checks=True) == {}
    with override_settings(PALAVER={"REDIS_URL": "redis://127.0.0.1:1/0"}):
        assert "store answer" in ids(include_deployment_checks=True)["palaver.E003"]
    with override_settings(PALAVER={"REDIS_URL": redis_url, "POLICY": tmp_path / "missing.toml"}):
        assert "PALAVER_POLICY" in ids(include_deployment_checks=True)["palaver.E002"]
