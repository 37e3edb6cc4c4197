"""The projection of a run's events to those of a response: a pure function, whatever the run does."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest import mock

import orjson
import pytest

from features.openai import projection, writing
from features.openai.ids import ResponseId
from features.openai.projection import ResponseProjection
from features.openai.shown import BEGUN, FINAL, SPREAD, ShownEvent, frame
from features.openai.tests.unit.openai_world import AT
from palaver.errors import UnknownRun
from palaver.events import EventKind
from palaver.schemas.actions import Approvals, ClientTool
from palaver.schemas.models import AgentSpec
from palaver.store.reading.events import StoredEvent, joined
from palaver.vocabulary.ids import new_run_id

RUN: Final = new_run_id("00")
AGENT: Final = AgentSpec(
    model="fake/echo",
    tools=("calculator", "send"),
    client_tools=(ClientTool(name="look"),),
    approvals=Approvals(require=("send",)),
)
K: Final = EventKind
DURABLE: Final = frozenset(kind for kind in EventKind if kind.durable)
ENDS: Final = ("completed", "incomplete", "failed", "cancelled", "expired")
SEEDS: Final = 40


class Story:
    """A run that does what comes, written as the store writes it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.events: list[StoredEvent] = []
        self._calls = 0

    def write(self, kind: EventKind, **fields: Any) -> None:
        """Add an event."""
        seq = len(self.events) + 1
        self.events.append(StoredEvent(RUN, seq, AT + timedelta(seconds=seq), kind, orjson.dumps(fields)))

    def tell(self) -> list[StoredEvent]:
        """All of it."""
        choose = self._random
        self.write(K.RUN_CREATED, conversation_id="conv")
        self.write(K.MESSAGE_CREATED, message={"role": "user", "content": "hello"}, step=None, steer=False)
        self.write(K.RUN_STARTED)
        for step in range(1, choose.randint(1, 5)):
            self._attempts(str(step))
            if choose.random() < 0.15:
                # It ends in the middle of an answer.
                break
            if not self._turn(str(step)):
                break
        self.write(K.RUN_FINISHED, status=choose.choice(ENDS), stop_reason="end_turn", error=None)
        return self.events

    def _deltas(self, step: str, attempt: int) -> str:
        said = ""
        for _ in range(self._random.randint(0, 3)):
            self.write(K.REASONING_DELTA, step=step, attempt=attempt, text="hm ")
        for _ in range(self._random.randint(0, 5)):
            word = self._random.choice(("one ", "two ", "ä\u2028 "))
            said += word
            self.write(K.MESSAGE_DELTA, step=step, attempt=attempt, text=word)
            if self._random.random() < 0.1:
                self.write(K.TOOL_PROGRESS, step=step, attempt=attempt, call_id="x", tool="x", text="", fraction=None)
        return said

    def _attempts(self, step: str) -> None:
        attempt = 1
        self.write(K.STEP_STARTED, step=step, attempt=attempt, worker="w")
        while self._random.random() < 0.3:
            self._deltas(step, attempt)
            match self._random.randrange(3):
                case 0:
                    self.write(K.MESSAGE_DISCARDED, step=step, attempt=attempt)
                    self.write(K.RUN_RETRYING, step=step, attempt=attempt, delay=0, fallback=False, error={})
                    attempt += 1
                case 1:
                    self.write(K.STEP_LOST, step=step, attempt=attempt, worker="w")
                    attempt += 1
                case 2:
                    # Handed back: no attempt is counted.
                    self.write(K.MESSAGE_DISCARDED, step=step, attempt=attempt)
        self._said = self._deltas(step, attempt)

    def _turn(self, step: str) -> bool:
        """Let the message come, and what its calls become; tell whether another step follows."""
        names = [self._random.choice(("calculator", "send", "look")) for _ in range(self._random.randint(0, 3))]
        calls = []
        for name in names:
            self._calls += 1
            calls.append({"id": f"c{self._calls}", "name": name, "arguments": '{"a":1}'})
        partial = not calls and self._random.random() < 0.2
        message = {"role": "assistant", "content": self._said, "tool_calls": calls, "partial": partial}
        self.write(K.MESSAGE_CREATED, step=step, message=message, risky_calls=[], refused_calls=[])
        waiting = [call for call in calls if call["name"] != "calculator"]
        actions = [
            {"id": f"act_{call['id']}", "type": "client_tool" if call["name"] == "look" else "approval",
             "tool": call["name"], "call_id": call["id"], "arguments": call["arguments"]} for call in waiting
        ]  # fmt: skip
        for action in actions:
            self.write(K.ACTION_REQUIRED, step=step, action=action)
        for call in calls:
            if call["name"] == "calculator":
                self._result(step, call)
        if waiting:
            self.write(K.RUN_REQUIRES_ACTION, pending_actions=[action["id"] for action in actions])
            if self._random.random() < 0.2:
                for action in actions:
                    self.write(
                        K.ACTION_RESOLVED, action_id=action["id"], call_id=action["call_id"], decision="cancelled"
                    )
                return False
            for action in actions:
                decision = "output" if action["type"] == "client_tool" else self._random.choice(("approve", "deny"))
                self.write(K.ACTION_RESOLVED, action_id=action["id"], call_id=action["call_id"], decision=decision)
            for call in waiting:
                self._result(step, call)
        return bool(calls)

    def _result(self, step: str, call: dict[str, Any]) -> None:
        failed = self._random.random() < 0.2
        message = {"role": "tool", "call_id": call["id"], "name": call["name"], "content": "4", "is_error": failed}
        self.write(K.TOOL_FINISHED, step=step, message=message)


