"""`make demo`: a real stack, real conversations through HTTP, and what goes wrong in real life.

Every chapter checks what it shows; the demo ends with status 1 if one of them does not hold.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path

from features.stack.errors import StackError
from features.stack.stack import Stack
from palaver import Palaver
from palaver.config.variables import PREFIX
from palaver.events import (
    Event,
    MessageCreated,
    MessageDelta,
    MessageDiscarded,
    RunFinished,
    RunRetrying,
    StepLost,
    StepStarted,
    ToolFinished,
)
from palaver.schemas.models import Run
from tests.model_server import LedgerEntry, read_ledger
from tests.waiting import eventually

_LEASE = "3"
"""Seconds; the default is 15. A demo should not make anybody wait for a lease."""


class Demo:
    """The chapters, on one stack."""

    def __init__(self, stack: Stack, client: Palaver, ledger: Path) -> None:
        self.stack = stack
        self.ledger = ledger
        """What the model server, which refuses what real providers refuse, was asked."""
        self.client = client

    def conversation(self) -> None:
        """A conversation with tools, streamed as it happens"""
        run = self._submit("parallel-2+use-each+tokens-24+rate-40", "What is 1 + 1?", "calculator", "wait")
        self._follow(run)
        end = self._completed(run)
        expect(end.usage.model_calls == 2 and end.usage.tool_calls == 2, "two model calls, two tool calls at once")

    def rate_limit(self) -> None:
        """A 429 with Retry-After: the step waits in the due index, no worker waits with it"""
        run = self._submit("429-1-2@2+tool-2", "Hello again.", "calculator")
        events = self._follow(run)
        self._completed(run)
        delays = [event.delay for event in events if isinstance(event, RunRetrying)]
        expect(len(delays) == 1 and 2 <= delays[0] <= 2.5, f"one retry, after {delays[0]:.1f} s as the provider asked")

    def kill(self) -> None:
        """kill -9 of the worker in the middle of an answer: another one goes on, nothing is lost or doubled"""
        run = self._submit("tool-3+tokens-40+rate-30", "Count with me.", "calculator")
        working: list[str] = []
        killed: list[str] = []
        deltas = 0

        def kill_in_the_answer(event: Event) -> None:
            nonlocal deltas
            deltas += isinstance(event, MessageDelta)
            if isinstance(event, StepStarted):
                working.append(event.worker)
            elif deltas == 6 and not killed:
                killed.append(working[-1])
                os.kill(int(killed[0].rpartition("/")[2]), signal.SIGKILL)
                say(f"\n      >>> kill -9 {killed[0]}")

        self._follow(run, kill_in_the_answer)
        self._completed(run)
        expect(bool(killed) and len(set(working)) == 2, "a second worker took the conversation over")
        messages = self.client.messages(run.conversation_id)
        roles = [message.role for message in messages]
        expect(roles == ["user", *["assistant", "tool"] * 3, "assistant"], "the log has each message once, in order")
        refused = [entry for entry in self._ledger() if entry.outcome.startswith("refused")]
        expect(not refused, "the strict model server saw whole histories only")

    def cancel(self) -> None:
        """A cancel in the middle of a stream: the provider's stream is closed, the conversation stays usable"""
        run = self._submit("tokens-600+rate-20", "Tell me a very long story.")
        seen = 0

        def cancel_after_a_while(event: Event) -> None:
            nonlocal seen
            seen += isinstance(event, MessageDelta)
            if seen == 8 and isinstance(event, MessageDelta):
                say("\n      >>> cancel")
                self.client.cancel(run.id, reason="the demo has heard enough")

        self._follow(run, cancel_after_a_while)
        end = self.client.get(run.id)
        expect(end.status == "cancelled" and end.cancel is not None, f"the run ended as {end.status}")
        say(f"      stopped {end.cancel.stopped_ms if end.cancel else None} ms after the request")
        closed = eventually(
            lambda: [entry for entry in self._ledger() if entry.run == run.id and entry.closed_by_client_at],
            why="the model server saw its stream closed",
        )
        expect(len(closed) == 1, "the provider's stream was closed: no more tokens are paid for")
        again = self.client.submit("Never mind. Hello?", model="fake/echo", conversation_id=run.conversation_id)
        self._follow(again)
        self._completed(again)

    def _submit(self, model: str, text: str, *tools: str) -> Run:
        run = self.client.submit(text, model=f"fake/{model}", instructions="Be brief.", tools=tools)
        say(f"      POST /v1/runs  ->  {run.id}")
        return run

    def _follow(self, run: Run, react: Callable[[Event], None] = lambda event: None) -> list[Event]:
        """Show the run's events as they come."""
        events: list[Event] = []
        streamed = False
        for event in self.client.events(run.id):
            for line in _told(event, streamed):
                sys.stdout.write(line)
                sys.stdout.flush()
            if isinstance(event, MessageDelta | MessageCreated | MessageDiscarded):
                streamed = isinstance(event, MessageDelta)
            events.append(event)
            react(event)
        return events

    def _completed(self, run: Run) -> Run:
        end = self.client.get(run.id)
        expect(end.status == "completed", f"the run ended as {end.status}")
        return end

    def _ledger(self) -> list[LedgerEntry]:
        return read_ledger(self.ledger)


