"""Events of a run as the engine writes them, at random: what a dialect that shows runs has to make sense of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import orjson

from palaver.events import EventKind, complete
from palaver.store.reading.events import StoredEvent, about_stream

RUN: Final = "run_00" + "0" * 26
_KEPT: Final = frozenset(kind for kind in EventKind if kind.durable)
_AT: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_WORDS: Final = ("Good ", "day", "", "ünï ", "\n", "{", "…")
_TOOLS: Final = ("calculator", "pick_colour")
CLIENT_TOOLS: Final = frozenset({"pick_colour"})
_RESULTS: Final = ("4", '{"sum": 4}', "[1", "")


class RunLog:
    """One run: it writes its events as it goes."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.events: list[StoredEvent] = []
        self.said: dict[str, str] = {}
        """The text of each model step, as the log has it."""
        self.waits: list[int] = []
        """The numbers of the events behind which it waits for somebody."""
        self._step = 0
        self._write(EventKind.RUN_CREATED, conversation_id="conv_00" + "0" * 26)
        self._write(EventKind.MESSAGE_CREATED, message={"role": "user", "content": "hello"})
        if self._chance(3):
            self._write(EventKind.RUN_QUEUED, behind=RUN)
        self._write(EventKind.RUN_STARTED)
        while self._model_step():
            self._steer()
        self._finish()

    def _chance(self, of: int) -> bool:
        return self._random.randrange(of) == 0

    def _write(self, kind: EventKind, **data: Any) -> None:
        payload = orjson.dumps(complete(kind, data))
        self.events.append(StoredEvent(RUN, len(self.events) + 1, _AT, kind, payload))

    def _text(self) -> list[str]:
        return [self._random.choice(_WORDS) for _ in range(self._random.randrange(5))]

    def _error(self) -> dict[str, Any]:
        return {"class": "connection", "code": "reset", "message": "The connection failed.", "user_action": "retry"}

    def _steer(self) -> None:
        if self._chance(4):
            self._write(EventKind.MESSAGE_CREATED, message={"role": "user", "content": "In metres"}, steer=True)
        if self._chance(6):
            self._write(EventKind.MESSAGE_CREATED, message={"role": "user", "content": "Go on."}, nudge=True)

    def _model_step(self) -> bool:
        """Have the model answer; tell whether the run goes on."""
        self._step += 1
        step, attempt = str(self._step), 1
        while self._chance(3):
            self._attempt(step, attempt)
            self._write(EventKind.MESSAGE_DISCARDED, step=step, attempt=attempt)
            # A worker that stops hands its step back: nothing of it stays in the log.
            if self._chance(2):
                self._write(
                    EventKind.RUN_RETRYING, step=step, attempt=attempt, delay=1.0, fallback=False, error=self._error()
                )
            attempt += 1
        pieces = self._attempt(step, attempt)
        self.said[step] = text = "".join(pieces)
        calls = [
            {
                "id": f"call_{number}",
                "name": self._random.choice(_TOOLS),
                "arguments": self._random.choice(('{"a": 1}', "{")),
            }
            for number in range(self._random.randrange(4))
        ]
        message = {"role": "assistant", "content": text, "tool_calls": calls}
        self._write(EventKind.MESSAGE_CREATED, message=message, step=step)
        self._calls(step, calls)
        return bool(calls) and self._step < 4 and not self._chance(5)

    def _attempt(self, step: str, attempt: int) -> Sequence[str]:
        self._write(EventKind.STEP_STARTED, step=step, attempt=attempt, worker="w-1")
        said = []
        for piece in self._text():
            if self._chance(4):
                self._write(EventKind.REASONING_DELTA, step=step, attempt=attempt, text="Hm. ")
            self._write(EventKind.MESSAGE_DELTA, step=step, attempt=attempt, text=piece)
            said.append(piece)
        return said

    def _calls(self, step: str, calls: Sequence[dict[str, Any]]) -> None:
        waiting = []
        for call in calls:
            kind = "client_tool" if call["name"] in CLIENT_TOOLS else "approval" if self._chance(2) else None
            if kind is None:
                continue
            action = {
                "id": f"act_{step}_{call['id']}", "type": kind, "tool": call["name"], "call_id": call["id"],
                "arguments": call["arguments"], "digest": "0" * 64, "expires_at": "2026-01-03T00:00:00Z",
                "second_person": False,
            }  # fmt: skip
            waiting.append(action)
            self._write(EventKind.ACTION_REQUIRED, step=f"{step}/{call['id']}", action=action)
        awaited = {action["call_id"] for action in waiting}
        for call in calls:
            if call["id"] not in awaited:
                self._run_tool(step, call)
        stands = False
        while waiting:
            if not stands:
                self._write(EventKind.RUN_REQUIRES_ACTION, pending_actions=[action["id"] for action in waiting])
                self.waits.append(len(self.events))
            resolved, waiting = waiting[:1], waiting[1:]
            if self._chance(2):
                resolved, waiting = [*resolved, *waiting], []
            # One script writes what comes of all of them.
            approved = [action for action in resolved if self._decide(action)]
            for action in resolved:
                if action not in approved:
                    self._result(step, {"id": action["call_id"], "name": action["tool"]}, failed=True)
            stands = not approved
            if stands and waiting:
                self.waits.append(len(self.events))
            for action in approved:
                self._run_tool(step, {"id": action["call_id"], "name": action["tool"]})

    def _decide(self, action: dict[str, Any]) -> bool:
        """Settle an action; tell whether its tool runs then."""
        about = {"action_id": action["id"], "call_id": action["call_id"], "by": "ada"}
        if action["type"] == "client_tool":
            self._write(EventKind.ACTION_RESOLVED, **about, decision="output")
            return False
        decision = self._random.choice(("approve", "edit", "deny", "expired"))
        more = {"arguments": '{"a": 2}'} if decision == "edit" else {}
        self._write(EventKind.ACTION_RESOLVED, **about, **more, decision=decision)
        return decision in ("approve", "edit")

    def _run_tool(self, step: str, call: dict[str, Any]) -> None:
        name = f"{step}/{call['id']}"
        self._write(EventKind.STEP_STARTED, step=name, attempt=1, worker="w-1")
        if self._chance(3):
            fraction = self._random.choice((None, 0.5))
            self._write(
                EventKind.TOOL_PROGRESS, step=name, attempt=1, call_id=call["id"], tool=call["name"], text="half",
                fraction=fraction,
            )  # fmt: skip
        self._result(step, call, failed=self._chance(4))

    def _result(self, step: str, call: dict[str, Any], *, failed: bool) -> None:
        message = {
            "role": "tool", "call_id": call["id"], "name": call["name"], "is_error": failed,
            "content": self._random.choice(_RESULTS),
        }  # fmt: skip
        self._write(EventKind.TOOL_FINISHED, step=f"{step}/{call['id']}", message=message)

    def _finish(self) -> None:
        if self._chance(4):
            self._write(EventKind.RUN_WAITING, step=str(self._step), reason="backoff", code="cooldown", delay=1.0)
        ends = (
            ("completed", "end_turn", None),
            ("incomplete", "max_steps", None),
            ("failed", "error", self._error()),
            ("cancelled", "cancelled", None),
            ("expired", "deadline", None),
        )
        status, reason, error = self._random.choice(ends)
        if status == "cancelled":
            self._write(EventKind.RUN_CANCELLING, mode="now", by=None, reason=None)
        self._write(EventKind.RUN_FINISHED, status=status, stop_reason=reason, error=error)

    def kept(self) -> list[StoredEvent]:
        """The events that the log has, long after the end."""
        return list(_with_gaps(event for event in self.events if event.type in _KEPT))

    def torn(self, first: int, last: int) -> list[StoredEvent]:
        """The events without the fleeting ones between two numbers: nobody has them any more."""
        return list(_with_gaps(e for e in self.events if not first <= e.seq <= last or e.type in _KEPT))


def _with_gaps(events: Iterator[StoredEvent]) -> Iterator[StoredEvent]:
    last = 0
    for event in events:
        if event.seq != last + 1:
            yield about_stream(EventKind.STREAM_GAP, RUN, last, _AT, last + 1, event.seq - 1)
        last = event.seq
        yield event
