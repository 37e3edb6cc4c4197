"""What providers call an answer and the model that gave it is known, and nothing else passes for a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from palaver.secrets.redaction import register_secrets
from tests.unit.answers import streamed
from workers.protocols import CHAT_COMPLETIONS, MESSAGES, RESPONSES, ModelProtocol, ModelReply

TEXT = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
BLOCK = {"type": "text", "text": "Hi"}


def _events(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)


def _chunks(named: dict[str, Any]) -> bytes:
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    # Azure begins with a chunk that has no name.
    return _events({"id": "", "model": "", "choices": []}, {**named, "choices": [choice]}) + b"data: [DONE]\n\n"


def _blocks(named: dict[str, Any]) -> bytes:
    return _events(
        {"type": "message_start", "message": {**named, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": BLOCK},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )


def _items(named: dict[str, Any]) -> bytes:
    return _events({"type": "response.completed", "response": _response(named)})


def _response(named: dict[str, Any]) -> dict[str, Any]:
    return {**named, "status": "completed", "output": [TEXT]}


STREAMS: dict[ModelProtocol, Callable[[dict[str, Any]], bytes]] = {
    CHAT_COMPLETIONS: _chunks,
    MESSAGES: _blocks,
    RESPONSES: _items,
}
WHOLE: dict[ModelProtocol, Callable[[dict[str, Any]], dict[str, Any]]] = {
    CHAT_COMPLETIONS: lambda named: {**named, "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]},
    MESSAGES: lambda named: {**named, "content": [BLOCK], "stop_reason": "end_turn"},
    RESPONSES: _response,
}


def _replies(protocol: ModelProtocol, named: dict[str, Any]) -> list[ModelReply]:
    whole = protocol.reader(max_calls=8)
    whole.read(json.dumps(WHOLE[protocol](named)).encode())
    return [streamed(protocol.reader(max_calls=8), STREAMS[protocol](named))[0], whole.reply()]


@pytest.mark.parametrize("protocol", STREAMS, ids=lambda protocol: protocol.name)
def test_an_answer_has_its_names(protocol: ModelProtocol) -> None:
    for reply in _replies(protocol, {"id": "x-1", "model": "m-2026-11-01"}):
        assert (reply.content, reply.response_id, reply.response_model) == ("Hi", "x-1", "m-2026-11-01")


@pytest.mark.parametrize("protocol", STREAMS, ids=lambda protocol: protocol.name)
def test_what_is_no_name_is_left_out_and_spoils_nothing(protocol: ModelProtocol) -> None:
    register_secrets(["sk-of-a-provider-0123456789"])
    for wrong in (None, 7, {"a": 1}, "x" * 10_000, "key sk-of-a-provider-0123456789"):
        for reply in _replies(protocol, {"id": wrong, "model": wrong}):
            assert (reply.content, reply.response_id, reply.response_model) == ("Hi", "", "")


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"type": "refusal", "category": "bio", "explanation": "Not this."}, "Not this."),
        ({"type": "refusal", "category": "bio", "explanation": None}, "bio"),
        (None, ""),
    ],
)
def test_why_an_answer_was_refused_is_kept(details: Any, said: str) -> None:
    stream = _events(
        {"type": "message_start", "message": {"content": []}},
        {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}},
        {"type": "message_stop"},
    )
    assert streamed(MESSAGES.reader(max_calls=8), stream)[0].explanation == said
    whole = MESSAGES.reader(max_calls=8)
    whole.read(json.dumps({"content": [], "stop_reason": "refusal", "stop_details": details}).encode())
    assert (whole.reply().finish_reason, whole.reply().explanation) == ("content_filter", said)
