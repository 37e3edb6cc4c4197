"""What a feature or a dialect gives to tests of the core: ``features/NAME/tests/cases.py``, each of these names left
out at will.

- ``async def endow(store, tag, words)`` has a tenant have something of each of its kinds of keys, and ``ENDOWED`` says
  how many things of its kind these are. Its kinds are in the docstrings of its modules ``…_keys.py``.
  ``prepare`` does so before its runs, and ``async def take_note(store, tag)`` amid them.
- ``async def check_key(redis, name, ttl)`` asserts the invariants of a key with its hash tag, and
  ``check_shard(shard)`` those of what a shard has.
- ``async def counted(store)`` has what it counted of runs, which `tests/checkers/sums.py` compares with what they were.
- ``SCRIPTS`` has a `tests.cost.cases.Case` for each of its scripts, ``REQUESTS`` a `tests.cost.requests.Case` for each
  of its routes.
- ``NO_PART`` has its routes that give no part in a run, each with the reason (`tests/unit/test_ways_to_ask.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from palaver.config.variables import DIALECTS
from palaver.feature import features
from tests.pages import ROOT


def brought_to_tests(part: str) -> Mapping[str, Any]:
    """Return this part of each feature and dialect of this repository that has one."""
    found = {}
    for name in sorted({*features(), *(entry.module.rpartition(".")[2] for entry in entry_points(group=DIALECTS))}):
        if (ROOT / "features" / name / "tests" / "cases.py").exists():
            cases = import_module(f"features.{name}.tests.cases")
            if hasattr(cases, part):
                found[name] = getattr(cases, part)
    return found


def modules_of_keys() -> list[ModuleType]:
    """Return the modules of features that name keys."""
    paths = sorted((ROOT / "features").glob("*/*_keys.py"))
    return [import_module(f"features.{path.parent.name}.{path.stem}") for path in paths]
