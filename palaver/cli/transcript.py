"""A run's events as a transcript that is written while they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from palaver.cli.words import advice, closed, one_line, plain, seconds, usage, why
from palaver.models import Event, Run


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
        self._writers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "run.queued": self._queued,
            "run.started": self._started,
            "run.retrying": self._retrying,
            "run.cancelling": self._cancelling,
            "step.started": self._step_started,
            "step.lost": self._step_lost,
            "message.delta": self._delta,
            "message.created": self._created,
            "message.discarded": self._discarded,
            "conversation.condensed": self._condensed,
            "tool.started": self._tool_started,
            "tool.finished": self._tool_finished,
            "stream.gap": self._gap,
        }

    def show(self, event: Event) -> None:
        """Write what the event means."""
        self.position = max(self.position, event.seq)
        writer = self._writers.get(event.type)
        if writer is not None:
            writer(event.data)

    def begin(self, run: Run) -> None:
        """Say which run it is."""
        self._line(f"run {run.id} in conversation {run.conversation_id}", "dim")

    def end(self, run: Run) -> None:
        """Say how it ended: status, why, usage and ids."""
        if run.error is not None:
            self._line(f"{closed(why(run.error))} {advice(run.error)}".rstrip(), "red")
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

    def _retrying(self, data: Mapping[str, Any]) -> None:
        delay = seconds(data.get("delay"))
        self.doing = f"backing off before step {one_line(data.get('step'))} is tried again"
        what = f"step {one_line(data.get('step'))}, attempt {one_line(data.get('attempt'))}"
        self._line(f"{what} failed: {why(data.get('error')) or 'no reason given'}; again in {delay}", "yellow")

    def _cancelling(self, data: Mapping[str, Any]) -> None:
        self.doing = "cancelling"
        reason = one_line(data.get("reason"))
        self._line(f"cancelling ({reason})" if reason else "cancelling", "yellow")

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
        missing = f"{one_line(data.get('from'))} to {one_line(data.get('to'))}"
        self._line(f"(events {missing} are no longer kept)")

    def _text(self, text: str) -> None:
        shown = plain(text)
        if shown:
            self._console.out(shown, end="", highlight=False)
            self.mid_line = not shown.endswith("\n")

    def _line(self, text: str, style: str = "dim") -> None:
        self._break_line()
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _break_line(self) -> None:
        if self.mid_line:
            self._console.out("", highlight=False)
            self.mid_line = False
