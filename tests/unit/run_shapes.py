"""Runs of all shapes, as the engine writes their events: the same for the same seed, wherever it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar

import orjson

from palaver.errors import ErrorClass
from palaver.events import EventKind, complete
from palaver.schemas.actions import ClientTool
from palaver.store.reading.events import StoredEvent, about_stream
from tests.openhands.log import error

RUN: Final = "run_00" + "1" * 26
CHILD: Final = "run_00" + "2" * 26
CONVERSATION: Final = "conv_00" + "1" * 26
PICK: Final = ClientTool(name="pick_colour", description="Pick.", parameters={"type": "object"})
AT: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
IMAGE: Final = {"type": "image", "url": "data:image/png;base64,AAAA"}
FILE: Final = {"type": "file", "url": "https://files.test/a.pdf", "name": "a.pdf"}
K: Final = EventKind
E: Final = ErrorClass
T = TypeVar("T")
_WORDS: Final = ("Good ", "day", "ünï ", "\n", "{", "… ", "")


class ShapedRun:
    """One run, which a shape tells."""

    def __init__(self, shape: str, seed: int) -> None:
        self._random = Random(f"{shape} {seed}")
        self.events: list[StoredEvent] = []
        self.step = 0
        self._begin()
        SHAPES[shape](self)
        if self.events[-1].type != K.RUN_FINISHED:
            self.finish("completed", "end_turn")

    def draw(self, of: Sequence[T]) -> T:
        """One of these."""
        return of[int(self._random.random() * len(of))]

    def below(self, most: int) -> int:
        """A number below another one."""
        return int(self._random.random() * most)

    def write(self, kind: EventKind, **data: Any) -> None:
        """Add an event."""
        seq = len(self.events) + 1
        payload = orjson.dumps(complete(kind, data))
        self.events.append(StoredEvent(RUN, seq, AT + timedelta(milliseconds=seq), kind, payload))

    def _begin(self) -> None:
        self.write(K.RUN_CREATED, conversation_id=CONVERSATION)
        self.user(self.draw(("hello", [{"type": "text", "text": "What is it?"}, IMAGE, FILE])))
        if self.below(4) == 0:
            self.write(K.RUN_QUEUED, behind=CHILD)
        self.write(K.RUN_STARTED)

    def user(self, content: Any, **more: Any) -> None:
        """Words of the user, or of the engine."""
        self.write(K.MESSAGE_CREATED, message={"role": "user", "content": content}, **more)

    def started(self, attempt: int = 1) -> None:
        """An attempt of the step begins."""
        self.write(K.STEP_STARTED, step=str(self.step), attempt=attempt, worker="w-1")

    def deltas(self, attempt: int = 1, most: int = 5, thoughts: int = 0) -> str:
        """A part of an answer is streamed; its text."""
        said = ""
        for _ in range(thoughts and self.below(thoughts + 1)):
            self.write(K.REASONING_DELTA, step=str(self.step), attempt=attempt, text=self.draw(("Hm. ", "Äh. ")))
        for _ in range(self.below(most + 1)):
            piece = self.draw(_WORDS)
            said += piece
            self.write(K.MESSAGE_DELTA, step=str(self.step), attempt=attempt, text=piece)
            if thoughts and self.below(5) == 0:
                self.write(K.REASONING_DELTA, step=str(self.step), attempt=attempt, text="Or so. ")
        return said

    def answer(self, text: Any, calls: Sequence[Mapping[str, str]] = (), **more: Any) -> None:
        """The message of the step enters the log."""
        partial = more.pop("partial", False)
        message = {"role": "assistant", "content": text, "tool_calls": list(calls), "partial": partial}
        about = {"risky_calls": [], "model": "fake/echo", "prompt_tokens": 9, "output_tokens": 4, **more}
        self.write(K.MESSAGE_CREATED, message=message, step=str(self.step), **about)

    def model(self, calls: Sequence[Mapping[str, str]] = (), thoughts: int = 0, **more: Any) -> None:
        """A model step without trouble."""
        self.step += 1
        self.started()
        self.answer(self.deltas(thoughts=thoughts), calls, **more)

    def call(self, number: int, name: str, arguments: str | None = None) -> dict[str, str]:
        """A call that a message may have."""
        arguments = arguments or self.draw(('{"a": 1}', "{", "[1]"))
        return {"id": f"call_{number}", "name": name, "arguments": arguments}

    def calls(self, *names: str) -> list[dict[str, str]]:
        """Calls of these tools."""
        return [self.call(number, name) for number, name in enumerate(names)]

    def tool(self, call: Mapping[str, str], result: Any = None, *, error_class: ErrorClass | None = None) -> None:
        """A call is carried out by the tools worker."""
        name = f"{self.step}/{call['id']}"
        self.write(K.STEP_STARTED, step=name, attempt=1, worker="w-2")
        if self.below(3) == 0:
            fraction = self.draw((None, 0.5))
            about = {"call_id": call["id"], "tool": call["name"], "text": "half", "fraction": fraction}
            self.write(K.TOOL_PROGRESS, step=name, attempt=1, **about)
        self.result(call, result, error_class=error_class)

    def result(self, call: Mapping[str, str], content: Any = None, *, error_class: ErrorClass | None = None) -> None:
        """A call has its result."""
        failed = error_class is not None
        content = content if content is not None else self.draw(("4", '{"sum": 4}', "[1", ""))
        message = {"role": "tool", "call_id": call["id"], "name": call["name"], "content": content, "is_error": failed}
        why = error(error_class) if error_class else None
        self.write(K.TOOL_FINISHED, step=f"{self.step}/{call['id']}", message=message, error=why)

    def asked(self, call: Mapping[str, str], kind: str) -> dict[str, Any]:
        """A call waits for a person."""
        action = {
            "id": f"act_{self.step}_{call['id']}", "type": kind, "tool": call["name"], "call_id": call["id"],
            "arguments": call["arguments"], "digest": "0" * 64, "expires_at": "2026-01-03T00:00:00Z",
            "second_person": self.below(3) == 0,
        }  # fmt: skip
        if kind == "question":
            form = self.draw((None, {"type": "object", "properties": {"size": {"type": "string"}}}))
            action["question"] = {
                "asker": "shop", "message": "Which size?", "form": form, "url": None if form else "https://a.test/x",
            }  # fmt: skip
        self.write(K.ACTION_REQUIRED, step=f"{self.step}/{call['id']}", action=action)
        return action

    def waits(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Nothing else is going on."""
        self.write(K.RUN_REQUIRES_ACTION, pending_actions=[action["id"] for action in actions])

    def resolved(self, action: Mapping[str, Any], decision: str, **more: Any) -> None:
        """A person has decided."""
        about = {"action_id": action["id"], "call_id": action["call_id"], "by": "ada", "decision": decision}
        self.write(K.ACTION_RESOLVED, **about, **more)

    def decided(self, actions: Sequence[Mapping[str, Any]], *, apart: bool = False) -> None:
        """All of these actions are settled, and what they let run has its result; one after the other if ``apart``."""
        groups = [[action] for action in actions] if apart else [list(actions)]
        for place, group in enumerate(groups):
            runs = []
            for action in group:
                call = {"id": action["call_id"], "name": action["tool"], "arguments": action["arguments"]}
                match action["type"]:
                    case "client_tool":
                        self.resolved(action, "output")
                        self.result(call)
                    case "question":
                        response = self.draw(("accept", "decline", "cancel"))
                        self.resolved(action, "answer", response=response)
                        runs.append(call)
                    case _:
                        decision = self.draw(("approve", "edit", "deny", "expired"))
                        more = {"arguments": '{"a": 2}'} if decision == "edit" else {}
                        self.resolved(action, decision, reason="So it is." if decision == "deny" else None, **more)
                        if decision in ("approve", "edit"):
                            runs.append(call)
                        else:
                            self.result(call, "The user denied this tool call. No.", error_class=E.TOOL_DENIED)
            for call in runs:
                self.tool(call)
            rest = [each for behind in groups[place + 1 :] for each in behind]
            if rest and runs:
                self.waits(rest)

    def retrying(self, attempt: int, *, fallback: bool = False) -> None:
        """An attempt failed."""
        why = error(self.draw((E.RATE_LIMITED, E.CONNECTION, E.TIMEOUT)))
        about = {"step": str(self.step), "attempt": attempt, "delay": 1.5, "fallback": fallback, "error": why}
        self.write(K.RUN_RETRYING, **about)

    def discarded(self, attempt: int) -> None:
        """What was streamed of it is no more."""
        self.write(K.MESSAGE_DISCARDED, step=str(self.step), attempt=attempt)

    def finish(self, status: str, reason: str, error_class: ErrorClass | None = None) -> None:
        """The run ends."""
        why = None if error_class is None else error(error_class)
        self.write(K.RUN_FINISHED, status=status, stop_reason=reason, error=why)


