"""The tools of the workers."""

from __future__ import annotations

import asyncio
from datetime import datetime

from palaver.operations.backend import Backend, within_deadline
from palaver.operations.catalog import KnownTools
from palaver.tools import ToolDeclaration


class ToolState(ToolDeclaration):
    """A tool, and the workers that have it. While a deployment rolls there may be two versions of one tool."""

    workers: tuple[str, ...] = ()
    """The processes that have it now; none after the last of them has gone."""
    seen_at: datetime
    """The last time at which a worker told that it has it; UTC."""


async def known_tools(backend: Backend) -> KnownTools:
    """Return the declarations of tools by name, as they were a moment ago; none of a name that no worker has."""
    return await within_deadline(backend.catalog.tools()) or {}


async def read_tools(backend: Backend) -> list[ToolState]:
    """Return every tool that a worker has, or that the last ones of a queue had, by name; of one name, the one seen
    last is first."""
    sets = await within_deadline(backend.store.tools.declared())
    workers = await within_deadline(backend.store.fleet.workers())
    having: dict[str, list[str]] = {}
    for worker in workers:
        having.setdefault(worker.tools, []).append(worker.id)
    versions: dict[str, tuple[ToolDeclaration, datetime, list[str]]] = {}
    for digest, declared in sets.items():
        await asyncio.sleep(0)  # a full set takes some milliseconds
        for tool in declared.tools:
            version = versions.setdefault(tool.model_dump_json(), (tool, declared.seen_at, []))
            version[2].extend(having.get(digest, ()))
    states = [
        ToolState(**dict(tool), seen_at=seen_at, workers=tuple(sorted(ids))) for tool, seen_at, ids in versions.values()
    ]
    return sorted(states, key=lambda state: state.name)
