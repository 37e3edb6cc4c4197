"""Scripts of features, beside those of the core."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

from palaver.feature import Feature, brought, features
from palaver.store.scripting.assembly import Files, lua_files
from palaver.store.scripting.contracts.declaration import Script
from palaver.store.scripting.hooks import PLACES, Hooks

_SUBMITTED: Final = "run_submitted"


@cache
def all_scripts() -> tuple[type[Script[Any]], ...]:
    """Return the declarations of the core and of all features."""
    # Not above: a process that runs a few does without the others.
    from palaver.store.scripting.contracts.core import SCRIPTS

    return (*SCRIPTS, *(script for scripts in brought("scripts") for script in scripts))


@cache
def all_lua_files() -> Files:
    """Return every Lua file of the core and of all features. Raises ValueError for two of one name."""
    files = dict(lua_files())
    for name, feature in features().items():
        if not feature.scripts and not feature.hooks:
            continue
        for file in (resources.files(feature.package) / "lua").iterdir():
            known = file.name.removesuffix(".lua")
            if known in files:
                raise ValueError(f"the feature {name} has a Lua file of a name that there is: {file.name}")
            files[known] = file.read_text()
        if part := _shown(name, feature):
            files[f"_{part}"] = f"show_to('{name}')\n"
    return files


@cache
def all_hooks() -> Hooks:
    """Return the parts that features have in scripts of the core. Raises ValueError for one at a place that there is
    not."""
    parts: dict[str, list[str]] = {}
    for name, feature in features().items():
        if not feature.on:
            continue
        shown = {_SUBMITTED: part} if (part := _shown(name, feature)) else {}
        for place, part in {**shown, **feature.hooks}.items():
            if place not in PLACES:
                raise ValueError(f"the feature {name} has a part at {place}: there are {', '.join(PLACES)}")
            parts.setdefault(place, []).append(f"_{part}")
    return parts


def _shown(name: str, feature: Feature) -> str | None:
    """Return the part that lets a feature see every run, if it has none that says which ones."""
    sees_all = feature.hooks and not feature.may_miss and _SUBMITTED not in feature.hooks
    return f"show_to_{name}" if sees_all else None
