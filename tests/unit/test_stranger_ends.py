"""Ends and errors in the words of any server: what ended is told from what broke off, and from an error."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from palaver.errors import EmptyTurn, MalformedResponse, ProviderError, ProviderHTTPError, TruncatedStream
from palaver.schemas.protocols import ProtocolName
from tests.unit.test_odd_streams import DONE, chunk, event, reader, shown
from tests.unit.test_stranger_streams import HEL_LO, SAID, SPOKEN, done, item

ERRORS: Final[list[tuple[ProtocolName, dict[str, Any]]]] = [
    ("chat_completions", {"object": "error", "message": "boom", "code": 400}),
    ("chat_completions", {"type": "error", "message": "boom"}),
    ("chat_completions", {"code": "Throttling", "message": "boom"}),
    ("chat_completions", {"detail": "boom"}),
    ("chat_completions", {"errors": [{"message": "boom"}]}),
    ("chat_completions", {"choices": [{"delta": {}, "finish_reason": "error", "error": {"message": "boom"}}]}),
    ("chat_completions", {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "boom"}}),
    ("anthropic", {"type": "error", "message": "boom"}),
    ("responses", {"type": "error", "message": "boom"}),
]


@pytest.mark.parametrize(("protocol", "error"), ERRORS)
def test_an_error_is_one_however_it_is_written(protocol: ProtocolName, error: dict[str, Any]) -> None:
    for begun in (b"", *([HEL_LO] if protocol == "chat_completions" else [])):
        with pytest.raises(ProviderHTTPError) as raised:
            shown(reader(protocol), begun, event(**error), DONE)
        assert b"boom" in raised.value.body
    with pytest.raises(ProviderHTTPError):
        reader(protocol).read(json.dumps(error).encode())


@pytest.mark.parametrize("fields", [{"status": "failed"}, {}, {"error": {"message": "boom"}}])
def test_a_response_that_failed_is_an_error(fields: dict[str, Any]) -> None:
    said = item("output_text.delta", delta="he")
    for last in (done(kind="failed", **fields), item("failed"), item("error", message="boom"), done(status="failed")):
        with pytest.raises(ProviderHTTPError):
            shown(reader("responses"), said, last)


@pytest.mark.parametrize(
    ("finish", "right"),
    [
        *((word, "content_filter") for word in ("RECITATION", "PROHIBITED_CONTENT", "content_filter: SAFETY")),
        *((word, "length") for word in ("MAX_TOKENS", "length", "max_output_tokens")),
    ],
)
def test_an_end_has_the_words_of_any_server(finish: str, right: str) -> None:
    assert shown(reader(), chunk({"content": ""}, finish), DONE)[0].finish_reason == right
    ended = event(type="message_delta", delta={"stop_reason": finish})
    assert shown(reader("anthropic"), SPOKEN, ended)[0].finish_reason == right


@pytest.mark.parametrize(
    "finish", ["abort", "malformed_function_call", "function_call_filter: MALFORMED_FUNCTION_CALL"]
)
def test_a_model_that_broke_off_has_not_ended_its_turn(finish: str) -> None:
    with pytest.raises(ProviderError, match="broke off") as raised:
        shown(reader(), chunk({"content": ""}, finish), DONE)
    assert not isinstance(raised.value, EmptyTurn)


def test_an_incomplete_response_says_so_by_its_event_alone() -> None:
    reply, _, _ = shown(reader("responses"), item("output_text.delta", delta="he"), done(kind="incomplete"))
    assert reply.finish_reason == "length"


@pytest.mark.parametrize("stream", [b": ping\n\n" * 5, b"", b"data:\n\n"])
def test_signs_of_life_alone_are_a_stream_that_was_cut_off(stream: bytes) -> None:
    with pytest.raises(TruncatedStream):
        shown(reader(), stream)


def test_a_page_is_no_stream_and_lines_behind_an_event_are_no_part_of_it() -> None:
    with pytest.raises(MalformedResponse, match="something else"):
        shown(reader(), b"<html>\n<title>502</title>\n</html>\n")
    odd = SAID.replace(b"\n\n", b"\nwords: of a proxy\n\n")
    assert shown(reader(), odd)[1] == "hello"
