"""The tools of the workers."""

from __future__ import annotations

import asyncio

from palaver.tools import ToolDeclaration

from .backend import Backend, within_deadline


class ToolState(ToolDeclaration):
    """A tool, and the workers that have it. While a deployment rolls there may be two versions of one tool."""

    workers: tuple[str, ...] = ()
    """The processes that have it now; none for a while after the last of them has gone."""


async def read_tools(backend: Backend) -> list[ToolState]:
    """Return every tool that a worker has or had within the last hour, by name; of one name, the one seen last is
    first."""
    sets = await within_deadline(backend.store.tools.declared())
    workers = await within_deadline(backend.store.fleet.workers())
    having: dict[str, list[str]] = {}
    for worker in workers:
        having.setdefault(worker.tools, []).append(worker.id)
    versions: dict[str, tuple[ToolDeclaration, list[str]]] = {}
    for digest, declarations in sets.items():
        await asyncio.sleep(0)  # a full set takes some milliseconds
        for tool in declarations:
            versions.setdefault(tool.model_dump_json(), (tool, []))[1].extend(having.get(digest, ()))
    states = [ToolState(**dict(tool), workers=tuple(sorted(ids))) for tool, ids in versions.values()]
    return sorted(states, key=lambda state: state.name)
