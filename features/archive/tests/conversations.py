"""Conversations as Redis has them, for tests of the archive."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from features.archive.records import ArchivedConversation, ArchivedEntry, ArchivedRun
from palaver.vocabulary.ids import derived_conversation_id, derived_run_id, new_conversation_id

SHARDS: Final = 16
AT: Final = 1_764_500_000_123
"""Milliseconds: 2025-11-30T10:53:20.123Z."""
AGENT: Final = {"model": "openai/large", "fallbacks": ["openai/small"], "name": "support", "version": 3}


def conversation_id(seed: str, tag: str = "") -> str:
    """The id of a conversation of the tenant with this tag, always the same one."""
    return derived_conversation_id(new_conversation_id(SHARDS, "00", tag), seed, SHARDS)


def entry(position: int, kind: str, run_id: str, data: Mapping[str, Any], **more: str) -> ArchivedEntry:
    """An entry as scripts write it."""
    text = json.dumps(data, ensure_ascii=False)
    fields = {"type": kind, "at": str(AT + position), "run": run_id, "seq": str(position), "data": text, **more}
    return ArchivedEntry(position, fields)


def said(position: int, run_id: str, text: str, role: str = "user", **more: Any) -> ArchivedEntry:
    """An entry with a message."""
    return entry(position, "message.created", run_id, {"message": {"role": role, "content": text}, **more})


def run_of(conversation: str, seed: str = "run", **fields: str) -> ArchivedRun:
    """A run that has completed, unless fields say otherwise."""
    run_id = derived_run_id(conversation, f"{conversation} {seed}")
    usual = {
        "id": run_id,
        "conversation": conversation,
        "status": "completed",
        "stop_reason": "final_answer",
        "agent": json.dumps(AGENT),
        "model": "1",
        "submitted_by": "ci/alice",
        "created_at": str(AT),
        "started_at": str(AT + 10),
        "ended_at": str(AT + 2010),
        "input_tokens": "1200",
        "output_tokens": "34",
        "model_calls": "2",
        "tool_calls": "1",
        "cost": "1234567",
        "metadata": '{"customer":"4711"}',
        "tags": '["vip"]',
    }
    return ArchivedRun(run_id, {**usual, **fields})


def conversation(
    conversation: str,
    entries: Sequence[ArchivedEntry] = (),
    runs: Iterable[ArchivedRun] = (),
    after: int = 0,
    **fields: str,
) -> ArchivedConversation:
    """A conversation with these entries and runs."""
    usual = {
        "id": conversation,
        "title": "A refund",
        "agent": json.dumps(AGENT),
        "metadata": "{}",
        "tags": "[]",
        "created_at": str(AT),
        "updated_at": str(AT + 5),
        "entries": str(after + len(entries)),
        "bytes": "4000",
        "cost": "1234567",
    }
    return ArchivedConversation(conversation, {**usual, **fields}, entries, tuple(runs), after)


def with_a_call(conversation_id: str) -> ArchivedConversation:
    """A conversation in which a tool was asked, approved and answered."""
    run = run_of(conversation_id)
    call = {"id": "call_1", "name": "refund", "arguments": '{"order":4711}'}
    approved = {"action_id": "act_1", "call_id": "call_1", "decision": "approve", "by": "bo"}
    parts = [{"type": "text", "text": "two"}, {"type": "image", "url": "https://a.example/x.png"}]
    entries = [
        said(1, run.id, "Where is 4711?"),
        entry(
            2,
            "message.created",
            run.id,
            {
                "step": "1",
                "model": "openai/small",
                "prompt_tokens": 600,
                "output_tokens": 20,
                "cost_usd": 0.001,
                "message": {"role": "assistant", "content": "", "tool_calls": [call]},
            },
            opaque='openai\n{"z":1,"a":"ü"}',
        ),
        entry(3, "action.resolved", run.id, approved),
        entry(
            4,
            "tool.finished",
            run.id,
            {
                "step": "1/call_1",
                "message": {"role": "tool", "call_id": "call_1", "name": "refund", "content": "no", "is_error": True},
                "error": {"class": "tool_error", "message": "no"},
            },
        ),
        entry(5, "message.created", run.id, {"message": {"role": "user", "content": parts}}),
    ]
    outcome = json.dumps({"run_id": run.id, "status": "completed", "stop_reason": "final_answer"})
    return conversation(conversation_id, entries, [run], last_outcome=outcome)
