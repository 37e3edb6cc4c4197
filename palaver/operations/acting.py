"""Serving a request for its caller: what it reaches, and as whose watcher it counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from palaver.errors import Refused
from palaver.operations.backend import Caller
from palaver.store.reading.feeds import watches_for
from palaver.store.redis.reach import reach, within


@contextmanager
def acting_for(caller: Caller) -> Iterator[None]:
    """Do what is done within this context for ``caller``: what is beyond its reach is not there."""
    before = watches_for.set(caller.key)
    try:
        with within(caller.reach):
            yield
    finally:
        watches_for.reset(before)


def check_sees_installation() -> None:
    """Check that whom this is done for may see what the whole installation does, all tenants together.

    Raises:
        Refused: ``operators_only``.
    """
    tenant, all_tenants = reach()
    if tenant and not all_tenants:
        raise Refused("operators_only", "What all tenants do together is shown to keys of operators.")
