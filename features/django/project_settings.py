"""``PALAVER`` in the settings of a project: Palaver's settings by their names without the prefix, and what is for the
project alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string, module_has_submodule

from palaver.config.secret_files import SUFFIX
from palaver.config.variables import PREFIX, unread, variables
from palaver.vocabulary.names import did_you_mean

OWN: Final = frozenset({"IDENTITY", "TOLD_SECRET"})
"""Keys that are no variable of Palaver's."""
DISCOVERED: Final = "agent_tools"
"""The module of an application in which its tools are."""
_TOOLS: Final = f"{__package__}.tools"


def own(name: str) -> Any:
    """Return what the project says under a key of its own; None if it says nothing."""
    return _said().get(name)


def hook(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function whose dotted path stands under a key. Raises ImproperlyConfigured if there is none."""
    place = own(name)
    if place is None:
        return otherwise
    try:
        found = import_string(place)
    except (ImportError, TypeError) as error:
        raise ImproperlyConfigured(f"PALAVER[{name!r}] is the dotted path of a function: {error}") from error
    if not callable(found):
        raise ImproperlyConfigured(f"PALAVER[{name!r}]: {place} is no function")
    function: Callable[..., Any] = found
    return function


def environment() -> dict[str, str]:
    """Return the variables that ``PALAVER`` stands for, but those that the environment has: it wins.

    Raises:
        ImproperlyConfigured: a key that is no setting, or a value that no variable can have.
    """
    said = {name: value for name, value in _said().items() if name not in OWN and value is not None}
    made = {f"{PREFIX}{name}": _text(name, value) for name, value in said.items()}
    known = {name.removeprefix(PREFIX) for name in variables()} | OWN
    if unread(made):
        wrong = next(name for name in said if unread({f"{PREFIX}{name}": ""}))
        raise ImproperlyConfigured(f"PALAVER[{wrong!r}]: there is no such setting{did_you_mean(wrong, known)}")
    if tool_modules():
        made[f"{PREFIX}TOOLS"] = _TOOLS
    return {name: value for name, value in made.items() if not any(os.environ.get(name + end) for end in ("", SUFFIX))}


def tool_modules() -> list[str]:
    """Return the names of the modules with tools: `agent_tools` of each application, and those of ``TOOLS``."""
    found = [config.name for config in apps.get_app_configs() if module_has_submodule(config.module, DISCOVERED)]
    more = _said().get("TOOLS") or ()
    named = more.split(",") if isinstance(more, str) else more
    return [*dict.fromkeys([*(f"{name}.{DISCOVERED}" for name in found), *(name.strip() for name in named)])]


def _said() -> Mapping[str, Any]:
    said = getattr(settings, "PALAVER", {})
    if not isinstance(said, Mapping) or not all(isinstance(name, str) for name in said):
        raise ImproperlyConfigured('PALAVER is a dict, such as {"REDIS_URL": "redis://127.0.0.1:6379/0"}')
    return said


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float | Path):
        return str(value)
    if isinstance(value, list | tuple) and all(isinstance(each, str | Path) for each in value):
        return ",".join(map(str, value))
    raise ImproperlyConfigured(f"PALAVER[{name!r}] is a text, a number, True or False, or a list of texts")
