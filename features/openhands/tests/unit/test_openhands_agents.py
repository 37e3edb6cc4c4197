"""OpenHands' dialect: what an agent of its client is here."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest
from starlette.requests import HTTPConnection

from api.http.problems import Problem, problem_of
from features.openhands.agents import OpenHandsAgent, Policy, spec_of, there
from features.openhands.content import OpenHandsClientTool, announced, client_tools_of
from features.openhands.dialect import respond
from features.openhands.events import MOST, fitting
from features.openhands.state import ClientState, full_state
from features.openhands.tables import ExecutionStatus, execution_status
from palaver.errors import FieldError, Refused
from palaver.schemas.models import Usage
from palaver.schemas.stuck_limits import StuckLimits
from palaver.steps.retry import RetryPolicy
from palaver.vocabulary.lifecycle import RunStatus
from tests.openhands.log import BEGAN, CONVERSATION

LLM: Final[dict[str, Any]] = {
    "model": "fake/tool-1", "api_key": "sk-secret-1", "base_url": None, "num_retries": 5, "retry_multiplier": 8.0,
    "retry_min_wait": 8, "retry_max_wait": 64, "timeout": 300, "temperature": None, "top_p": 1.0,
    "reasoning_effort": "high", "seed": None, "stream": False, "litellm_extra_body": {}, "usage_id": "agent",
    "extra_headers": {"Authorization": "sk-secret-2"},
}  # fmt: skip
UNUSED: Final = Usage()
AGENT: Final[dict[str, Any]] = {
    "kind": "Agent", "llm": LLM, "tools": [{"name": "calculator", "params": {}}], "mcp_config": {},
    "filter_tools_regex": None, "include_default_tools": ["FinishTool", "ThinkTool"], "system_prompt": None,
    "condenser": None, "critic": None, "tool_concurrency_limit": 1, "persona": None,
}  # fmt: skip


def _given(llm: dict[str, Any] | None = None, **fields: Any) -> OpenHandsAgent:
    body = {**AGENT, **fields, "llm": {**LLM, **(llm or {})}}
    # Bodies are read so.
    return OpenHandsAgent.model_validate_json(orjson.dumps(body), extra="forbid")


def _refused(given: OpenHandsAgent) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        spec_of(given)
    return [(there(fault.pointer), fault.code) for fault in refused.value.faults]


def test_an_agent_as_the_client_sends_it_by_default() -> None:
    spec = spec_of(_given(), max_iterations=500, stuck=StuckLimits())
    assert (spec.model, spec.tools, spec.max_steps) == ("fake/tool-1", ("calculator", "finish", "think"), 500)
    assert spec.approvals.require == "never"
    assert (spec.top_p, spec.reasoning_effort, spec.extra_body, spec.condense) == (None, None, None, False)
    assert spec.instructions


def test_what_the_model_is_asked_with() -> None:
    asked = {"temperature": 0.5, "top_p": 0.5, "seed": 7, "reasoning_effort": "low", "max_output_tokens": 9}
    spec = spec_of(_given({**asked, "litellm_extra_body": {"a": 1}}))
    assert {name: getattr(spec, name) for name in asked} == asked
    assert spec.extra_body == {"a": 1}


def test_waits_and_attempts_become_a_policy() -> None:
    spec = spec_of(_given({"num_retries": 2, "retry_multiplier": 1, "retry_min_wait": 3, "retry_max_wait": 9}))
    rules = RetryPolicy.parse(spec.retry).rules.values()
    assert {(rule.attempts, rule.first, rule.max_delay) for rule in rules} == {(2, 3.0, 9.0)}
    # What a provider asks for is waited for, whatever the client says.
    assert {rule.retry_after_cap for rule in rules} == {300.0}


def test_no_retries_are_one_attempt() -> None:
    spec = spec_of(_given({"num_retries": 0}))
    assert {rule.attempts for rule in RetryPolicy.parse(spec.retry).rules.values()} == {1}


def test_prompt_suffix_and_knowledge_stand_together() -> None:
    context = {
        "system_message_suffix": "In French.",
        "skills": [{"name": "a", "content": "Always."}, {"name": "b", "content": "Seldom.", "trigger": {"type": "x"}}],
    }
    assert (
        spec_of(_given(system_prompt="Help.", agent_context=context)).instructions == "Help.\n\nAlways.\n\nIn French."
    )


def test_a_condenser_condenses() -> None:
    spec = spec_of(
        _given(condenser={"kind": "LLMSummarizingCondenser", "max_tokens": 5000, "llm": LLM, "max_size": 80})
    )
    assert (spec.condense, spec.condense_at, spec.condense_at_messages) == (True, 5000, 79)
    small = spec_of(_given(condenser={"kind": "LLMSummarizingCondenser", "max_size": 4}))
    assert (small.condense_at, small.condense_at_messages) == (None, 10)
    assert not spec_of(_given(condenser={"kind": "NoOpCondenser"})).condense


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (_given({"model": "gpt-5"}), "/agent/llm/model"),
        (_given({"base_url": "ftp://127.0.0.1:1"}), "/agent/llm/base_url"),
        (_given(mcp_config={"mcpServers": {"a": {"command": "npx"}}}), "/agent/mcp_config/mcpServers/a/command"),
        (_given(kind="ACPAgent"), "/agent/kind"),
        (_given(filter_tools_regex="^a"), "/agent/filter_tools_regex"),
        (_given(tools=[{"name": "terminal", "params": {"shell": "sh"}}]), "/agent/tools/0/params"),
        (_given({"temperature": 9}), "/agent/llm/temperature"),
        (_given({"reasoning_effort": "some"}), "/agent/llm/reasoning_effort"),
        (_given(condenser={"kind": "LLMSummarizingCondenser", "max_tokens": 1}), "/agent/condenser/max_tokens"),
    ],
)
def test_what_there_is_not_is_refused_at_its_place(given: OpenHandsAgent, place: str) -> None:
    assert [where for where, _ in _refused(given)] == [place]


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(_refused(_given({"model": "x"}, mcp_config={"a": 1}))) == 2


@pytest.mark.parametrize(
    ("policy", "analyzed", "asked"),
    [
        (Policy(), False, "never"),
        (Policy(kind="AlwaysConfirm"), False, "always"),
        (Policy(kind="ConfirmRisky"), True, "risky"),
        (Policy(kind="ConfirmRisky", threshold="LOW"), True, "always"),
        (Policy(kind="ConfirmRisky"), False, "always"),
        (Policy(kind="ConfirmRisky", confirm_unknown=False), False, "never"),
    ],
)
def test_a_policy_says_which_calls_wait(policy: Policy, analyzed: bool, asked: object) -> None:
    assert spec_of(_given(), policy=policy, analyzed=analyzed).approvals.require == asked


def test_finish_and_think_wait_unless_they_are_alone() -> None:
    approvals = spec_of(_given(), policy=Policy(kind="AlwaysConfirm")).approvals
    for tool in ("finish", "think"):
        assert not approvals.ask(tool, risky=False, alone=True)
        assert approvals.ask(tool, risky=False, alone=False)
    assert approvals.ask("calculator", risky=False, alone=True)


@pytest.mark.parametrize(
    ("model", "here", "protocol"),
    [
        ("openai/gpt-5", "inline/gpt-5", "chat_completions"),
        ("litellm_proxy/a/b", "inline/a/b", "chat_completions"),
        ("anthropic/claude", "inline/claude", "anthropic"),
        ("qwen/qwen3", "inline/qwen/qwen3", "chat_completions"),
        ("plain", "inline/plain", "chat_completions"),
    ],
)
def test_a_model_may_bring_its_address(model: str, here: str, protocol: str) -> None:
    spec = spec_of(_given({"model": model, "base_url": "https://llm.example/v1/"}))
    assert spec.model == here
    assert spec.endpoint is not None
    assert (spec.endpoint.base_url, spec.endpoint.protocol) == ("https://llm.example/v1", protocol)
    assert spec.endpoint.api_key is not None
    assert spec.endpoint.api_key.get_secret_value() == LLM["api_key"]


def test_an_event_is_never_larger_than_a_frame() -> None:
    text = "\x01" * 2_000_000
    whole = {"kind": "MessageEvent", "id": "1", "llm_message": {"content": [{"type": "text", "text": text}] * 3}}
    shown = fitting(whole)
    assert len(orjson.dumps(shown)) <= MOST
    assert shown["llm_message"]["content"][0]["text"].endswith("characters more]")
    small = {"kind": "MessageEvent", "text": "a" * 300_000}
    assert fitting(small) == small


def test_no_key_is_kept_or_shown() -> None:
    body = {
        **AGENT,
        "condenser": {"kind": "LLMSummarizingCondenser", "llm": LLM},
        "agent_context": {"secrets": {"K": "v"}},
    }
    kept = ClientState(agent=body)
    shown = orjson.dumps(_state(kept)).decode()
    assert "sk-secret" not in kept.model_dump_json() + shown
    assert '"secrets"' not in kept.model_dump_json()


def test_the_state_says_what_was_used() -> None:
    usage = Usage(input_tokens=5, output_tokens=7, model_calls=1, cost_usd=0.25)
    metrics = _state(ClientState(agent=AGENT), usage)["stats"]["usage_to_metrics"]["agent"]
    assert metrics["accumulated_cost"] == 0.25
    assert metrics["accumulated_token_usage"]["completion_tokens"] == 7


@pytest.mark.parametrize("status", RunStatus)
def test_each_status_of_a_run_is_one_that_clients_know(status: RunStatus) -> None:
    assert execution_status(status) in set(ExecutionStatus) - {ExecutionStatus.DELETING, ExecutionStatus.STUCK}
    if not status.terminal:
        assert execution_status(status) not in (ExecutionStatus.IDLE, ExecutionStatus.FINISHED, ExecutionStatus.ERROR)


def test_problems_say_what_and_where() -> None:
    refused = Refused.of_faults(
        [FieldError("/agent/model", "unknown_provider", "names none"), FieldError("?limit", "x", "is none")]
    )
    request = HTTPConnection({"type": "http", "state": {"request_id": "req_1"}})
    answer = respond(problem_of(refused, "req_1"), request)
    told = orjson.loads(answer.body)["detail"]
    assert [each["loc"] for each in told] == [["body", "agent", "llm", "model"], ["query", "limit"]]
    detail = orjson.loads(respond(Problem("conversation_not_found"), request).body)["detail"]
    assert isinstance(detail, str)


def _state(kept: ClientState, usage: Usage = UNUSED) -> dict[str, Any]:
    status = ExecutionStatus.IDLE
    named: dict[str, Any] = {"title": None, "tags": {}, "created_at": BEGAN, "updated_at": BEGAN, "client_tools": ()}
    return full_state(CONVERSATION, kept, status, usage=usage, **named)


def test_client_tools_are_acknowledged_and_bounded_together() -> None:
    large = {"type": "object", "description": "x" * 30_000}
    given = [OpenHandsClientTool(name=f"show_{i}", description="", parameters=large) for i in range(10)]
    taken = client_tools_of(given[:8])
    assert all(tool.acknowledgement for tool in taken)
    assert announced(taken) == taken
    with pytest.raises(Refused) as refused:
        client_tools_of(given)
    assert [fault.pointer for fault in refused.value.faults] == ["/client_tools"]
    # Another dialect may have taken more.
    assert len(announced([*taken, *taken])) == 8


@pytest.mark.slow
@pytest.mark.parametrize("text", ["\U0001f600" * 40, "\x01" * 60, "a" * 63], ids=["wide", "escaped", "plain"])
def test_an_event_of_very_many_short_texts_fits_too(text: str) -> None:
    many = [{"type": "text", "text": text} for _ in range(20_000)]
    for event in (
        {"kind": "ObservationEvent", "observation": {"kind": "MCPToolObservation", "content": many}},
        {"kind": "MessageEvent", "llm_message": {"role": "user", "content": many}},
        {"kind": "ActionEvent", "thought": many, "action": {"kind": "ClientAction_a", "of": [text] * 20_000}},
        {"kind": "ActionEvent", "thought": [], "action": {"kind": "MCPToolAction", "data": {"a": {"b": many}}}},
    ):
        shown = fitting(event)
        assert 0 < len(orjson.dumps(shown)) <= MOST
        assert shown["kind"] == event["kind"]
        assert fitting(event) == shown
