"""The tools that workers have in several versions, as while a deployment rolls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from palaver.config.settings import Settings
from palaver.errors import ErrorClass, classify
from palaver.store import Store
from palaver.store.server.findings import Finding

from ..sources import Elsewhere

_SHOWN: Final = 10
_MEANS: Final = (
    "is declared differently by workers that live: each call goes to those that declare it as the model was shown it, "
    "and waits for them meanwhile"
)
_ADVICE: Final = "let the deployment come to its end; if none is under way, give all workers the same version"


def look_at_tool_versions(settings: Settings) -> Iterator[Finding]:
    """Yield what there is to say, which is nothing as long as workers agree. A store that does not answer has a finding
    of its own."""
    try:
        differing = asyncio.run(_differing(settings))
    except Exception as error:
        if classify(error).error_class is not ErrorClass.STORAGE:
            raise
        return
    if differing:
        more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        found = f"several versions: {', '.join(differing[:_SHOWN])}{more}"
        yield Finding("tools", "versions", "warning", found, _MEANS, _ADVICE)


async def _differing(settings: Settings) -> list[str]:
    elsewhere = Elsewhere()
    async with Store.connect(settings) as store:
        elsewhere.take(await store.tools.declared())
    return sorted(elsewhere.differing)
