"""The tools' ledger against the log: what was started, how often, and whether the results tell the truth."""

from __future__ import annotations

from collections import Counter

from palaver.store.reading.events import LogEntry
from tests.checkers.evidence import Evidence, message_of

NOT_TWICE = frozenset({"record", "nap", "busy", "crash", "overrun", "send", "linger"})
"""Tools that are not idempotent and never ask to be tried again."""


def no_tool_twice(evidence: Evidence) -> None:
    """I3: a tool that must not run twice was started at most once for each call."""
    for history in evidence.histories:
        for entry in history.entries:
            if (message := message_of(entry)) and message["role"] == "tool" and message["name"] in NOT_TWICE:
                started = _starts(evidence, entry)
                assert started <= 1, f"started {started} times: {entry}"


def results_are_true(evidence: Evidence) -> None:
    """I3: what is said to have worked was started, what is said to be denied was not, and what had begun and has no
    result of its own is said to be in doubt."""
    for history in evidence.histories:
        for entry in history.entries:
            message = message_of(entry)
            if message is None or message["role"] != "tool":
                continue
            started = _starts(evidence, entry)
            told = (entry.data.get("error") or {}).get("class")
            assert not (told == "tool_denied" and started), f"started all the same: {entry}"
            if message["name"] in NOT_TWICE:
                assert started or message.get("is_error"), f"never started: {entry}"
            if told == "tool_interrupted":
                assert "may or may not have taken effect" in message["content"], f"says too much: {entry}"


def starts_have_calls(evidence: Evidence) -> None:
    """I3: each start of a tool carries the key of a call that the model made, the same one at each try, and there are
    no more starts than tries."""
    for run, events in evidence.runs:
        tries = Counter(_key(run.id, event.data["step"]) for event in events if event.type == "step.started")
        for key, count in Counter(start["call"] for start in evidence.tool_starts.get(run.id, ())).items():
            assert count <= tries[key], f"{key} was started {count} times in {tries[key]} tries"


def _starts(evidence: Evidence, result: LogEntry) -> int:
    key = _key(result.run_id, result.data["step"])
    return sum(start["call"] == key for start in evidence.tool_starts.get(result.run_id, ()))


def _key(run_id: str, step: str) -> str:
    return f"{run_id}:{step.replace('/', ':')}"
