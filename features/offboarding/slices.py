"""An erasure from its first slice to its receipt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from palaver.schemas.erasures import Erasure

from .erasures import Erasures

_PAUSE: Final = 0.2
"""Seconds between two slices while workers let go of runs, or old requests are answered."""


async def erase_in_slices(
    erasures: Erasures, name: str, *, tag: str | None = None, by: str | None = None, client: str | None = None
) -> AsyncGenerator[Erasure, None]:
    """Erase a tenant slice after slice; yields how far it is after each of them, and the receipt at the end. A caller
    that stops before that may begin again. Arguments and errors are those of `Erasures.erase`: from the second slice on
    it is the tenant of the first one that is meant, even if the name has another owner by then."""
    before = None
    while True:
        report = await erasures.erase(name, tag=tag, by=by, client=client)
        yield report
        if report.done:
            return
        if report == before:
            await asyncio.sleep(_PAUSE)
        before, tag = report, report.tag
