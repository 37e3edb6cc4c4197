"""A failure: an exception, classified. It is what travels; the exception never does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import field, replace
from typing import Annotated, Final, NotRequired

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

from palaver.errors.vocabulary import FACTS, ErrorClass, Source, UserAction
from palaver.late import dataclass
from palaver.secrets.redaction import is_name, redact, redact_parts
from palaver.vocabulary.limits import limit_of

MAX_MESSAGE: Final = limit_of("error_message")
"""Characters a failure's message may have: enough for two sentences, too few for a prompt."""

_MAX_QUOTE: Final = limit_of("provider_message")
"""Bytes of a provider's message."""

_SCRUB_WINDOW: Final = 4 * MAX_MESSAGE  # only so much is searched: messages of tools may be megabytes
_LONGEST_SECRET: Final = 1024  # a key that the window would cut is seen whole

_WORD: Final = re.compile(r"[A-Za-z0-9]{0,11}")
_HASH: Final = re.compile(r"[0-9a-f]{40}")


def _unless_named(found: re.Match[str]) -> str:
    """Take out what looks like a key, unless it is a name that is known, or reads like a name of a function
    (``hf_list_models``), or like the hash of a commit."""
    text = found[0].rstrip(".-")
    words = "-" not in text and all(map(_WORD.fullmatch, text.split("_")))
    known = words or _HASH.fullmatch(text) is not None or is_name(text)
    return found[0] if known else f"[redacted]{found[0][len(text) :]}"


_SECRETS: Final[tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]] = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 [redacted]"),
    (re.compile(r"://[^/\s@]{1,256}@"), "://[redacted]@"),
    (re.compile(r"(://[^\s?'\"]{1,512}\?)[^\s'\"]+"), r"\1[redacted]"),
    (
        re.compile(
            r"(?i)((?:api|access|secret|private|auth|signing)[-_ ]?key|token|secret|passw(?:or)?d|signature)"
            r"(['\"]?\s*[:=]\s*['\"]?)[^\s'\"&,;]{4,}"
        ),
        r"\1\2[redacted]",
    ),
    (re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|pplx|glpat|gh[opsu]|github_pat|xox[abeprs])[-_][\w*.-]{6,}"), _unless_named),
    (re.compile(r"\b(?:AKIA|ASIA|AIza|ya29\.|eyJ)[\w./+=-]{12,}"), _unless_named),
    (re.compile(r"(?<![A-Za-z0-9_+=])[A-Za-z0-9_+=]{40,}"), _unless_named),
)
_QUOTED_KEYS: Final = (
    (re.compile(r"[\w.-]{0,64}(?:\*{3,}|•{2,})[\w*•.-]{0,64}|[\w-]{2,64}(?:\.{3}|…)[\w-]{2,64}"), "[redacted]"),
    (
        re.compile(
            r"(?i)((?:key|token|credential|secret)(?:\s(?:provided|given|passed|received|used|was|is))?\s?[:=]\s?)"
            r"[^\s,;]{4,}"
        ),
        r"\1[redacted]",
    ),
    (re.compile(r"(?i)(\bkey\b[^.]{0,40}\bend(?:s|ing) (?:in|with) )\S+"), r"\1[redacted]"),
)
"""Matches the ways in which providers repeat a part of a key that they refuse: ``sk-…abcd``, ``te***ng``, ``key
provided: abcd``."""
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def safe_text(text: str, limit: int = MAX_MESSAGE) -> str:
    """One line of at most ``limit`` characters, without control characters, secrets of this process or what looks like
    a key."""
    most_looked_at = max(_SCRUB_WINDOW, 2 * limit)
    window = redact(text[: most_looked_at + _LONGEST_SECRET])[:most_looked_at]
    line = " ".join("".join(char if char.isprintable() else " " for char in window).split())
    for pattern, instead in _SECRETS:
        line = pattern.sub(instead, line)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def safe_quote(text: str | None) -> str | None:
    """Return a provider's words, for readers of the run alone: as ``safe_text``, and without parts of keys.

    At most 2 KiB, cut between two characters; None if nothing is left.
    """
    line = safe_text(text or "", _MAX_QUOTE)
    for pattern, instead in _QUOTED_KEYS:
        line = pattern.sub(instead, line)
    line = redact_parts(line)
    if len(line.encode()) > _MAX_QUOTE:
        line = line.encode()[: _MAX_QUOTE - len("…".encode())].decode(errors="ignore").rstrip() + "…"
    return line or None


def safe_code(text: object) -> str | None:
    """``text`` in lower case if it reads like a provider's error code, else None: foreign text is no code, and neither
    is a part of a key, as codes are logged and counted."""
    if not isinstance(text, str) or not _CODE.fullmatch(text) or redact_parts(safe_text(text)) != text:
        return None
    return text.lower()


class ProviderObject(TypedDict):
    """A provider on the wire."""

    name: str
    model: str | None
    http_status: int | None
    request_id: str | None
    message: NotRequired[str | None]
    """Runs of a version that did not keep it have none."""


