"""The log of a conversation: nothing lost, nothing doubled, every turn whole."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from tests.checkers.evidence import Evidence, History, message_of

_SEALED = re.compile(r"Cancelled after it had begun|the run ended \(|The user cancelled the request|The run ended \(")


def positions_have_no_gap(evidence: Evidence) -> None:
    """I1: positions are 1, 2, … up to what the conversation counts."""
    for history in evidence.histories:
        positions = [entry.position for entry in history.entries]
        assert positions == list(range(1, len(positions) + 1)), f"{history.conversation.id}: {positions}"
        assert len(positions) == history.conversation.entries, f"{history.conversation}: {len(positions)} entries"


def accepted_input_is_there(evidence: Evidence) -> None:
    """I1: what a client was told to be accepted is the first message of its run, unless that never had its turn."""
    texts = {sent.run_id: sent.text for sent in evidence.sent}
    for history in evidence.histories:
        said: dict[str, list[str]] = defaultdict(list)
        for entry in history.entries:
            if (message := message_of(entry)) and message["role"] == "user":
                said[entry.run_id].append(message.get("content", ""))
        for run_id, run in history.runs.items():
            if run_id in texts and run.step > 0:
                assert texts[run_id] in said[run_id], f"{run_id} lacks its input {texts[run_id]!r}: {said[run_id]}"


def every_step_has_its_message(evidence: Evidence) -> None:
    """I1: a run that completed has the model's message of each of its steps. One that was to condense has a summary, or
    asked no model: the newest turns and the user's newest message stay, and that may be all there is."""
    for history in evidence.histories:
        condensed = {entry.run_id for entry in history.entries if entry.type == "conversation.condensed"}
        steps = defaultdict(set)
        for entry in history.entries:
            if (message := message_of(entry)) and message["role"] == "assistant" and entry.data.get("step"):
                steps[entry.run_id].add(entry.data["step"])
        for run_id, run in history.runs.items():
            if run.status != "completed":
                continue
            if "condense" in run.tags:
                calls = run.usage.model_calls
                assert not steps[run_id], f"{run_id} was to condense, and has messages of {steps[run_id]}"
                assert (run_id in condensed) == (calls > 0), f"{run_id} was to condense, and made {calls} calls"
            else:
                wanted = {str(number) for number in range(1, run.step + 1)}
                assert steps[run_id] == wanted, f"{run_id} has messages of {steps[run_id]}, not {wanted}"


def messages_once(evidence: Evidence) -> None:
    """I2: no step has two messages, and no event is in the log twice."""
    for history in evidence.histories:
        steps = Counter((e.run_id, e.data["step"]) for e in history.entries if e.data.get("step") and message_of(e))
        twice = [step for step, count in steps.items() if count > 1]
        assert not twice, f"two messages of one step: {twice}"
        # What is of no run has no number in it.
        events = Counter((entry.run_id, entry.seq) for entry in history.entries if entry.run_id)
        twice = [event for event, count in events.items() if count > 1]
        assert not twice, f"in the log twice: {twice}"


def one_run_for_a_key(evidence: Evidence) -> None:
    """I2: whatever was sent with the same idempotency key became one run."""
    runs = defaultdict(set)
    for sent in evidence.sent:
        if sent.key is not None:
            runs[sent.key].add(sent.run_id)
    doubled = {key: ids for key, ids in runs.items() if len(ids) > 1}
    assert not doubled, f"several runs for one key: {doubled}"


def calls_have_one_result(evidence: Evidence) -> None:
    """I4: every call has exactly one result, in its turn. The strict model server says so a second time: see
    ``nothing_refused``."""
    for history in evidence.histories:
        waiting: dict[str, str] = {}
        for entry in history.entries:
            message = message_of(entry)
            if message is None:
                continue
            if message["role"] == "tool":
                assert waiting.pop(message["call_id"], None) == entry.run_id, f"a result without a call: {entry}"
                continue
            assert not waiting, f"calls without a result before {entry}: {waiting}"
            waiting = dict.fromkeys((call["id"] for call in message.get("tool_calls", ())), entry.run_id)
        going = {run.id for run in history.runs.values() if not run.status.terminal}
        open_still = {call: run_id for call, run_id in waiting.items() if run_id not in going}
        assert not open_still, f"calls without a result: {open_still}"


def sealed_in_call_order(evidence: Evidence) -> None:
    """I4: the results that the end of a run gave are in the order of the calls."""
    for history in evidence.histories:
        order: dict[str, int] = {}
        last: dict[str, int] = {}
        for entry in history.entries:
            message = message_of(entry)
            if message is None:
                continue
            if message["role"] != "tool":
                order = {call["id"]: place for place, call in enumerate(message.get("tool_calls", ()))}
                last = {}
            elif _SEALED.search(str(message.get("content", ""))):
                place = order.get(message["call_id"], -1)
                assert place > last.get(entry.run_id, -1), f"sealed out of order: {entry}"
                last[entry.run_id] = place


def withdrawn_as_a_whole(evidence: Evidence) -> None:
    """I4: withdrawn is everything that a run said that was rolled back, and everything that its conversation went back
    over; and nothing otherwise."""
    for history in evidence.histories:
        gone_back_over = _gone_back_over(history)
        for entry in history.entries:
            run = history.runs.get(entry.run_id)
            if not message_of(entry) or (entry.run_id and (run is None or not run.status.terminal)):
                continue
            rolled_back = bool(run and run.cancel and run.cancel.mode == "rollback")
            assert run is None or run.withdrawn == rolled_back, f"{entry.run_id}: {run}"
            expected = rolled_back or entry.position in gone_back_over
            assert entry.withdrawn == expected, f"{entry}: {rolled_back=} {gone_back_over=}"


def _gone_back_over(history: History) -> set[int]:
    """The positions that a withdrawal of no run names, each of which ends right before its entry."""
    found = set[int]()
    for entry in history.entries:
        if entry.type == "messages.withdrawn" and not entry.run_id:
            first, last = entry.data["first"], entry.data["last"]
            assert first <= last == entry.position - 1, f"withdrawn is something else than the end of the log: {entry}"
            found.update(range(first, last + 1))
    return found
