"""Fixtures of features' own tests: units have those of the core's units, tests of the store those of its contract."""

from __future__ import annotations

from tests.contract.conftest import (
    address,
    clock,
    driver,
    one_slot,
    pytest_collection_modifyitems,
    redis,
    server,
    settings,
    store,
)
from tests.unit.conftest import _patience, _secrets_of_one_test

__all__ = [
    "_patience",
    "_secrets_of_one_test",
    "address",
    "clock",
    "driver",
    "one_slot",
    "pytest_collection_modifyitems",
    "redis",
    "server",
    "settings",
    "store",
]
