"""Asking the model for its next move: once more, if the conversation itself is what it does not take.

What a model thought goes back to its provider, and one that no longer takes it is asked without it. What is encrypted
can be read by those alone who made it, and they change their keys; or it was made for another organization than the key
of today belongs to. Nothing that anybody could mend is lost: the conversation is whole.
"""

from __future__ import annotations

import logging
from typing import Final

from palaver.errors import EmptyTurn, ErrorClass, Failure, ProviderError, ProviderHTTPError
from palaver.errors.response import is_about_media, refused_tool
from palaver.schemas.models import Usage
from palaver.steps.verdicts import RetryAfter
from palaver.store.scripting.contracts.providers import Wait

from ..protocols import PAUSE, WITHHELD, ModelReply
from .attempt import Attempt
from .condensing import condense, failure_of, is_too_long

log = logging.getLogger("palaver.workers.steps.asking")

_NOT_TAKEN: Final = ("invalid_encrypted_content", "item_not_found")
"""Codes of a refusal that is about what was sent back, and about nothing else."""
_PARTS: Final = 10
"""Requests for one answer, each without a part that was refused in the one before."""
_ROUNDS: Final = 5
"""Times that a conversation is condensed before one answer: 1,024 windows become one."""


async def ask_model(attempt: Attempt) -> ModelReply | RetryAfter | Wait:
    """The model's answer to the conversation, condensed before if it is longer than the agent lets it be, and as often
    as the model refuses it as too long: each time it loses three quarters. If its answer is what did not fit any more,
    and watchers have seen of it, the next attempt asks: they are told then that it is withdrawn.

    Raises:
        ProviderError: the conversation is still too long, or something else is wrong with the call.
    """
    prompt, stream = attempt.prompt, attempt.stream
    if (least := prompt.too_long) is not None and isinstance(wait := await condense(attempt, least=least), Wait):
        return wait
    for _ in range(_ROUNDS):
        try:
            return await _ask(attempt)
        except ProviderError as error:
            failure = failure_of(attempt, error)
            if not _is_worth_condensing(attempt, error, failure):
                raise
            condensed = await condense(attempt)
            if not condensed:
                raise
        if isinstance(condensed, Wait):
            return condensed
        if stream.shown:
            return RetryAfter(0.0, failure, attempts=attempt.lease.attempt + 1)
    return await _ask(attempt)


def _is_worth_condensing(attempt: Attempt, error: ProviderError, failure: Failure) -> bool:
    """Tell whether a shorter conversation may help. Once it may where the refusal could be about the length."""
    prompt = attempt.prompt
    if not attempt.lease.agent.condense or (attempt.stream.shown and prompt.condensed):
        return False
    sure = failure.error_class is ErrorClass.CONTEXT_WINDOW
    return (sure or not prompt.condensed) and is_too_long(error, prompt.bytes, failure)


async def _ask(attempt: Attempt) -> ModelReply | Wait:
    """The model's answer. An empty one behind results of tools may mean that it is done: it is asked once more with a
    word, as the same request would most likely have the same answer, and then taken at that.

    Raises:
        ProviderError, httpx.HTTPError: from the model port.
    """
    try:
        reply = await _answer(attempt)
        if not _is_blank(reply) or not attempt.prompt.ask_for_words():
            return reply
        attempt.stream.lost = True  # the blanks are no part of the answer that follows
    except EmptyTurn:
        if not attempt.prompt.ask_for_words():
            raise
    try:
        return await _answer(attempt)
    except EmptyTurn:
        return ModelReply("", (), "stop", Usage())


def _is_blank(reply: ModelReply | Wait) -> bool:
    """Tell whether it is an answer at an ordinary end that has nothing but blanks."""
    if not isinstance(reply, ModelReply) or reply.tool_calls or reply.finish_reason in ("length", WITHHELD, PAUSE):
        return False
    return reply.content.isspace()


async def _answer(attempt: Attempt) -> ModelReply | Wait:
    """The model's answer; if its provider refuses a part of the conversation for good, to the conversation without
    that.

    Raises:
        ProviderError, httpx.HTTPError: from the model port.
    """
    prompt, show = attempt.prompt, attempt.stream.show
    for left in reversed(range(_PARTS)):
        try:
            return await attempt.calls.ask(prompt.agent, prompt.protocol, prompt.messages(), show=show)
        except ProviderError as error:
            failure = failure_of(attempt, error)
            if not left or attempt.stream.shown or not _goes_on_without(attempt, error, failure):
                raise
        log.warning("%s/%s goes on without a part: %s", attempt.lease.run_id, attempt.lease.step, failure.code)
    raise AssertionError("the last refusal is raised")


def _goes_on_without(attempt: Attempt, error: ProviderError, failure: Failure) -> bool:
    """Leave out what is refused, if that is known; returns whether something is left out now."""
    prompt = attempt.prompt
    if failure.code.endswith(_NOT_TAKEN):
        return prompt.drop_reasoning()
    of_request = failure.error_class in (ErrorClass.INVALID_REQUEST, ErrorClass.NOT_FOUND)
    if not of_request or not isinstance(error, ProviderHTTPError):
        return False
    if (which := refused_tool(error.body)) is not None:
        name = attempt.calls.leave_out_tool(prompt.agent, which)
        if name is not None:
            prompt.tell_of_tool(name)
        return name is not None
    return is_about_media(error.body) and prompt.leave_out_media()
