"""What must be true after any test, whatever was killed: read from the store, the logs and the ledgers."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from palaver.errors.failure import ErrorObject
from palaver.models import Entry, Event, Run
from palaver.store import Store
from palaver.testing import eventually
from palaver.testing.model_server import LedgerEntry
from tests.process.cluster import Cluster
from tests.process.input_checks import check_inputs, check_withdrawn
from tests.process.tools import read_tool_ledger

NOT_TWICE = frozenset({"record", "nap", "busy", "frozen", "crash", "overrun", "send", "linger"})


SUMMARY = "[Automatic note] This is a summary of the earlier part of the conversation, which is left out here:\n\n"


@dataclass
class Turn:
    """Messages that only go together, and the position of the last one."""

    said: list[dict[str, Any]]
    end: int = 0
    by_the_user: bool = False
    results: dict[str, dict[str, Any] | None] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [*self.said, *(result for result in self.results.values() if result)]


@dataclass(frozen=True)
class History:
    """A conversation and its runs, as the store has them."""

    entries: Sequence[Entry]
    runs: dict[str, Run]
    events: dict[str, Sequence[Event]]


def check(cluster: Cluster, within: float = 20.0) -> None:
    """Every run of the test ended, its conversation is whole, and nothing is left over."""
    for run_id in cluster.submitted:
        cluster.ended(run_id, within)
    check_conversations(cluster, cluster.submitted)
    check_nothing_left(cluster)
    check_logs(cluster)


def check_conversations(cluster: Cluster, run_ids: Sequence[str]) -> None:
    """The conversations of these runs, which have ended and are all that there were in them, are whole."""
    histories = cluster.ask(lambda store: _read(store, run_ids))
    calls: dict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in cluster.model_calls():
        calls[entry.run or ""].append(entry)
    for history in histories:
        check_log(history)
        for run_id, run in history.runs.items():
            check_events(run, history)
            check_inputs(run, history.events[run_id])
            check_withdrawn(run, history.entries)
            check_calls(run, history, calls[run_id])
    check_tools(cluster, histories)


async def _read(store: Store, run_ids: Iterable[str]) -> list[History]:
    by_conversation: dict[str, dict[str, Run]] = defaultdict(dict)
    for run_id in run_ids:
        run = await store.runs.get(run_id)
        by_conversation[run.conversation_id][run_id] = run
    found = []
    for conversation_id, runs in by_conversation.items():
        conversation = await store.runs.conversation(conversation_id)
        assert conversation.active_run is None, conversation
        assert not conversation.queued_runs, conversation
        entries = await store.runs.entries(conversation_id, limit=100_000)
        assert conversation.entries == len(entries), conversation_id
        found.append(History(entries, runs, {run_id: await _events(store, run_id) for run_id in runs}))
    return found


async def _events(store: Store, run_id: str) -> list[Event]:
    found: list[Event] = []
    while page := await store.feeds.page(run_id, after=found[-1].seq if found else 0):
        found += page
    return found


def check_log(history: History) -> None:
    """Positions have no gap; no step has two messages; every tool call has exactly one result, in its turn."""
    assert [entry.position for entry in history.entries] == list(range(1, len(history.entries) + 1))
    steps = Counter(
        (entry.run_id, entry.data["step"]) for entry in history.entries if "step" in entry.data and _message(entry)
    )
    assert not [step for step, count in steps.items() if count > 1], steps
    waiting: dict[str, str] = {}
    for entry in history.entries:
        message = _message(entry)
        if message is None:
            continue
        if message["role"] == "tool":
            assert waiting.pop(message["call_id"], None) == entry.run_id, f"a result without a call: {entry}"
            continue
        assert not waiting, f"calls without a result before {entry}: {waiting}"
        waiting = dict.fromkeys((call["id"] for call in message.get("tool_calls", ())), entry.run_id)
    assert not waiting, f"calls without a result: {waiting}"


def _message(entry: Entry | Event) -> dict[str, Any] | None:
    return entry.data.get("message")


def check_events(run: Run, history: History) -> None:
    """Gap-free numbers, one end, nothing behind it; what was shown and not withdrawn adds up to what was kept."""
    events = history.events[run.id]
    assert [event.seq for event in events] == list(range(1, run.last_event_id + 1)), run.id
    assert [event.type for event in events].count("run.finished") == 1, run.id
    assert events[-1].type == "run.finished"
    assert events[-1].data["status"] == run.status == (run.stop_reason and run.stop_reason.status)
    assert (run.error is not None) == (run.status == "failed"), run
    assert events[-1].data["error"] == run.error, run
    assert run.error is None or run.error.keys() == ErrorObject.__annotations__.keys(), run
    logged = [(e.seq, e.type) for e in history.entries if e.run_id == run.id]
    durable = {kind for _, kind in logged}
    assert logged == [(e.seq, e.type) for e in events if e.type in durable], run.id
    shown: dict[str, str] = defaultdict(str)
    for event in events:
        step = event.data.get("step", "")
        if event.type == "message.delta":
            shown[step] += event.data["text"]
        elif event.type == "message.discarded":
            shown[step] = ""
        elif event.type == "message.created" and shown[step]:
            assert shown.pop(step) == event.data["message"]["content"], f"{run.id} step {step}"
    assert not any(shown.values()), f"{run.id} ended with text that is neither kept nor withdrawn: {shown}"


def check_calls(run: Run, history: History, calls: Sequence[LedgerEntry]) -> None:
    """The model was asked with what the log says, answered what the log has, and not oftener than steps were begun."""
    # A conversation that is too long is condensed, in calls of their own, and asked with once more by the same try.
    extra = [call for call in calls if call.outcome == "refused:context_length" or _condenses(call)]
    assert not [c for c in calls if c.outcome.startswith(("refused", "failed")) and c not in extra], calls
    begun = [e for e in history.events[run.id] if e.type == "step.started" and "/" not in e.data["step"]]
    tries = len(begun) + len(extra)
    assert len(calls) <= tries, f"{run.id}: {len(calls)} model calls for {len(begun)} tries"
    asked, kept = _digests(run, history.entries)
    strange = [call for call in calls if call.digest not in asked and not _condenses(call)]
    assert not strange, f"{run.id} asked with something else than its log: {strange}"
    answered = {call.digest for call in calls if call.status == 200 and call.outcome not in ("open", "disconnected")}
    assert kept <= answered, f"{run.id} kept what the model never answered"
    if run.usage.model_calls or kept:
        assert len(kept) <= run.usage.model_calls <= tries, run


def _condenses(call: LedgerEntry) -> bool:
    return ":condense-" in (call.request_id or "")


def _digests(run: Run, entries: Sequence[Entry]) -> tuple[set[str], set[str]]:
    """Of the histories that the run may ask with, and of those that it got a whole answer to."""
    told, withdrawn = Told(run.agent.instructions), set[int]()
    asked, kept = set(), set()
    for index, entry in enumerate(entries):
        message = _message(entry)
        if message and message["role"] == "assistant" and entry.run_id == run.id and not message.get("partial"):
            kept.add(told.digest)
        if entry.type == "messages.withdrawn":
            withdrawn.update(range(entry.data["from"], entry.data["to"] + 1))
            told = Told(run.agent.instructions)
            for earlier in entries[:index]:
                if earlier.position not in withdrawn:
                    told.add(earlier)
        told.add(entry)
        if told.whole:
            asked.add(told.digest)
    return asked, kept


class Told:
    """What a model is told, as the log's entries come."""

    def __init__(self, instructions: str) -> None:
        self._system = [{"role": "system", "content": instructions}] if instructions else []
        self._turns: list[Turn] = []

    @property
    def whole(self) -> bool:
        """Whether every call has its result."""
        return not self._turns or None not in self._turns[-1].results.values()

    @property
    def digest(self) -> str:
        """As the model server has it."""
        return _digest([*self._system, *(message for turn in self._turns for message in turn.messages)])

    def add(self, entry: Entry) -> None:
        """One more entry."""
        turns, message = self._turns, _message(entry)
        if entry.type == "conversation.condensed":
            newest = next((turn for turn in reversed(turns) if turn.by_the_user), None)
            kept_turns = [turn for turn in turns if turn.end > entry.data["through"] or turn is newest]
            self._turns = [Turn([{"role": "user", "content": SUMMARY + entry.data["summary"]}]), *kept_turns]
        elif message is None:
            return
        elif message["role"] == "tool":
            text = message.get("content", "")
            content = f"Error: {text}" if message.get("is_error") else text
            turns[-1].results[message["call_id"]] = {
                "role": "tool", "tool_call_id": message["call_id"], "content": content,
            }  # fmt: skip
            turns[-1].end = entry.position
        elif message.get("tool_calls"):
            calls = [_call(call) for call in message["tool_calls"]]
            turns.append(Turn([{**_said(message), "tool_calls": calls}], entry.position))
            turns[-1].results = {call["id"]: None for call in calls}
        elif message.get("content") or message["role"] == "user":
            by_the_user = message["role"] == "user" and not entry.data.get("nudge")
            turns.append(Turn([_said(message)], entry.position, by_the_user))


