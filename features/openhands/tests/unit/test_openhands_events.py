"""OpenHands' dialect: what an entry of a log is in its words."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest

from features.openhands.events import Event, Writer, timestamp
from features.openhands.ids import action_id, event_id, place_of
from features.openhands.state import Generation
from palaver.errors import ErrorClass
from palaver.vocabulary.lifecycle import RunStatus, StopReason
from tests.openhands.log import BEGAN, CONVERSATION, LOG, SHOW, answered, called, entry, error, said

NEWER = Writer(CONVERSATION, Generation.NEWER, {"show": SHOW})
OLDER = Writer(CONVERSATION, Generation.OLDER, {"show": SHOW})


def _all(writer: Writer) -> list[Event]:
    return [event for each in LOG for event in writer.of(each)]


def test_the_log_that_real_clients_read_has_every_kind_that_is_written() -> None:
    # But for deltas, which are not kept.
    events = [*_all(NEWER), *_all(OLDER), NEWER.system_prompt(BEGAN, "You help.")]
    assert {event["kind"] for event in events} == {
        "SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "PauseEvent",
        "UserRejectObservation", "ConversationErrorEvent", "ConversationStateUpdateEvent", "Condensation",
        "InterruptEvent",
    }  # fmt: skip
    done = [event[part]["kind"] for part in ("action", "observation") for event in events if part in event]
    assert set(done) == {
        "FinishAction", "ThinkAction", "MCPToolAction", "ClientAction_show", "FinishObservation", "ThinkObservation",
        "MCPToolObservation", "ClientToolObservation",
    }  # fmt: skip


def test_each_look_at_a_log_gives_the_same_events() -> None:
    assert _all(NEWER) == _all(Writer(UUID(CONVERSATION.hex), Generation.NEWER, {"show": SHOW}))
    names = [event["id"] for event in _all(NEWER)]
    assert len(set(names)) == len(names)
    assert not set(names).intersection(event["id"] for event in map(dict, _all(Writer(uuid4(), Generation.NEWER))))


def test_events_are_in_order_of_the_text_of_their_times() -> None:
    times = [event["timestamp"] for event in _all(NEWER)]
    assert times == sorted(times)
    assert {len(each) for each in times} == {26}


def test_a_time_is_of_utc_and_as_long_as_any() -> None:
    whole = BEGAN.replace(microsecond=0).astimezone(timezone(timedelta(hours=5)))
    assert timestamp(whole) == "2026-01-02T03:04:05.000000"


def test_an_answer_with_calls_is_an_action_each_and_what_was_said_stands_before_the_first() -> None:
    first, second = NEWER.of(called(4, ("a", "think", '{"thought":"hm"}'), ("b", "add", '{"x":1}'), text="Well."))
    assert first["thought"] == [{"type": "text", "text": "Well."}]
    assert first["reasoning_content"] == "So that is how it is."
    assert first["action"] == {"kind": "ThinkAction", "thought": "hm"}
    assert second["thought"] == []
    assert second["action"] == {"kind": "MCPToolAction", "data": {"x": 1}}
    assert first["llm_response_id"] == second["llm_response_id"]


@pytest.mark.parametrize("arguments", ["[1]", "{", "1", '"x"'])
def test_a_call_whose_arguments_are_no_object_did_nothing(arguments: str) -> None:
    [event] = NEWER.of(called(4, ("a", "add", arguments)))
    assert "action" not in event
    assert event["tool_call"]["arguments"] == arguments


def test_a_result_names_the_action_that_it_is_of() -> None:
    asked = {event["tool_call_id"]: event["id"] for event in _all(NEWER) if event["kind"] == "ActionEvent"}
    results = [event for event in _all(NEWER) if "action_id" in event]
    assert len(results) == 5
    assert all(asked[event["tool_call_id"]] == event["action_id"] for event in results)


def test_the_same_call_id_in_another_step_is_another_action() -> None:
    assert (
        NEWER.of(called(4, ("c", "add", "{}")))[0]["id"] != NEWER.of(called(9, ("c", "add", "{}"), step="2"))[0]["id"]
    )
    of_step, of_call = (action_id(CONVERSATION, "run_1", step, "c") for step in ("2", "2/c"))
    assert of_step == of_call


@pytest.mark.parametrize("writer", [NEWER, OLDER])
def test_how_risky_a_call_was_is_told_from_the_log(writer: Writer) -> None:
    asked = ("a", "send", "{}"), ("b", "add", "{}"), ("c", "show", '{"what":"x"}'), ("d", "add", '{"y":1}')
    events = writer.of(called(4, *asked, risky_calls=["a"], refused_calls=["d"]))
    assert [event.get("security_risk") for event in events] == ["HIGH", "LOW", None, None]
    # What was there before the log said so, nobody knows.
    assert not any("security_risk" in event for event in writer.of(called(4, *asked)))


def test_a_call_that_was_not_made_has_no_action() -> None:
    asked = ("a", "show", '{"what":"x"}'), ("b", "show", '{"what":"y"}')
    made, refused = NEWER.of(called(4, *asked, risky_calls=[], refused_calls=["b"]))
    assert made["action"] == {"kind": "ClientAction_show", "what": "x"}
    assert "action" not in refused


@pytest.mark.parametrize(
    ("properties", "arguments", "kind"),
    [
        ({"what": {"type": "string"}}, {"what": "x"}, "ClientAction_show"),
        ({"what": {"type": "string"}}, {}, "ClientAction_show"),
        ({"what": {"type": "string"}}, {"what": None}, "ClientAction_show"),
        ({"what": {"type": ["string", "null"]}}, {"what": "x"}, "ClientAction_show"),
        ({"what": {"type": "array", "items": {"type": "integer"}}}, {"what": [1]}, "ClientAction_show"),
        ({"what": {"anyOf": []}}, {"what": [1]}, "ClientAction_show"),
        ({"what": {"type": "boolean"}}, {"what": True}, "ClientAction_show"),
        ({"what": {"type": "integer"}}, {"what": True}, "MCPToolAction"),
        ({"what": {"type": "string"}}, {"what": 1}, "MCPToolAction"),
        ({"what": {"type": "array", "items": {"type": "integer"}}}, {"what": ["1"]}, "MCPToolAction"),
        ({"what": {}}, {"more": 1}, "MCPToolAction"),
        ({"kind": {"type": "string"}}, {"kind": "x"}, "MCPToolAction"),
    ],
)
def test_a_call_of_a_client_tool_is_of_the_kind_that_its_client_has_made(
    properties: dict[str, Any], arguments: dict[str, Any], kind: str
) -> None:
    tool = SHOW.model_copy(update={"parameters": {"type": "object", "properties": properties}})
    asked = called(4, ("a", "show", orjson.dumps(arguments).decode()))
    [event] = Writer(CONVERSATION, Generation.NEWER, {"show": tool}).of(asked)
    assert event["action"]["kind"] == kind
    [event] = Writer(CONVERSATION, Generation.OLDER, {"show": tool}).of(asked)
    assert event["action"] == {"kind": "MCPToolAction", "data": arguments}


def test_what_the_model_can_mend_is_no_end() -> None:
    [event] = NEWER.of(answered(5, "a", "add", "No such tool.", error(ErrorClass.INVALID_TOOL_CALL)))
    assert (event["kind"], event["error"]) == ("AgentErrorEvent", "No such tool.")
    assert event["classification"]["kind"] == "agent_action"


def test_a_denied_call_is_a_rejection() -> None:
    [event] = NEWER.of(answered(5, "a", "add", "The user denied this tool call.", error(ErrorClass.TOOL_DENIED)))
    assert (event["kind"], event["rejection_reason"]) == ("UserRejectObservation", "The user denied this tool call.")


@pytest.mark.parametrize("reason", ["no thanks", "The user denied this tool call. Twice.", "two\nlines "])
def test_the_reason_of_a_denial_comes_as_it_was_given(reason: str) -> None:
    told = f"The user denied this tool call. {reason}"
    [event] = NEWER.of(answered(5, "a", "add", told, error(ErrorClass.TOOL_DENIED)))
    assert event["rejection_reason"] == reason


def test_an_error_is_told_before_the_status() -> None:
    told, status = NEWER.of(
        entry(9, "run.finished", status="failed", stop_reason="error", error=error(ErrorClass.RATE_LIMITED, "Slow."))
    )
    assert (told["kind"], told["code"], told["detail"]) == ("ConversationErrorEvent", "LLMRateLimitError", "Slow.")
    assert told["classification"] == {"kind": "rate_limit", "retryable": True, "user_action": "retry"}
    assert (status["key"], status["value"]) == ("execution_status", "error")


@pytest.mark.parametrize("reason", [each for each in StopReason if each.status is RunStatus.INCOMPLETE])
def test_a_limit_has_a_code_of_its_own(reason: StopReason) -> None:
    told, status = NEWER.of(entry(9, "run.finished", status="incomplete", stop_reason=reason, error=None))
    assert told["code"] not in ("RunEnded", "InternalError")
    assert status["value"] == "error"


def test_an_error_has_the_providers_own_words() -> None:
    said = error(ErrorClass.CONTENT_FILTER) | {"provider": {"name": "claude", "message": "Not about that."}}
    [withheld, _] = NEWER.of(
        entry(
            9,
            "run.finished",
            status="incomplete",
            stop_reason=StopReason.CONTENT_FILTER,
            error=None,
            incomplete_details=said,
        )
    )
    assert withheld["detail"] == "The provider withheld the answer. The provider said: Not about that."
    refused = error(ErrorClass.INVALID_REQUEST, "Refused.") | {
        "provider": {"name": "fake", "message": "No such field."}
    }
    [failed, _] = OLDER.of(entry(9, "run.finished", status="failed", stop_reason="error", error=refused))
    assert failed["detail"] == "Refused. The provider said: No such field."


def test_a_run_that_is_stuck_has_no_error() -> None:
    failed = error(ErrorClass.STUCK)
    [status] = NEWER.of(entry(9, "run.finished", status="failed", stop_reason="stuck", error=failed))
    assert status["value"] == "stuck"


def test_the_older_generation_is_told_nothing_new() -> None:
    fields = {name for event in _all(OLDER) for name in event}
    assert not fields & {"parent_id", "classification", "rejection_source", "summary_offset", "extended_content"}
    assert "InterruptEvent" not in {event["kind"] for event in _all(OLDER)}
    assert "InterruptEvent" in {event["kind"] for event in _all(NEWER)}


def test_what_the_engine_said_is_not_of_the_user() -> None:
    [nudge] = NEWER.of(said(3, "user", "Try something else.", nudge=True))
    assert (nudge["source"], nudge["llm_message"]["role"]) == ("environment", "user")


def test_a_name_tells_the_place() -> None:
    name = event_id(CONVERSATION, 123_456, 3)
    assert place_of(CONVERSATION, name) == (123_456, 3)
    assert place_of(uuid4(), name) is None
    assert place_of(CONVERSATION, "no name") is None
    assert place_of(CONVERSATION, action_id(CONVERSATION, "run_1", "1", "c")) is None
