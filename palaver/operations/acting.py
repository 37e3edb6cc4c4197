"""Serving a request for its caller: what it reaches, and as whose watcher it counts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from palaver.errors import Refused
from palaver.operations.backend import Caller
from palaver.processes.context import Holding
from palaver.store.reading.feeds import watches_for
from palaver.store.redis.reach import reach, within


class _Acting:
    __slots__ = ("_reach", "_watches")

    def __init__(self, caller: Caller) -> None:
        self._watches = Holding(watches_for, caller.key)
        self._reach = within(caller.reach)

    def __enter__(self) -> None:
        self._watches.__enter__()
        self._reach.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._reach.__exit__(*raised)
        self._watches.__exit__(*raised)


def acting_for(caller: Caller) -> AbstractContextManager[None]:
    """Do what is done within this context for ``caller``: what is beyond its reach is not there."""
    return _Acting(caller)


def check_sees_installation() -> None:
    """Check that whom this is done for may see what the whole installation does, all tenants together.

    Raises:
        Refused: ``operators_only``.
    """
    tenant, all_tenants = reach()
    if tenant and not all_tenants:
        raise Refused("operators_only", "What all tenants do together is shown to keys of operators.")
