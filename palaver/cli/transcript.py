"""A run's events as a transcript that is written while they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from palaver.cli.advice import advise
from palaver.cli.pending import wanted
from palaver.cli.words import amount, clock, one_line, plain, seconds, usage, why
from palaver.models import Event, Run

_NO_ROOM: Final[Mapping[str, str]] = {
    "cooldown": "the provider asked for fewer requests and is left alone",
    "max_in_flight": "as many calls as the provider may have are under way",
    "requests_per_minute": "the provider's requests of this minute are used up",
    "tokens_per_minute": "the provider's tokens of this minute are used up",
}
"""Why there is no room for a call, by the code of ``run.waiting``."""
_CANCELLING: Final[Mapping[str, str]] = {
    "graceful": "cancelling once nothing is under way any more",
    "rollback": "cancelling and withdrawing what was said",
}
"""How a run is cancelled, by mode."""


class Transcript:
    """Writes text as it is streamed and everything else as lines. Unknown event types are left out."""

    def __init__(self, console: Console, *, show_input: bool) -> None:
        self.position = 0
        """The sequence number of the last event shown."""
        self.doing = "waiting for a worker"
        """What the run is busy with, for those who wait."""
        self.mid_line = False
        """Whether the last thing written was text without a newline."""
        self._console = console
        self._show_input = show_input
        self._streamed = ""
        self._at = datetime.now(UTC)
        self._waits: tuple[str, str] | None = None
        """Step and code of the wait that was told last: it may be told again and again."""
        self._writers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "run.queued": self._queued,
            "run.started": self._started,
            "run.retrying": self._retrying,
            "run.waiting": self._waiting,
            "run.cancelling": self._cancelling,
            "run.pausing": self._pausing,
            "run.paused": self._paused,
            "run.resumed": self._resumed,
            "action.required": self._action_required,
            "action.resolved": self._action_resolved,
            "budget.warning": self._warning,
            "step.started": self._step_started,
            "step.lost": self._step_lost,
            "message.delta": self._delta,
            "message.created": self._created,
            "message.discarded": self._discarded,
            "messages.withdrawn": self._withdrawn,
            "conversation.condensed": self._condensed,
            "tool.started": self._tool_started,
            "tool.finished": self._tool_finished,
            "stream.gap": self._gap,
            "stream.rewound": self._rewound,
        }

    def show(self, event: Event) -> None:
        """Write what the event means."""
        self.position, self._at = max(self.position, event.seq), event.at
        writer = self._writers.get(event.type)
        if writer is not None:
            writer(event.data)

    def begin(self, run: Run) -> None:
        """Say which run it is."""
        self._line(f"run {run.id} in conversation {run.conversation_id}", "dim")

    def end(self, run: Run) -> None:
        """Say how it ended: why, what to do about it, status, usage and ids."""
        told = advise(run)
        if told.why:
            self._line(told.why, "red")
        if told.what_to_do:
            self._line(f"what to do: {told.what_to_do}", "yellow")
        reason = f" ({run.stop_reason})" if run.stop_reason and run.stop_reason.value != run.status else ""
        style = "green" if run.status == "completed" else "bold red" if run.status == "failed" else "yellow"
        ids = f"{run.id} · {run.conversation_id}"
        self._line(f"{run.status}{reason} · {usage(run.usage)} · {ids}", style)

    def _queued(self, data: Mapping[str, Any]) -> None:
        behind = one_line(data.get("behind"))
        self.doing = f"waiting behind run {behind}" if behind else "waiting for its turn"
        self._line(f"queued behind run {behind}, which the conversation is busy with" if behind else "queued")

    def _started(self, data: Mapping[str, Any]) -> None:
        self.doing = "running"
        # What the user says from here on is news, also to the one who began.
        self._show_input = True

    def _retrying(self, data: Mapping[str, Any]) -> None:
        self._waits = None
        step, attempt = one_line(data.get("step")), one_line(data.get("attempt"))
        then = "the next model takes over" if data.get("fallback") else f"again in {seconds(data.get('delay'))}"
        self.doing = f"backing off before step {step} is tried again"
        reason = why(data.get("error")) or "no reason given"
        self._line(f"step {step}, attempt {attempt} failed, {then}: {reason}", "yellow")

    def _waiting(self, data: Mapping[str, Any]) -> None:
        step, code, delay = one_line(data.get("step")), one_line(data.get("code")), data.get("delay")
        reason = _NO_ROOM.get(code) or f"{one_line(data.get('reason'))} {code}".rstrip()
        self.doing = f"waiting: {reason}"
        until = ""
        # A place in flight comes free by the end of another call, not at a time.
        if isinstance(delay, (int, float)) and code != "max_in_flight":
            until = f" until {clock(self._at + timedelta(seconds=delay))}"
        if self._waits != (step, code):
            self._line(f"step {step} waits{until}: {reason}", "yellow")
        self._waits = (step, code)

    def _cancelling(self, data: Mapping[str, Any]) -> None:
        self.doing = "cancelling"
        reason, mode = one_line(data.get("reason")), one_line(data.get("mode"))
        how = _CANCELLING.get(mode, "cancelling")
        self._line(f"{how} ({reason})" if reason else how, "yellow")

    def _pausing(self, data: Mapping[str, Any]) -> None:
        self.doing = "pausing"
        self._line("pausing at once" if data.get("now") else "pausing once nothing is under way any more", "yellow")

    def _paused(self, data: Mapping[str, Any]) -> None:
        self.doing = "paused until somebody resumes it"
        self._line("paused", "yellow")

    def _resumed(self, data: Mapping[str, Any]) -> None:
        self.doing = "running"
        self._line("resumed")

    def _action_required(self, data: Mapping[str, Any]) -> None:
        given = data.get("action")
        action = given if isinstance(given, Mapping) else {}
        what = wanted(action.get("type"))
        self.doing = f"waiting for {what}"
        call = f"{one_line(action.get('tool'))} {one_line(action.get('arguments'))}"
        self._line(f"{call} waits for {what} (action {one_line(action.get('id'))})", "yellow")

    def _action_resolved(self, data: Mapping[str, Any]) -> None:
        self.doing = "running"
        reason, by = one_line(data.get("reason")), one_line(data.get("by"))
        who = f"decided by {by}" if by else "decided"
        self._line(f"{who}: {one_line(data.get('decision'))}{f' ({reason})' if reason else ''}")

    def _warning(self, data: Mapping[str, Any]) -> None:
        used, limit = data.get("used"), amount(data.get("limit"))
        spent = "nobody knows how much" if used is None else amount(used)
        self._line(f"limit {one_line(data.get('what'))}: {spent} of {limit} used", "yellow")

    def _step_started(self, data: Mapping[str, Any]) -> None:
        self.doing = f"working on step {one_line(data.get('step'))}"

    def _step_lost(self, data: Mapping[str, Any]) -> None:
        self.doing = "waiting for another worker"
        self._line(f"step {one_line(data.get('step'))} lost its worker; another one takes over", "yellow")

    def _delta(self, data: Mapping[str, Any]) -> None:
        text = data.get("text")
        if isinstance(text, str):
            self._streamed += text
            self._text(text)

    def _created(self, data: Mapping[str, Any]) -> None:
        message = data.get("message")
        if not isinstance(message, Mapping):
            return
        content = message.get("content")
        text = content if isinstance(content, str) else ""
        if data.get("nudge"):
            self._line(f"(the model was told: {one_line(text, 2000)})", "yellow")
            return
        if message.get("role") == "user":
            if self._show_input:
                self._line(f"> {one_line(text, 2000)}", "bold")
            return
        if message.get("role") != "assistant":
            return
        # Who came in the middle, or missed a part, is told the whole.
        if not text.startswith(self._streamed):
            self._break_line()
            self._streamed = ""
        self._text(text[len(self._streamed) :])
        self._streamed = ""
        self._break_line()
        if message.get("partial"):
            self._line("(the answer was cut off here)", "yellow")
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, (list, tuple)) else ():
            if isinstance(call, Mapping):
                self._line(f"→ {one_line(call.get('name'))} {one_line(call.get('arguments'))}", "cyan")

    def _discarded(self, data: Mapping[str, Any]) -> None:
        self._streamed = ""
        self._line(
            f"(step {one_line(data.get('step'))} broke off: the half-streamed text above is withdrawn)",
            "yellow",
        )

    def _withdrawn(self, data: Mapping[str, Any]) -> None:
        self._line("(what was said in this run is withdrawn: models are not told of it any more)", "yellow")

    def _condensed(self, data: Mapping[str, Any]) -> None:
        self._line("(the conversation grew too long: its older part is now a summary to the model)", "yellow")

    def _tool_started(self, data: Mapping[str, Any]) -> None:
        self.doing = f"waiting for tool {one_line(data.get('name')) or one_line(data.get('step'))}"

    def _tool_finished(self, data: Mapping[str, Any]) -> None:
        self.doing = "running"
        message = data.get("message")
        result = message if isinstance(message, Mapping) else {}
        failed = bool(result.get("is_error")) or data.get("error") is not None
        verb = "failed: " if failed else ""
        told = one_line(result.get("content")) or why(data.get("error"))
        self._line(f"← {one_line(result.get('name')) or 'tool'} {verb}{told}", "red" if failed else "cyan")

    def _gap(self, data: Mapping[str, Any]) -> None:
        self._line(f"(events {_span(data)} are no longer kept)")

    def _rewound(self, data: Mapping[str, Any]) -> None:
        self._line(f"(the server has lost the events {_span(data)}; what follows replaces them)", "yellow")

    def _text(self, text: str) -> None:
        shown = plain(text)
        if shown:
            self._console.out(shown, end="", highlight=False)
            self.mid_line = not shown.endswith("\n")

    def _line(self, text: str, style: str = "dim") -> None:
        self._break_line()
        self._console.print(Text(plain(text), style=style), soft_wrap=True)

    def _break_line(self) -> None:
        if self.mid_line:
            self._console.out("", highlight=False)
            self.mid_line = False


def _span(data: Mapping[str, Any]) -> str:
    return f"{one_line(data.get('from'))} to {one_line(data.get('to'))}"