def _text(run: ShapedRun) -> None:
    run.model()


def _reasoning(run: ShapedRun) -> None:
    run.model(run.calls("calculator"), thoughts=3)
    run.tool(run.call(0, "calculator"))
    run.model(thoughts=3)


def _tools(run: ShapedRun) -> None:
    for _ in range(1 + run.below(3)):
        (call,) = calls = run.calls("calculator")
        run.model(calls)
        run.tool(call, error_class=run.draw((None, None, E.TOOL_ERROR, E.TOOL_TIMEOUT, E.INVALID_TOOL_CALL)))
    run.model()


def _parallel(run: ShapedRun) -> None:
    calls = run.calls("calculator", "think", "calculator", run.draw(("finish", "search")))
    run.model(calls)
    for call in calls:
        run.write(K.STEP_STARTED, step=f"{run.step}/{call['id']}", attempt=1, worker="w-2")
    for call in sorted(calls, key=lambda call: run.below(9)):
        run.result(call)
    run.model()


def _approvals(run: ShapedRun) -> None:
    calls = run.calls("send", "calculator", "send")
    run.model(calls)
    actions = [run.asked(call, "approval") for call in calls if call["name"] == "send"]
    run.tool(calls[1])
    run.waits(actions)
    run.decided(actions, apart=run.below(2) == 0)
    run.model()


