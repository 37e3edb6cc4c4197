"""The Celery app of workers that do not go by the digests of declarations."""

from __future__ import annotations

from typing import Any

from palaver.tools import ToolDeclaration
from workers.app import app
from workers.steps.tool_versions import ToolVersions

__all__ = ["app"]


async def _made_here(*_: Any) -> None:
    return None


ToolDeclaration.digest = property(lambda _: "")  # type: ignore[method-assign, assignment]
ToolVersions.elsewhere = _made_here  # type: ignore[method-assign, assignment]
