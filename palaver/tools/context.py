"""The context of a tool's call: facts that the tool may ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta

from palaver.errors import ToolError
from palaver.late import dataclass
from palaver.vocabulary.limits import count_exceeded, limit_of

Report = Callable[[str, float | None], None]
"""Shows watchers a text, and which part of the work is done."""


def _to_nobody(text: str, fraction: float | None) -> None:
    """There is no watcher of a call that a program makes itself."""


@dataclass(frozen=True, slots=True)
class LeftCall:
    """A call that a tool left, and goes on with."""

    kept: str
    """The part of it that was kept, as JSON."""
    answer: str | None
    """The answer to the question that it asked, as JSON; None if it asked nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The call that a tool answers. A tool that has a parameter with this annotation gets it; the model does not see
    that parameter.

    Made by hand, for a test of a tool, whatever is left out has a value that such a test can use.
    """

    run_id: str = "run_test"
    conversation_id: str = "conv_test"
    call_id: str = "call_test"
    """The id that the model gave the call. Only together with the run and the step it is unique."""
    attempt: int = 1
    """The number of this try of the call, from 1."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The run's."""
    submitted_by: str | None = None
    """The name of the API key that submitted the run, or ``key/subject``; None without keys."""
    deadline: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(seconds=30))
    """The time at which the call is ended at the latest (UTC): its tool's timeout is over then, or its run's time."""
    idempotency_key: str = "run_test:1:call_test"
    """The same for every try of this call and for no other call: at most 128 letters, digits, ``_``, ``-`` and
    ``:``."""
    traceparent: str | None = None
    """The ``traceparent`` header of requests that the tool makes, so that they are in the trace of the run, below this
    try of the call; None if the run has no trace."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The secrets of the conversation, by name: ``secret`` says which one is missing. They are removed from whatever
    the call answers, reports or raises."""
    left: LeftCall | None = field(default=None, repr=False)
    """The call as an earlier try left it, for tools that go on from there; None if it begins."""
    report: Report = field(default=_to_nobody, repr=False)
    """The function that ``progress`` calls. A test passes its own to see what was reported."""

    @property
    def time_left(self) -> float:
        """Seconds until the deadline; 0 if it has passed."""
        return max(0.0, (self.deadline - datetime.now(UTC)).total_seconds())

    def secret(self, name: str) -> str:
        """A secret of the conversation.

        Raises:
            ToolError: it has none of that name.
        """
        try:
            return self.secrets[name]
        except KeyError:
            raise ToolError(f"the conversation has no secret {name!r}: its user can set one") from None

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        """Show watchers of the run how far the call is, such as ``"3 of 10 files"``; ``fraction`` is from 0 to 1.

        Call it from any thread and as often as you like: it does not wait and raises nothing. Watchers see the newest
        progress at most once a second, and of a long text the first 500 characters. Nothing of it is stored, and the
        model does not see it.
        """
        # A payment is worth more than a word about it, whatever is wrong with the word.
        with contextlib.suppress(Exception):
            self.report(_bounded(str(text)), _share(fraction))


def _bounded(text: str) -> str:
    """``text`` in characters that can be sent, and not too many of them."""
    if len(text) > limit_of("progress_text"):
        count_exceeded("progress_text")
    return text[: limit_of("progress_text")].encode("utf-8", "replace").decode()


def _share(fraction: float | None) -> float | None:
    """Return a number from 0 to 1; None for none, and for anything that is no number."""
    return None if fraction is None or fraction != fraction else min(1.0, max(0.0, float(fraction)))
