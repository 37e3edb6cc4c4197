"""The check of an answer against the format that the agent asks for: JSON, perhaps of a schema."""

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
    """Return how ``answer`` differs from what was asked for; None if it does not. The failure is recoverable the first
    time: the model is told, and may answer again."""
    response_format = attempt.lease.agent.response_format
    if response_format is None or isinstance(response_format, TextFormat):
        return None
    try:
        structured(response_format, answer.text)
    except UnfitAnswer as error:
        fits = f" that fits the schema {response_format.name}" if isinstance(response_format, JsonSchemaFormat) else ""
        text = f"[Automatic note] This answer is not what is asked for: {error}. Answer with nothing but JSON{fits}."
        return FormatMismatch(text, _failure(attempt))
    return None


def _failure(attempt: Attempt) -> Failure:
    agent = attempt.lease.agent
    at = ProviderDetails(agent.provider, agent.model_name)
    if attempt.prompt.corrected:
        return Failure.of(ErrorClass.INVALID_OUTPUT, _AGAIN, provider=at)
    return replace(Failure.of(ErrorClass.INVALID_OUTPUT, provider=at), recoverable=True)