ErrorClassName = Annotated[str, WithJsonSchema({"type": "string", "enum": [*ErrorClass]})]
"""The name of an error class on the wire: of one that this version knows, or of a newer one."""

ErrorObject = TypedDict(
    "ErrorObject",
    {
        "class": ErrorClassName,
        "code": str,
        "message": str,
        "source": Source,
        "retryable": bool,
        "recoverable": bool,
        "step": str | None,
        "attempt": int | None,
        "provider": ProviderObject | None,
        "user_action": UserAction,
    },
)
"""A failure on the wire: the same object on runs, events and in the SDK."""


@dataclass(frozen=True, slots=True)
class ProviderDetails:
    """The provider that failed, and how to find the request in its logs."""

    name: str
    model: str | None = None
    http_status: int | None = None
    request_id: str | None = None
    """The provider's id of the request. One that has a secret in it, or looks like one, is left out."""
    message: str | None = field(default=None, repr=False)
    """The provider's message about the error, made safe by ``safe_quote``.

    It may quote the prompt: it is for those who may read the run, and stands in no log, metric or message of Celery.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", safe_quote(self.message))
        if self.request_id is not None and safe_text(self.request_id) != self.request_id:
            object.__setattr__(self, "request_id", None)

    def to_object(self) -> ProviderObject:
        """The provider on the wire."""
        return {
            "name": self.name,
            "model": self.model,
            "http_status": self.http_status,
            "request_id": self.request_id,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure, classified: safe to store, to show and to log.

    The message is made safe on construction: one line, ``MAX_MESSAGE`` characters, no secret of this process and
    nothing that looks like a key. The code that builds a failure still has to make sure that it holds no prompt and no
    provider's body: a provider's words have their own place, ``provider.message``, which is never logged.
    """

    error_class: ErrorClass
    code: str
    """Finer than the class: ``fake.rate_limit_exceeded``, ``http_503``, ``connect_refused``."""
    message: str
    source: Source
    retryable: bool
    """True if trying the same step again can help; a policy's rule decides whether and when."""
    recoverable: bool
    """True if the run goes on and the failure becomes a result for the model; such a failure is never the run's
    ``error``."""
    user_action: UserAction
    retry_after: float | None = None
    """Seconds the other side asked to wait, if it did."""
    provider: ProviderDetails | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", safe_text(self.message) or FACTS[self.error_class].sentence)
        if redact(self.code) != self.code:
            object.__setattr__(self, "code", self.error_class.value)
        if self.retry_after is not None and not (math.isfinite(self.retry_after) and self.retry_after >= 0):
            object.__setattr__(self, "retry_after", None)

    @classmethod
    def of(
        cls,
        error_class: ErrorClass,
        message: str | None = None,
        *,
        code: str | None = None,
        source: Source | None = None,
        retryable: bool | None = None,
        user_action: UserAction | None = None,
        retry_after: float | None = None,
        provider: ProviderDetails | None = None,
    ) -> Failure:
        """Return a failure of a class, with the facts of the class for everything that is left out."""
        facts = FACTS[error_class]
        return cls(
            error_class=error_class,
            code=code or error_class.value,
            message=facts.sentence if message is None else message,
            source=source or facts.source,
            retryable=facts.retryable if retryable is None else retryable,
            recoverable=facts.recoverable,
            user_action=user_action or facts.user_action,
            retry_after=retry_after,
            provider=provider,
        )

    def noting(self, note: str, *, user_action: UserAction | None = None) -> Failure:
        """This failure with a sentence added to its message; the message gives way if both do not fit."""
        note = safe_text(note)
        room = max(MAX_MESSAGE - len(note) - 2, 1)
        message = safe_text(self.message, room)
        end = " " if message.endswith((".", "!", "?", ")", "…")) else ". "
        return replace(self, message=message + end + note, user_action=user_action or self.user_action)

    @classmethod
    def of_error(cls, error: ErrorObject) -> Failure:
        """The failure that is ``error`` on the wire."""
        provider = error["provider"]
        return cls(
            error_class=ErrorClass(error["class"]),
            code=error["code"],
            message=error["message"],
            source=error["source"],
            retryable=error["retryable"],
            recoverable=error["recoverable"],
            user_action=error["user_action"],
            provider=None
            if provider is None
            else ProviderDetails(provider["name"], provider["model"], provider["http_status"], provider["request_id"]),
        )

    def to_error(self, *, step: str | None, attempt: int | None) -> ErrorObject:
        """The failure on the wire. ``step`` is a model step's number or a tool step's ``seq/call_id``."""
        return {
            "class": self.error_class.value,
            "code": self.code,
            "message": self.message,
            "source": self.source,
            "retryable": self.retryable,
            "recoverable": self.recoverable,
            "step": step,
            "attempt": attempt,
            "provider": None if self.provider is None else self.provider.to_object(),
            "user_action": self.user_action,
        }
