"""A row of the fault table, and the words in which rows are written.

Every expectation is written out here and in the rows; none is taken from the product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.process.faults.saying import Raw, Told

BOTH = (True, False)
STREAM = (True,)
WHOLE = (False,)

FIRST, SECOND = 1.0, 1.5
"""The delays of POLICY, seconds."""
CAP = 4.0

RETRIED = {"rate_limited": "wait", "provider_error": "retry", "connection": "retry", "timeout": "retry"}
FINAL = {
    **dict.fromkeys(("quota_exhausted", "authentication", "permission", "not_found"), "settings"),
    **dict.fromkeys(("invalid_request", "context_window", "content_filter"), "fix_input"),
}
"""What the user can do, of the classes that are worth another attempt and of those that are not."""

_RULE = {"attempts": 3, "first": FIRST, "factor": 2, "max_delay": SECOND, "jitter": "none", "retry_after_cap": CAP}
POLICY: dict[str, Any] = {"max_elapsed": 60, "rules": dict.fromkeys((*RETRIED, *FINAL), _RULE)}
"""No jitter: every delay is known beforehand. It has rules for classes too that no rule may retry."""

AT_MOST = {"bad_model_response": 2}
"""Attempts of a step that fails with such a code, which would most likely fail in the same way for ever."""

Delays = tuple[tuple[float, float], ...]
"""Before each further attempt, seconds: at least and at most."""


@dataclass(frozen=True, kw_only=True)
class Error:
    """The error object of a run, or of an attempt that is made again, but for what only the test knows."""

    cls: str
    code: str
    """One with a leading dot comes after the provider's name."""
    http: int | None = None
    request: str | None = None
    """The answer's number: None for null, "" for the one that the model server gave it, else this."""
    retryable: bool = False
    user_action: str = "none"
    note: str = ""
    """How the message ends once no further attempt is made."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault, and what must become of the run that meets it."""

    name: str
    script: str
    """The model name: what the provider does."""
    told: Told | None = None
    forms: Sequence[bool] = BOTH
    """The run's `stream`: a row is two runs, unless the fault makes sense in one form only."""
    provider: Mapping[str, Any] = field(default_factory=dict)
    """What is special in its entry of the providers file."""
    tools: Sequence[str] = ()
    agent: Mapping[str, Any] = field(default_factory=dict)
    status: str
    stop_reason: str
    error: Error | None = None
    """Of the run if it failed, and of each attempt that was made again."""
    tries: int = 1
    """Attempts of all model steps."""
    calls: int | None = None
    """Requests in the model server's ledger; None for one a try."""
    delays: Delays = ()
    output: str | None = None
    withdrawn: bool = False
    """Watchers saw the beginning of an answer, which was taken back."""
    told_to_model: str | None = None
    """The class of the error that the model got as the result of its call."""

    def raw(self, stream: bool) -> Raw | None:
        """What the user's message tells the model server to send."""
        return self.told(stream) if callable(self.told) else self.told


def words(count: int) -> str:
    """What the model server answers to `say-<count>`."""
    return " ".join(f"w{i}" for i in range(1, count + 1))


def asked(seconds: float) -> Delays:
    """Two waits that the provider asked for: never shorter, at most a tenth longer."""
    return ((seconds, seconds * 1.1),) * 2


def _does(what: str | Told) -> dict[str, Any]:
    return {"script": what} if isinstance(what, str) else {"script": "raw", "told": what}


def _error(cls: str, code: str, http: int | None, more: dict[str, Any], **usual: Any) -> Error:
    """Takes out of `more` what is about the error."""
    given: dict[str, Any] = {
        name: more.pop(name) for name in ("request", "user_action", "note", "retryable") if name in more
    }
    usual |= {"request": None if http is None else "", "user_action": {**RETRIED, **FINAL}[cls]}
    return Error(cls=cls, code=code, http=http, **{**usual, **given})


def retried(name: str, what: str | Told, cls: str, code: str, http: int | None = None, **more: Any) -> Row:
    """Tried again until the attempts are used up; then the run fails."""
    tries = AT_MOST.get(code, 3)
    error = _error(cls, code, http, more, retryable=True, note=f"Gave up after {tries} attempts.")
    usual = {"tries": tries, "delays": ((FIRST, FIRST), (SECOND, SECOND))[: tries - 1]}
    return Row(name=name, status="failed", stop_reason="error", error=error, **{**_does(what), **usual, **more})


def fails(name: str, what: str | Told, cls: str, code: str, http: int | None = None, **more: Any) -> Row:
    """Fails at once."""
    error = _error(cls, code, http, more)
    return Row(name=name, status="failed", stop_reason="error", error=error, **{**_does(what), **more})


def stops(name: str, what: str | Told, stop_reason: str, **more: Any) -> Row:
    """Stopped by a limit or by the provider's policy: incomplete, and no error."""
    return Row(name=name, status="incomplete", stop_reason=stop_reason, **{**_does(what), **more})


def completes(name: str, what: str | Told, **more: Any) -> Row:
    """An answer, though it looks odd."""
    return Row(name=name, status="completed", stop_reason="end_turn", **{**_does(what), **more})


def recovers(row: Row, script: str, times: int = 2, said: int = 5, **more: Any) -> Row:
    """The fault of `row`, so many times; then the provider answers with so many words."""
    asked, times = times, min(times, row.tries - 1)
    script = script.replace(f"-{asked}+", f"-{times}+", 1)
    changes: dict[str, Any] = {"tries": times + 1, "calls": None, "delays": row.delays[:times], "output": words(said)}
    ended = {"status": "completed", "stop_reason": "end_turn", "script": script, "name": f"{row.name}-then-fine"}
    return replace(row, **{**changes, **ended, **more})
