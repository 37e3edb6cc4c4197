"""A worker's account of an attempt in the trace of its run: the facts that only it knows, without content."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

import orjson

from palaver.errors import Failure
from palaver.late import dataclass
from palaver.secrets.redaction import redact
from palaver.steps.verdicts import AskPerson, Continue, Finish, GiveUp, HandBack, Postpone, RetryAfter, Verdict

_WORD: Final = 64
"""Characters of a word: those of the protocols have 20 at most."""
_LOOKED_AT: Final = 1024
"""Characters that are looked through for secrets, so that one is seen whole before a text is cut."""


@dataclass(frozen=True, slots=True)
class InlineCall:
    """A tool call that was made within a model step."""

    call_id: str
    tool: str
    since: float
    """Seconds from the claim of the step."""
    seconds: float
    error: str | None
    """The class of the error that it ended with."""


@dataclass(slots=True)
class AttemptNotes:
    """Notes about an attempt while it is made."""

    finish_reason: str = ""
    response_id: str = ""
    response_model: str = ""
    first_token: float | None = None
    """Seconds from the call of the model to the first of its answer."""
    inline_calls: list[InlineCall] = field(default_factory=list)

    def dump(self, verdict: Verdict) -> bytes:
        """These, and what came of it, as the store keeps it until it is sent."""
        failure, usage = _failure(verdict), verdict.usage
        note: dict[str, Any] = {
            "usage": (
                usage.input_tokens,
                usage.cached_tokens,
                usage.cache_write_tokens,
                usage.output_tokens,
                usage.reasoning_tokens,
            ),
            "finish_reason": self.finish_reason,
            "response_id": self.response_id,
            "response_model": self.response_model,
            "first_token": self.first_token,
            "error": failure and (failure.error_class, failure.code),
            "inline": [(call.call_id, call.tool, call.since, call.seconds, call.error) for call in self.inline_calls],
        }
        return orjson.dumps({name: value for name, value in note.items() if value})


def word_of(text: str) -> str:
    """A provider's word for why its answer ended. It may say anything there: a text of any length, or the key again."""
    return redact(text[:_LOOKED_AT])[:_WORD]


def _failure(verdict: Verdict) -> Failure | None:
    match verdict:
        case RetryAfter(failure=failure) | GiveUp(failure=failure):
            return failure
        case Continue(message=None, outcomes=(outcome,)):
            return outcome.failure
        case Continue() | Finish() | Postpone() | AskPerson() | HandBack():
            return None