def _client_tools(run: ShapedRun) -> None:
    for _ in range(1 + run.below(2)):
        calls = run.calls(*("pick_colour", "calculator", "pick_colour")[: 1 + run.below(3)])
        run.model(calls)
        actions = [run.asked(call, "client_tool") for call in calls if call["name"] == "pick_colour"]
        for call in calls:
            if call["name"] == "calculator":
                run.tool(call)
        run.waits(actions)
        run.decided(actions, apart=run.below(2) == 0)
    run.model()


def _questions(run: ShapedRun) -> None:
    calls = run.calls("shop__order", "send")
    run.model(calls)
    actions = [run.asked(calls[0], "question"), run.asked(calls[1], "approval")]
    run.waits(actions)
    run.decided(actions, apart=run.below(2) == 0)
    run.model()


def _steering(run: ShapedRun) -> None:
    calls = run.calls("calculator")
    run.model(calls)
    run.user(run.draw(("In metres", [{"type": "text", "text": "As here"}, IMAGE])), steer=True)
    run.tool(calls[0])
    run.model()
    run.user("Go on.", nudge=True)
    run.model()
    if run.below(2):
        run.user("And more?", steer=True)
        run.model()
        run.user("Too late", steer=True)


def _retries(run: ShapedRun) -> None:
    run.step, attempt = 1, 1
    for _ in range(1 + run.below(3)):
        run.started(attempt)
        run.deltas(attempt, thoughts=run.below(2))
        match run.below(3):
            case 0:
                run.discarded(attempt)
                run.retrying(attempt)
            case 1:
                run.write(K.STEP_LOST, step="1", attempt=attempt, worker="w-1")
            case _:
                run.discarded(attempt)
                run.retrying(attempt, fallback=True)
        attempt += 1
    run.started(attempt)
    run.answer(run.deltas(attempt, thoughts=1))


