"""What a feature or a dialect gives to tests of the core: ``features/NAME/tests/cases.py``, each of these names left
out at will.

- ``async def endow(store, tag, words)`` has a tenant have something of each of its kinds of keys, and ``ENDOWED`` says
  how many things of its kind these are. Its kinds are in the docstrings of its modules ``…_keys.py``.
  ``prepare`` does so before its runs, and ``async def take_note(store, tag)`` amid them.
- ``async def check_key(redis, name, ttl)`` asserts the invariants of a key with its hash tag, and
  ``check_shard(shard)`` those of what a shard has: `SHARD_KINDS` are its kinds there, ``shard.of_features``.
- ``async def counted(store)`` has what it counted of runs, which `tests/checkers/sums.py` compares with what they were.
- ``REQUESTS`` has a `tests.cost.requests.Case` for each of its routes.
- ``NO_PART`` has its routes that give no part in a run, each with the reason (`tests/unit/test_ways_to_ask.py`).
- ``PARAMETERS`` has parameters of its routes, each with a value that fits and one that does not, ``STREAMS`` says how
  many of them may answer with a stream, and ``UNGROUPED`` has those that are in no group of its own.
- ``PROBES`` has its routes that want no key (`tests/unit/test_api_closed.py`).

Some parts have modules of their own there.

- ``costs.py``: ``SCRIPTS`` has a `tests.cost.case.Case` for each of its scripts.
- ``tenants.py``: what a tenant has at an API (`tests/unit/two_tenants.py`). ``async def furnish(api, who)`` has the
  tenant that the API is asked as have a bit of it, and returns what a request may name, by kind. ``own_keys(tag)`` are
  beginnings of keys with names that a tenant chooses, ``async def tidy(redis, tag)`` takes back what one of many
  requests made, ``async def seen(api)`` is what lets runs of others begin, ``CAUSES`` has routes that do so, and
  ``async def enlist(api)`` has two of each thing in lists.
- ``ways.py``: ``WAYS`` is a `tests.unit.asking.Ways` to ask for a payment, ``WORDS`` has words that are no approval.
- ``hostile.py``: ``bodies`` yields paths and bodies of requests about a `tests.unit.waiting_runs.Waiting`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Final

import pytest

from palaver.config.variables import DIALECTS
from palaver.feature import features
from tests.pages import ROOT

CARRIED_OUT: Final = sorted(
    name
    for name in {*re.findall(r"palaver\.features\.(\w+):", (ROOT / "pyproject.toml").read_text())}
    if not (ROOT / "features" / name).exists()
)
"""Features that the project names and this tree has not."""
of_the_whole: Final = pytest.mark.skipif(
    bool(CARRIED_OUT), reason=f"pages tell of features that were carried out: {', '.join(CARRIED_OUT)}"
)
"""Marks tests of pages that describe all features: they are true of the tree that has them."""


@cache
def brought_to_tests(part: str, module: str = "cases") -> Mapping[str, Any]:
    """Return this part of each feature and dialect of this repository that has one."""
    found = {}
    for name in sorted({*features(), *(entry.module.rpartition(".")[2] for entry in entry_points(group=DIALECTS))}):
        if (ROOT / "features" / name / "tests" / f"{module}.py").exists():
            cases = import_module(f"features.{name}.tests.{module}")
            if hasattr(cases, part):
                found[name] = getattr(cases, part)
    return found


def modules_of_keys() -> list[ModuleType]:
    """Return the modules of features that name keys."""
    paths = sorted((ROOT / "features").glob("*/*_keys.py"))
    return [import_module(f"features.{path.parent.name}.{path.stem}") for path in paths]
