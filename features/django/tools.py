"""The tools of the project, for workers: ``PALAVER_TOOLS=palaver.contrib.django.tools``, which ``manage.py palaver``
sets.

Importing it sets Django up, once in each process of tools. A call has a connection to the database that is fresh, and
leaves none that is not, as a request of Django's does: before it and behind it what is broken or older than
CONN_MAX_AGE is closed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import close_old_connections

from palaver.tools import Tool, load_tools

from .project_settings import tool_modules


def _project_tools() -> dict[str, Tool]:
    if not apps.ready:
        django.setup()
    built_in = {id(tool) for tool in load_tools(())}
    found = (tool for tool in load_tools(tool_modules()) if id(tool) not in built_in)
    return {f"tool_{number}": replace(tool, call=_as_request(tool)) for number, tool in enumerate(found)}


def _as_request(tool: Tool) -> Callable[..., Any]:
    call = tool.call
    if tool.is_async:
        # The one thread in which `sync_to_async` runs what uses the database.
        close = sync_to_async(close_old_connections)

        @functools.wraps(call)
        async def on_loop(*args: Any, **kwargs: Any) -> Any:
            await close()
            try:
                return await call(*args, **kwargs)
            finally:
                await close()

        return on_loop

    @functools.wraps(call)
    def blocking(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return call(*args, **kwargs)
        finally:
            close_old_connections()

    return blocking


globals().update(_project_tools())