def _handed_back(run: ShapedRun) -> None:
    run.step = 1
    run.started()
    run.deltas(most=3)
    run.discarded(1)
    run.write(
        K.RUN_WAITING, step="1", reason=run.draw(("no_worker", "provider_cooldown")), code="cooldown", delay=2.0,
        error=run.draw((None, error(E.RATE_LIMITED))),
    )  # fmt: skip
    run.started()
    said = run.deltas(thoughts=1)
    run.answer(said if run.below(2) else said + "the rest")


def _condensing(run: ShapedRun) -> None:
    run.model(run.calls("calculator"))
    run.tool(run.call(0, "calculator"))
    run.step += 1
    run.started()
    run.write(K.CONVERSATION_CONDENSED, step=str(run.step), summary="They spoke.", through=4)
    run.write(K.REASONING_DROPPED, step=str(run.step), origin="messages/p/m")
    run.write(K.BUDGET_WARNING, what="tokens", used=run.draw((None, 80.0)), limit=100.0)
    run.answer(run.deltas())


def _cancel(run: ShapedRun) -> None:
    calls = run.calls("send", "pick_colour")[: 1 + run.below(2)]
    mode, at = run.draw(("now", "graceful", "rollback")), run.below(3)
    run.step = 1
    run.started()
    said = run.deltas()
    actions = []
    if at:
        run.answer(said, calls)
        actions = [run.asked(call, "client_tool" if call["name"] == "pick_colour" else "approval") for call in calls]
        if at == 2:
            run.waits(actions)
    run.write(K.RUN_CANCELLING, mode=mode, by="ada", reason=run.draw((None, "Enough.")))
    for action in actions:
        run.resolved(action, "cancelled")
    for call in calls if at else ():
        run.result(call, "The run was cancelled.", error_class=E.TOOL_INTERRUPTED)
    if not at:
        run.answer(said, partial=True) if run.below(2) else run.discarded(1)
    if mode == "rollback":
        run.write(K.MESSAGES_WITHDRAWN, first=2, last=5)
    run.finish("cancelled", "cancelled")


def _pause(run: ShapedRun) -> None:
    run.step = 1
    run.started()
    run.deltas(most=3)
    run.write(K.RUN_PAUSING, now=run.below(2) == 0, reason=run.draw((None, "interrupt", "Wait.")))
    run.discarded(1)
    run.write(K.RUN_PAUSED)
    run.write(K.RUN_RESUMED)
    run.started()
    run.answer(run.deltas())


def _failed(run: ShapedRun) -> None:
    run.step = 1
    run.started()
    said = run.deltas(thoughts=1)
    if run.below(2):
        run.discarded(1)
    elif run.below(2):
        calls = run.calls("calculator")
        run.answer(said, calls)
        run.tool(calls[0], error_class=E.TOOL_ERROR)
    failed = run.draw((E.AUTHENTICATION, E.QUOTA_EXHAUSTED, E.STUCK, E.WORKER_LOST, E.INTERNAL, E.RATE_LIMITED))
    run.finish("failed", "stuck" if failed is E.STUCK else "error", failed)


def _limits(run: ShapedRun) -> None:
    run.model(run.calls("calculator") if run.below(2) else (), partial=run.below(2) == 0)
    if run.below(2):
        run.user("Told late", steer=True)
    reason = run.draw(("max_steps", "max_tokens", "budget", "content_filter", "conversation_full", "deadline"))
    run.finish("expired" if reason == "deadline" else "incomplete", reason)


def _below(run: ShapedRun) -> None:
    calls = run.calls("agent__scout", "calculator")
    run.model(calls)
    action = {
        "id": "act_child", "type": run.draw(("approval", "client_tool", "question")), "tool": "send",
        "call_id": "call_9", "arguments": '{"to": "x"}', "digest": "0" * 64, "expires_at": "2026-01-03T00:00:00Z",
        "second_person": False, "question": None,
    }  # fmt: skip
    if action["type"] == "question":
        action["question"] = {"asker": "shop", "message": "Which?", "form": None, "url": None}
    about = {"child_run_id": CHILD, "path": [CHILD]}
    run.write(K.CHILD_ACTION_REQUIRED, step="1/call_9", action=action, **about)
    if run.below(2):
        run.tool(calls[1])
    decision = run.draw(("approve", "deny", "answer", "expired"))
    resolved = {"action_id": "act_child", "call_id": "call_9", "decision": decision, "by": "ada"}
    run.write(K.CHILD_ACTION_RESOLVED, **resolved, **about)
    if run.below(3) == 0:
        run.write(K.CHILD_ACTION_REQUIRED, step="1/call_9", action={**action, "id": "act_other"}, **about)
        run.write(K.RUN_CANCELLING, mode="now", by=None, reason=None)
        run.finish("cancelled", "cancelled")
        return
    run.result(calls[0], "Found.")
    run.model()