def _told(event: Event, streamed: bool) -> Iterator[str]:
    """What a person is told of an event; ``streamed`` when the text of the message has been written out already."""
    match event:
        case MessageDelta():
            yield event.text if streamed else f"      model: {event.text}"
        case MessageCreated():
            message = event.message
            asked = " ".join(f"[{call.name} {call.arguments}]" for call in message.tool_calls)
            role = "user" if message.role == "user" else "model"
            yield f"{asked}\n" if streamed else f"      {role}: {message.content}{asked}\n"
        case ToolFinished():
            yield f"      tool {event.message.name}: {event.message.content}\n"
        case RunRetrying():
            yield f"      retry in {event.delay:.1f} s: {event.error['class']}\n"
        case StepLost():
            yield f"      the lease of step {event.step} has run out; it is delivered again\n"
        case MessageDiscarded() if streamed:
            yield "\n      the half-written answer is withdrawn\n"
        case RunFinished():
            yield f"      {event.status}: {event.stop_reason}\n"


def say(line: str) -> None:
    """One line for the viewer."""
    print(line, flush=True)


def expect(holds: bool, what: str) -> None:
    """Say what was to be shown, and end the demo if it was not."""
    say(f"      {'ok' if holds else 'NOT SO'}: {what}")
    if not holds:
        raise SystemExit(f"the demo expected: {what}")


def forget_settings(environment: MutableMapping[str, str]) -> None:
    """Take every variable of Palaver out of it: they are about another stack than that of the demo."""
    for name in [name for name in environment if name.startswith(PREFIX)]:
        del environment[name]


def main() -> int:
    """Run all chapters."""
    begun = time.monotonic()
    forget_settings(os.environ)
    with tempfile.TemporaryDirectory(prefix="palaver-demo-") as folder:
        ledger = Path(folder) / "model-ledger.jsonl"
        try:
            with (
                Stack(
                    Path(folder),
                    processes={"worker": 2},
                    environment={"PALAVER_LEASE_SECONDS": _LEASE},
                    fake_provider=(sys.executable, "-m", "tests.model_server", "--ledger", str(ledger)),
                    report=lambda line: say(f"  {line}"),
                ) as stack,
                Palaver(stack.url) as client,
            ):
                say(f"  API {stack.url}   Flower {stack.flower_url}")
                demo = Demo(stack, client, ledger)
                for number, chapter in enumerate((demo.conversation, demo.rate_limit, demo.kill, demo.cancel), 1):
                    say(f"\n  {number}. {chapter.__doc__}")
                    chapter()
        except StackError as error:
            raise SystemExit(str(error)) from error
    say(f"\n  All of it held, in {time.monotonic() - begun:.0f} s. `make up` leaves the stack running.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
