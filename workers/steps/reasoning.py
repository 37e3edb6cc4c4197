"""What a model thought goes back to its provider. One that no longer takes it is asked once more, without it.

What is encrypted can be read by those alone who made it, and they change their keys; or it was made for another
organization than the key of today belongs to. Nothing that anybody could mend is lost: the conversation is whole.
"""

from __future__ import annotations

import logging
from typing import Final

from palaver.errors import ProviderError, classify

from ..protocols import ModelReply
from .work import Work

log = logging.getLogger("palaver.workers.steps.reasoning")

_NOT_TAKEN: Final = ("invalid_encrypted_content", "item_not_found")
"""Codes of a refusal that is about what was sent back, and about nothing else."""


async def ask_with_reasoning(work: Work) -> ModelReply:
    """The model's answer to the conversation; if its provider refuses what was sent back to it, to the conversation
    without that, once.

    Raises:
        ProviderError, httpx.HTTPError: from the model port.
    """
    try:
        return await work.ask(work.agent, work.messages(), show=work.show)
    except ProviderError as error:
        agent = work.lease.agent
        code = classify(error, source="model", provider=agent.provider, model=agent.model_name).code
        if not code.endswith(_NOT_TAKEN) or work.shown or not work.drop_reasoning():
            raise
    log.warning("%s/%s goes on without earlier reasoning: %s", work.lease.run_id, work.lease.step, code)
    return await work.ask(work.agent, work.messages(), show=work.show)
