"""Checks for ``manage.py check``: of settings always, of Redis with ``--deploy``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Warning, register
from pydantic import ValidationError

from palaver.cli.text import one_line
from palaver.config.settings import Settings
from palaver.config.variables import PREFIX

from .project_settings import environment

_LEVELS: Final[Mapping[str, type[CheckMessage]]] = {"error": Error, "warning": Warning}
_WITHIN: Final = 60.0
_LONGEST: Final = 600


@register("palaver")
def check_settings(app_configs: Any, **more: Any) -> list[CheckMessage]:
    """Look at the settings, and at no server."""
    said, found = environment(), list[CheckMessage]()
    fields = {name.removeprefix(PREFIX).lower(): text for name, text in said.items()}
    try:
        Settings(**{name: text for name, text in fields.items() if name in Settings.model_fields})
    except ValidationError as error:
        for each in error.errors():
            name = f"{PREFIX}{'_'.join(map(str, each['loc'])).upper()}"
            found.append(Error(f"{name}: {each['msg']}", id="palaver.E001"))
    there = {**os.environ, **said}
    if not any(there.get(f"PALAVER_REDIS_URL{end}") for end in ("", "_FILE")):
        hint = 'PALAVER = {"REDIS_URL": "redis://127.0.0.1:6379/0"}, or the variable PALAVER_REDIS_URL'
        found.append(Warning("Palaver has no Redis.", hint=hint, id="palaver.W001"))
    return found


@register("palaver", deploy=True)
def check_servers(app_configs: Any, **more: Any) -> list[CheckMessage]:
    """Say what ``palaver check`` finds, in a process of its own."""
    there = {**os.environ, **environment()}
    command = [sys.executable, "-m", "palaver.cli", "check", "--json"]
    try:
        done = subprocess.run(command, env=there, capture_output=True, text=True, timeout=_WITHIN, check=False)
    except subprocess.TimeoutExpired:
        return [Error(f"palaver check takes longer than {_WITHIN:g} s", id="palaver.E002")]
    try:
        findings = json.loads(done.stdout)["data"]
    except ValueError:
        return [Error(one_line(done.stderr or "palaver check says nothing", _LONGEST), id="palaver.E002")]
    return [
        _LEVELS[each["level"]](
            f"{each['place']} {each['check']}: {each['found']}",
            hint=f"It {each['said']}. What to do: {each['advice']}",
            id=f"palaver.{each['level'][0].upper()}003",
        )
        for each in findings
        if each["level"] in _LEVELS
    ]
