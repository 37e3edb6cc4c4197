"""Whether an answer is what the agent asks for: JSON, perhaps of a schema."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from palaver.errors import ErrorClass, Failure, ProviderDetails
from palaver.schemas.model_options import JsonSchemaFormat, TextFormat
from palaver.schemas.models import Message
from palaver.schemas.structured_output import UnfitAnswer, structured
from palaver.steps.verdicts import FormatMismatch

from .attempt import Attempt

_AGAIN: Final = "The answer does not have the format that was asked for, also after the model was told what is wrong."


def misfit_of(answer: Message, attempt: Attempt) -> FormatMismatch | None:
    """What is wrong with ``answer``; None if it is what was asked for. Once the model is told so, and may answer again:
    its failure is recoverable the first time."""
    wanted = attempt.lease.agent.response_format
    if wanted is None or isinstance(wanted, TextFormat):
        return None
    try:
        structured(wanted, answer.text)
    except UnfitAnswer as error:
        fits = f" that fits the schema {wanted.name}" if isinstance(wanted, JsonSchemaFormat) else ""
        text = f"[Automatic note] This answer is not what is asked for: {error}. Answer with nothing but JSON{fits}."
        return FormatMismatch(text, _failure(attempt))
    return None


def _failure(attempt: Attempt) -> Failure:
    agent = attempt.lease.agent
    at = ProviderDetails(agent.provider, agent.model_name)
    if attempt.prompt.corrected:
        return Failure.of(ErrorClass.INVALID_OUTPUT, _AGAIN, provider=at)
    return replace(Failure.of(ErrorClass.INVALID_OUTPUT, provider=at), recoverable=True)