def _images(run: ShapedRun) -> None:
    calls = run.calls("camera")
    run.model(calls)
    run.tool(calls[0], [{"type": "text", "text": "A cat."}, IMAGE])
    run.step += 1
    run.started()
    said = run.deltas()
    run.answer([{"type": "text", "text": said}, IMAGE, FILE])


def _refused(run: ShapedRun) -> None:
    calls = run.calls("unheard_of", "calculator", "send")
    run.model(calls, refused_calls=["call_0"], risky_calls=["call_2"])
    run.result(calls[0], "There is no such tool.", error_class=E.INVALID_TOOL_CALL)
    run.tool(calls[1])
    action = run.asked(calls[2], "approval")
    run.waits([action])
    run.decided([action])
    run.model()


def _same_ids(run: ShapedRun) -> None:
    for _ in range(3):
        calls = run.calls("calculator", "send")
        run.model(calls)
        action = run.asked(calls[1], "approval")
        run.tool(calls[0])
        run.waits([action])
        run.decided([action])
    run.model()


def _unstarted(run: ShapedRun) -> None:
    """Deltas and messages without the start of their step: it is gone, or was never written."""
    run.step = 1
    run.answer(run.deltas(thoughts=1), run.calls("calculator"))
    run.tool(run.call(0, "calculator"))
    run.tool(run.call(7, "calculator"))
    run.write(K.MESSAGE_CREATED, message={"role": "assistant", "content": "Said by the engine."})
    run.step = 2
    run.deltas()
    run.step = 3
    run.answer(run.deltas())


def _torn(run: ShapedRun) -> None:
    run.step = 1
    run.started()
    said = run.deltas(thoughts=2)
    seq = len(run.events)
    run.events.append(about_stream(K.STREAM_GAP, RUN, seq, AT, seq + 1, seq + 1))
    said += "lost " + run.deltas()
    if run.below(2):
        run.answer(said)
    else:
        run.discarded(1)
        run.started(2)
        run.answer(run.deltas(2))


def _rewound(run: ShapedRun) -> None:
    run.model(run.calls("calculator"))
    run.step += 1
    run.started()
    run.deltas(thoughts=run.below(2))
    seq = len(run.events)
    run.events.append(about_stream(K.STREAM_REWOUND, RUN, seq, AT, seq - 1, seq))
    run.model()


def _all(run: ShapedRun) -> None:
    parts = (_tools, _parallel, _approvals, _client_tools, _questions, _steering, _reasoning, _images, _refused)
    for _ in range(2):
        run.draw(parts)(run)
    if run.below(2):
        run.finish(*run.draw((("failed", "error", E.INTERNAL), ("incomplete", "max_steps", None))))


SHAPES: Final[Mapping[str, Callable[[ShapedRun], None]]] = {
    "text": _text,
    "reasoning": _reasoning,
    "tools": _tools,
    "parallel tools": _parallel,
    "approvals": _approvals,
    "client tools": _client_tools,
    "questions": _questions,
    "steering": _steering,
    "retries": _retries,
    "handed back": _handed_back,
    "condensing": _condensing,
    "cancel": _cancel,
    "pause": _pause,
    "failed": _failed,
    "limits": _limits,
    "agents below": _below,
    "images": _images,
    "refused calls": _refused,
    "ids that come again": _same_ids,
    "no start": _unstarted,
    "torn": _torn,
    "rewound": _rewound,
    "anything": _all,
}
"""What a run does, by a name. `SEEDS` of each are drawn."""
SEEDS: Final = 9