def shown(events: Sequence[StoredEvent], part: int = 0) -> list[ShownEvent]:
    """The events of a response."""
    made = ResponseProjection(ResponseId(RUN, part), AGENT)
    return [each for event in events for each in made.read(event)]


def parts(events: Sequence[StoredEvent]) -> int:
    """The number of responses of a run."""
    made = ResponseProjection(ResponseId(RUN), AGENT)
    for event in events:
        made.read(event)
    return made.part + 1


def check_numbers_grow(seed: int) -> None:
    events = Story(seed).tell()
    answers = {
        event.seq for event in events if event.type == K.ACTION_RESOLVED and event.data["decision"] != "cancelled"
    }
    asked = [event.seq for event in events if event.type == K.RUN_REQUIRES_ACTION]
    assert parts(events) == 1 + sum(seq + 1 in answers for seq in asked), seed
    for part in range(parts(events)):
        found = shown(events, part)
        numbers = [each.number for each in found]
        assert numbers[0] == 0, seed
        assert all(one < two for one, two in pairwise(numbers)), seed
        begun = "response.in_progress" if part else "response.queued"
        assert [each.type for each in found][:2] == ["response.created", begun], seed
        ends = [place for place, each in enumerate(found) if each.type in {*BEGUN, *FINAL}][2 if part else 3 :]
        assert ends == [len(found) - 1] or found[-1].type in FINAL, seed


