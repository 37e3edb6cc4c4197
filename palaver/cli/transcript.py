"""A run's events as a transcript that is written while they come."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import singledispatchmethod
from typing import Final

from rich.console import Console
from rich.text import Text

from palaver.cli.advice import advise
from palaver.cli.doing import awaited, wait_cause
from palaver.cli.text import amount, clock, one_line, plain, provider_message, seconds, usage, why
from palaver.events import (
    ActionRequired,
    ActionResolved,
    BaseEvent,
    BudgetWarning,
    ChildActionRequired,
    ChildActionResolved,
    ConversationCondensed,
    Event,
    MessageCreated,
    MessageDelta,
    MessageDiscarded,
    MessagesWithdrawn,
    ReasoningDelta,
    ReasoningDropped,
    RunCancelling,
    RunFinished,
    RunPaused,
    RunPausing,
    RunQueued,
    RunResumed,
    RunRetrying,
    RunStarted,
    RunWaiting,
    StepLost,
    StepStarted,
    StreamGap,
    StreamRewound,
    ToolFinished,
    ToolProgress,
)
from palaver.schemas.models import Message, Run
from palaver.vocabulary.lifecycle import WaitReason

_CANCELLING: Final[Mapping[str, str]] = {
    "graceful": "cancelling once nothing is under way any more",
    "rollback": "cancelling and withdrawing what was said",
}
"""Words for how a run is cancelled, by mode."""


class Transcript:
    """Writes text as it is streamed and everything else as lines. Events of other kinds are left out."""

    def __init__(self, console: Console, *, show_input: bool) -> None:
        self.doing = "waiting for a worker"
        """The work that the run is busy with, in words for those who wait."""
        self.mid_line = False
        """True if the last thing written was text without a newline."""
        self._console = console
        self._show_input = show_input
        self._streamed = ""
        self._nudge = ""
        """The text that goes to the model with the next call, if the run has one."""
        self._thinking = False
        """True if what was written last is what the model thinks."""
        self._waits: tuple[str, str] | None = None
        """Step and code of the wait that was told last: it may be told again and again."""

    def show(self, event: Event) -> None:
        """Write what the event means."""
        if self._nudge and not isinstance(event, RunFinished):
            self._line(f"(the model was told: {self._nudge})", "yellow")
        self._nudge = ""
        self._tell(event)

    def begin(self, run: Run) -> None:
        """Say which run it is."""
        self._line(f"run {run.id} in conversation {run.conversation_id}", "dim")

    def end(self, run: Run) -> None:
        """Say how it ended: why, what to do about it, status, usage and ids."""
        advice = advise(run)
        if advice.why:
            self._line(advice.why, "red")
        if advice.provider_message:
            self._line(f"the provider said: {advice.provider_message}", "red")
        if advice.what_to_do:
            self._line(f"what to do: {advice.what_to_do}", "yellow")
        reason = f" ({run.stop_reason})" if run.stop_reason and run.stop_reason.value != run.status else ""
        style = "green" if run.status == "completed" else "bold red" if run.status == "failed" else "yellow"
        ids = f"{run.id} · {run.conversation_id}"
        self._line(f"{run.status}{reason} · {usage(run.usage)} · {ids}", style)

    def note(self, text: str, style: str = "dim") -> None:
        """Write a line between what the events mean."""
        self._line(text, style)

    @singledispatchmethod
    def _tell(self, event: BaseEvent) -> None:
        """Write nothing about events of other kinds."""

    @_tell.register
    def _queued(self, event: RunQueued) -> None:
        behind = one_line(event.behind)
        self.doing = f"waiting behind run {behind}"
        self._line(f"queued behind run {behind}, which the conversation is busy with")

    @_tell.register
    def _started(self, event: RunStarted) -> None:
        self.doing = "running"
        # What the user says from here on is news, also to the one who began.
        self._show_input = True

    @_tell.register
    def _retrying(self, event: RunRetrying) -> None:
        self._waits = None
        step = one_line(event.step)
        then = "the next model takes over" if event.fallback else f"again in {seconds(event.delay)}"
        self.doing = f"backing off before step {step} is tried again"
        by = f" ({one_line(event.rule)})" if event.rule else ""
        self._line(f"step {step}, attempt {event.attempt} failed, {then}{by}: {why(event.error)}", "yellow")
        if words := provider_message(event.error):
            self._line(f"the provider said: {words}", "yellow")

    @_tell.register
    def _waiting(self, event: RunWaiting) -> None:
        step, code = one_line(event.step), one_line(event.code)
        lacks = event.reason is WaitReason.NO_WORKER
        reason = wait_cause(event.reason, code)
        if event.error is not None:
            reason += f": {why(event.error)}"
        self.doing = f"waiting: {reason}"
        # A place in flight comes free by the end of another call, a worker comes when it is started, and no message
        # knows when an outage ends.
        until = (
            ""
            if lacks or code.rpartition(":")[2] in ("max_in_flight", "outage")
            else f" until {clock(event.at + timedelta(seconds=event.delay))}"
        )
        if self._waits != (step, code):
            self._line(f"step {step} waits{until}: {reason}", "yellow")
        self._waits = (step, code)

    @_tell.register
    def _cancelling(self, event: RunCancelling) -> None:
        self.doing = "cancelling"
        how = _CANCELLING.get(event.mode, "cancelling")
        self._line(f"{how} ({one_line(event.reason)})" if event.reason else how, "yellow")

    @_tell.register
    def _pausing(self, event: RunPausing) -> None:
        self.doing = "pausing"
        how = "pausing at once" if event.now else "pausing once nothing is under way any more"
        self._line(f"{how} ({one_line(event.reason)})" if event.reason else how, "yellow")

    @_tell.register
    def _paused(self, event: RunPaused) -> None:
        self.doing = "paused until it is resumed"
        self._line("paused", "yellow")

    @_tell.register
    def _resumed(self, event: RunResumed) -> None:
        self.doing = "running"
        self._line("resumed")

    @_tell.register
    def _action_required(self, event: ActionRequired) -> None:
        action = event.action
        what = awaited(action.type)
        self.doing = f"waiting for {what}"
        call = f"{one_line(action.tool)} {one_line(action.arguments)}"
        self._line(f"{call} waits for {what} (action {one_line(action.id)})", "yellow")

    @_tell.register
    def _action_resolved(self, event: ActionResolved) -> None:
        self.doing = "running"
        who = f"decided by {one_line(event.by)}" if event.by else "decided"
        self._line(f"{who}: {event.decision}{f' ({one_line(event.reason)})' if event.reason else ''}")

    @_tell.register
    def _child_action_required(self, event: ChildActionRequired) -> None:
        action = event.action
        call = f"{one_line(action.tool)} {one_line(action.arguments)} in {one_line(event.child_run_id)}"
        self._line(f"{call} waits for {awaited(action.type)} (action {one_line(action.id)})", "yellow")

    @_tell.register
    def _child_action_resolved(self, event: ChildActionResolved) -> None:
        who = f"decided by {one_line(event.by)}" if event.by else "decided"
        self._line(f"{who}: {event.decision} in {one_line(event.child_run_id)}")

    @_tell.register
    def _warning(self, event: BudgetWarning) -> None:
        spent = "an unknown amount" if event.used is None else amount(event.used)
        self._line(f"limit {event.what}: {spent} of {amount(event.limit)} used", "yellow")

    @_tell.register
    def _step_started(self, event: StepStarted) -> None:
        self.doing = f"working on step {one_line(event.step)}"

    @_tell.register
    def _step_lost(self, event: StepLost) -> None:
        self.doing = "waiting for another worker"
        self._line(f"step {one_line(event.step)} lost its worker; another one takes over", "yellow")

    @_tell.register
    def _delta(self, event: MessageDelta) -> None:
        if self._thinking:
            self._break_line()
        self._thinking = False
        self._streamed += event.text
        self._text(event.text)

    @_tell.register
    def _thought(self, event: ReasoningDelta) -> None:
        self._text(event.text, "dim italic")
        self._thinking = True

    @_tell.register
    def _created(self, event: MessageCreated) -> None:
        message = event.message
        if event.nudge:
            # It is told with the next call, if there is one.
            self._nudge = one_line(message.text, 2000)
        elif message.role == "user":
            if self._show_input:
                self._line(f"> {one_line(message.text, 2000)}", "bold")
        elif message.role == "assistant":
            self._answered(message)

    def _answered(self, message: Message) -> None:
        if self._thinking:
            self._break_line()
        self._thinking = False
        # Who came in the middle, or missed a part, is told the whole.
        if not message.text.startswith(self._streamed):
            self._break_line()
            self._streamed = ""
        self._text(message.text[len(self._streamed) :])
        self._streamed = ""
        self._break_line()
        if message.partial:
            self._line("(the answer was cut off here)", "yellow")
        for call in message.tool_calls:
            self._line(f"→ {one_line(call.name)} {one_line(call.arguments)}", "cyan")

    @_tell.register
    def _discarded(self, event: MessageDiscarded) -> None:
        self._streamed = ""
        self._line(f"(step {one_line(event.step)} broke off: the half-streamed text above is withdrawn)", "yellow")

    @_tell.register
    def _withdrawn(self, event: MessagesWithdrawn) -> None:
        self._line("(what was said in this run is withdrawn: models are not told of it any more)", "yellow")

    @_tell.register
    def _condensed(self, event: ConversationCondensed) -> None:
        self._line("(the conversation grew too long: its older part is now a summary to the model)", "yellow")

    @_tell.register
    def _dropped(self, event: ReasoningDropped) -> None:
        self._line("(the provider no longer takes back what the model thought: it goes on without that)", "yellow")

    @_tell.register
    def _tool_progress(self, event: ToolProgress) -> None:
        done = "" if event.fraction is None else f" ({event.fraction:.0%})"
        progress = f"{one_line(event.tool)}: {one_line(event.text)}{done}"
        self.doing = progress
        self._line(f"… {progress}")

    @_tell.register
    def _tool_finished(self, event: ToolFinished) -> None:
        self.doing = "running"
        result = event.message
        failed = result.is_error or event.error is not None
        text, name = one_line(result.text) or why(event.error), one_line(result.name) or "tool"
        # The model is told in one sentence, which names the tool.
        begin = f"{name} failed: "
        self._line(*((f"← {begin}{text.removeprefix(begin)}", "red") if failed else (f"← {name} {text}", "cyan")))

    @_tell.register
    def _gap(self, event: StreamGap) -> None:
        self._line(f"(events {event.first} to {event.last} are no longer kept)")

    @_tell.register
    def _rewound(self, event: StreamRewound) -> None:
        lost = f"events {event.first} to {event.last}"
        self._line(f"(the server has lost the {lost}; what follows replaces them)", "yellow")

    def _text(self, text: str, style: str | None = None) -> None:
        shown = plain(text)
        if shown:
            self._console.out(shown, end="", highlight=False, style=style)
            self.mid_line = not shown.endswith("\n")

    def _line(self, text: str, style: str = "dim") -> None:
        self._break_line()
        self._console.print(Text(plain(text), style=style), soft_wrap=True)

    def _break_line(self) -> None:
        if self.mid_line:
            self._console.out("", highlight=False)
            self.mid_line = False