def _said(message: dict[str, Any]) -> dict[str, Any]:
    empty = None if message.get("tool_calls") else ""
    return {"role": message["role"], "content": message.get("content") or empty}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments", "{}")
    try:
        orjson.loads(arguments)
    except orjson.JSONDecodeError:
        arguments = "{}"
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}


def _digest(messages: list[dict[str, Any]]) -> str:
    return hashlib.sha256(orjson.dumps(messages, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check_tools(cluster: Cluster, histories: Iterable[History]) -> None:
    """No tool that must not run twice was started twice; one that is said to have worked was started, one that is said
    to be denied was not."""
    starts = Counter(line["call"] for line in read_tool_ledger(cluster.tool_ledger_path) if line["event"] == "begin")
    for history in histories:
        for entry in history.entries:
            message = _message(entry)
            if message is None or message["role"] != "tool":
                continue
            started = starts[f"{entry.run_id}:{entry.data['step'].replace('/', ':')}"]
            denied = entry.data.get("error", {}).get("class") == "tool_denied"
            assert not (denied and started), f"started all the same: {entry}"
            if message["name"] not in NOT_TWICE:
                continue
            assert started <= 1, f"started {started} times: {entry}"
            assert started == 1 or message.get("is_error"), f"never started: {entry}"


def check_nothing_left(cluster: Cluster) -> None:
    """No open step, nothing due, no message in the broker."""
    with cluster.redis() as connection:

        def left() -> dict[str, Any]:
            sets = ("{p00}:due", "{p00}:ready:model", "{p00}:ready:tools")
            found: dict[str, Any] = {name: connection.zrange(name, 0, 5) for name in sets}
            found |= {f"messages in {name}": cluster.broker.depth(name) for name in ("model", "tools")}
            found["steps"] = connection.keys("{p00}:steps:*")
            return {name: some for name, some in found.items() if some}

        eventually(lambda: not left(), within=5, why="something is left over")


def check_logs(cluster: Cluster) -> None:
    """No process of Palaver logged a traceback that the test did not expect."""
    for name, text in cluster.new_logs().items():
        if name.startswith("model_server"):
            continue
        for trace in text.split("Traceback (most recent call last):")[1:]:
            expected = any(words in trace for words in cluster.expected_in_logs)
            assert expected, f"{name} logged a traceback:{trace[:3000]}"