def check_numbers_are_the_same_where_deltas_are_joined(seed: int) -> None:
    """A client that is slow has fewer deltas with more text, and the numbers of the last of each."""
    events = Story(seed).tell()
    chooser = random.Random(seed)
    cuts = sorted(chooser.sample(range(len(events)), min(3, len(events))))
    pieces = [events[one:two] for one, two in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    for part in range(parts(events)):
        whole = {each.number: each for each in shown(events, part)}
        fewer = shown([event for piece in pieces for event in joined(piece)], part)
        for each in fewer:
            assert each.number in whole, seed
            same = whole[each.number]
            if each.type.endswith("delta"):
                assert {**each.fields, "delta": ""} == {**same.fields, "delta": ""}, seed
            else:
                assert each == same, seed
            assert texts([one for one in fewer if one.number <= each.number]) == texts(
                [one for one in whole.values() if one.number <= each.number]
            ), seed


def check_each_item_is_opened_once_and_closed_once(seed: int) -> None:
    events = Story(seed).tell()
    for part in range(parts(events)):
        opened, closed, ids = dict[int, Any](), dict[int, Any](), set[str]()
        for each in shown(events, part):
            index, item = each.fields.get("output_index"), each.fields.get("item", {})
            match each.type:
                case "response.output_item.added":
                    assert index == len(opened), seed
                    assert item["id"] not in ids, seed
                    ids.add(item["id"])
                    opened[index] = item
                case "response.output_item.done":
                    assert index in opened, seed
                    assert index not in closed, seed
                    assert {item[name] == opened[index][name] for name in ("id", "type")} == {True}, seed
                    closed[index] = item
                case _ if index is not None:
                    if each.type == "response.output_text.delta":
                        thoughts = {place for place, item in opened.items() if item["type"] == "reasoning"}
                        assert {place for place in thoughts if place < index} <= closed.keys(), seed
                    assert index in opened, seed
                    assert index not in closed, seed
                    assert each.fields["item_id"] == opened[index]["id"], seed
        assert opened.keys() == closed.keys(), seed


def check_texts_add_up(seed: int) -> None:
    events = Story(seed).tell()
    for part in range(parts(events)):
        found = shown(events, part)
        said = texts(found)
        done = {
            each.fields["item_id"]: each.fields["text"]
            for each in found
            if each.type in ("response.output_text.done", "response.reasoning_summary_text.done")
        }
        assert {item: text for item, text in done.items() if text} == said, seed


def check_arguments_add_up(seed: int) -> None:
    """A call begins without any; those that follow are those that it has."""
    events = Story(seed).tell()
    for part in range(parts(events)):
        begun, told, whole = dict[str, str](), dict[str, str](), dict[str, str]()
        for each in shown(events, part):
            item = each.fields.get("item", {})
            if each.type.endswith("arguments.delta"):
                told[each.fields["item_id"]] = told.get(each.fields["item_id"], "") + each.fields["delta"]
            elif item.get("type") in ("function_call", "mcp_call"):
                (begun if each.type.endswith("added") else whole)[item["id"]] = item["arguments"]
        assert {*begun.values()} <= {""}, seed
        assert told == whole, seed


def check_the_log_alone_has_the_output(seed: int) -> None:
    """The output of a response that is retrieved is that of its stream, but for thoughts, which the log has beside."""
    events = Story(seed).tell()
    durable = [event for event in events if event.type in DURABLE]
    for part in range(parts(events)):
        live, later = (ResponseProjection(ResponseId(RUN, part), AGENT) for _ in range(2))
        for event in events:
            live.read(event)
        found = [each for event in durable for each in later.read(event)]
        numbers, kinds = [each.number for each in found], {each.number: each.type for each in shown(events, part)}
        assert [each for each in found if kinds.get(each.number, each.type) != each.type] == [], seed
        assert [each for each in found if each.type.endswith("done") and each.number not in kinds] == [], seed
        assert (later.part, later.done, later.over) == (live.part, live.done, live.over), seed
        assert later.ended_by_call == live.ended_by_call, seed
        kept = [
            {**item, "id": item["id"].partition("_again")[0]} for item in live.output if item["type"] != "reasoning"
        ]
        assert kept == later.output, seed
        assert later.input == live.input, seed
        assert numbers == sorted(set(numbers)), seed
        ends = [shown(events, part)[-1], *shown(durable, part)[-1:]]
        assert ends[0] == ends[1], seed


def check_what_passes_at_once_is_the_same(seed: int) -> None:
    events = Story(seed).tell()
    for part in range(parts(events)):
        made, found = ResponseProjection(ResponseId(RUN, part), AGENT), list[ShownEvent]()
        for event in events:
            if (passed := made.at_once(event)) is not None:
                made.passed()
                found.append(unframed(passed))
                assert passed == frame(*found[-1])
            else:
                found += made.read(event)
            assert made.last == (found[-1].number if found else -1), seed
        assert found == shown(events, part), seed


def unframed(frame: bytes) -> ShownEvent:
    """The event that a frame is."""
    fields = orjson.loads(frame.partition(b"data: ")[2])
    return ShownEvent(fields.pop("sequence_number"), fields.pop("type"), fields)


def check_all_responses_at_once_have_the_items_of_each(seed: int) -> None:
    durable = [event for event in Story(seed).tell() if event.type in DURABLE]
    every = ResponseProjection(ResponseId(RUN), AGENT, every=True)
    each = [ResponseProjection(ResponseId(RUN, part), AGENT) for part in range(parts(durable))]
    for event in durable:
        for made in (every, *each):
            made.read(event)
    assert every.output == [item for made in each for item in made.output], seed
    assert every.input == [item for made in each for item in made.input], seed
    ids = [item["id"] for item in (*every.output, *every.input)]
    assert len(ids) == len({*ids}), seed


CHECKS: Final = (
    check_all_responses_at_once_have_the_items_of_each,
    check_numbers_grow,
    check_numbers_are_the_same_where_deltas_are_joined,
    check_each_item_is_opened_once_and_closed_once,
    check_texts_add_up,
    check_arguments_add_up,
    check_the_log_alone_has_the_output,
    check_what_passes_at_once_is_the_same,
)


def texts(found: Sequence[ShownEvent]) -> dict[str, str]:
    """What deltas of texts add up to, by item."""
    said = dict[str, str]()
    for each in found:
        if each.type in ("response.output_text.delta", "response.reasoning_summary_text.delta"):
            said[each.fields["item_id"]] = said.get(each.fields["item_id"], "") + each.fields["delta"]
    return said


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_of_whatever_a_run_does(check: Callable[[int], None]) -> None:
    for seed in range(SEEDS):
        check(seed)


MUTANTS: Final[dict[str, tuple[str, str]]] = {
    "numbers by what was shown": ("(self._seq - self._base) * SPREAD + self._place", "self.last + 1"),
    "a joined delta has the first number": ("self._last_seq != self._seq:", "False:"),
    "a delta at once has another number": (
        "(delta.event.seq - self._base) * SPREAD, delta.frame",
        "self.last + 1, delta.frame",
    ),
    "what was taken at once is forgotten": ("self._growing.pieces.append(delta.text)", "pass"),
    "what was taken back goes on": ("changes.TakenBack: ResponseWriter.discard,", ""),
    "the next attempt has the same id": (
        'return f"{item_id}_again{again - 1}" if again > 1 else item_id',
        "return item_id",
    ),
    "what was discarded is in the output": ("if kept and self.mine:", "if self.mine:"),
    "a part begins with whatever comes": ('bool(data["decision"] != "cancelled")', "True"),
    "the place of an end depends on what is open": ("self.go_to(_LAST)", "pass"),
    "the place of a text's end depends on its deltas": ("self.go_to(ENDED)", "pass"),
    "open texts stay open at the end": ("changes.StepEnded: ResponseWriter.discard,", ""),
    "a thought stays open behind the text": (
        'self.close("reasoning", "completed", kept=True)\n            if self._in_message',
        "if self._in_message",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_noticed(mutant: str) -> None:
    before, after = MUTANTS[mutant]
    found, made = 0, dict[str, ModuleType]()
    for module in (writing, projection):
        assert module.__file__ is not None
        source = Path(module.__file__).read_text()
        found += source.count(before)
        made[module.__name__] = mutated = ModuleType(module.__name__)
        mutated.__package__ = "features.openai"
        with mock.patch.dict(sys.modules, made):
            exec(compile(source.replace(before, after), mutant, "exec"), mutated.__dict__)
    assert found >= 1, mutant
    original = globals()["ResponseProjection"]
    globals()["ResponseProjection"] = made[projection.__name__].ResponseProjection
    try:
        for check in CHECKS:
            try:
                for seed in range(SEEDS):
                    check(seed)
            except Exception:
                return
    finally:
        globals()["ResponseProjection"] = original
    pytest.fail(f"{mutant}: nobody noticed")


@pytest.mark.parametrize(
    "text", ["", "resp_", "resp_00", "run_00" + "0" * 26, f"resp_{'0' * 28}_0", "resp_" + "u" * 28]
)
def test_what_is_no_id_is_no_response(text: str) -> None:
    with pytest.raises(UnknownRun):
        ResponseId.read(text)


def test_ids_say_run_and_part() -> None:
    for tag in ("", "acme00"):
        run_id = new_run_id("00", tag)
        for part in (0, 1, 17):
            assert ResponseId.read(str(ResponseId(run_id, part))) == (run_id, part)
    assert SPREAD > 128 * 4 + 100


def test_a_delta_at_once_has_the_place_that_its_watcher_knows() -> None:
    run = Story(1)
    run.write(K.RUN_CREATED, conversation_id="conv")
    run.write(K.MESSAGE_DELTA, step="1", attempt=1, text="one")
    run.write(K.MESSAGE_DELTA, step="1", attempt=1, text="two")
    begun, first, second = run.events
    watchers = [ResponseProjection(ResponseId(RUN, 0), AGENT) for _ in range(3)]
    for watcher in watchers:
        watcher.read(begun)
    # One has had an item before that the others do not know any more.
    watchers[2].next_index()
    for watcher in watchers:
        watcher.read(first)
    made = [watcher.at_once(second) or b"" for watcher in watchers]
    assert [unframed(each).fields["output_index"] for each in made] == [0, 0, 1]
    assert made == [frame(*unframed(each)) for each in made]
