"""Parts of an API that its first run needs, built once it is up: a start that waited for them would be longer, and so
would a first run."""

from __future__ import annotations

import asyncio
from typing import Final

from palaver.schemas.fields import DataModel
from palaver.schemas.models import AgentSpec, Message, Run, Submission
from palaver.store import Store
from palaver.store.scripting.contracts.runs import Submit

_MODELS: Final[tuple[type[DataModel], ...]] = (AgentSpec, Message, Submission, Run)
"""Those that are within others come first: they are not built twice."""


async def prepare_first_run(store: Store) -> None:
    """Build it in parts of a few milliseconds; between two of them requests are served."""
    for model in _MODELS:
        await asyncio.sleep(0)
        model.model_rebuild()
    await store.scripts.prepare(Submit)
    await store.memories.prepare()
