"""The rules of each protocol: in one row, and held by its module."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pytest

from palaver.config import providers
from palaver.config.providers import Provider
from palaver.errors import FieldError
from palaver.operations.admission.faults import field_error
from palaver.operations.admission.judging.agents import agent_faults, part_faults
from palaver.operations.admission.lookup import Known
from palaver.operations.admission.tree import AgentTree
from palaver.schemas.grammars import STRICT, ToolGrammar
from palaver.schemas.model_options import ModelOptions
from palaver.schemas.models import AgentSpec, Message, ToolCall
from palaver.schemas.protocols import PROTOCOL_RULES, ProtocolName, ProtocolRules, ProviderOptions, Role, Thinking
from palaver.vocabulary.limits import limit_of
from tests.pages import ROOT, syntax
from workers.models.model_terms import ModelTerms
from workers.protocols import PROTOCOLS, CallSettings, Offer

DATA = "data:application/pdf;base64,JVBERi0="
SUM: dict[str, Any] = {
    "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False,
}  # fmt: skip
FULL: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "max_output_tokens": 100,
    "seed": 7,
    "stop": ["END"],
    "reasoning_effort": "low",
    "parallel_tool_calls": False,
    "tool_choice": {"name": "add"},
    "response_format": {"type": "json_schema", "name": "sum", "schema": SUM, "strict": True},
    "extra_body": {"user": "u1"},
}
"""Every option there is."""
OFFERS = [Offer("add", "Add.", {"type": "object", "properties": {}})]
PROVIDERS = {"fake": Provider(base_url="http://127.0.0.1:1/v1")}


def agent(**options: Any) -> AgentSpec:
    return AgentSpec.model_validate_json(json.dumps({"model": "fake/echo", "tools": ["add"], **options}))


def option_faults(agent: AgentSpec, providers: Mapping[str, Provider]) -> list[FieldError]:
    tree = AgentTree(agent, providers)
    known = Known(
        tree, policies={}, endpoint_hosts=(), mcp_hosts=(), seals=True, tools={"add": ()}, callable_providers=None
    )
    return [field_error(each) for each in agent_faults(tree, known)]


def content_faults(messages: Sequence[Message], providers: Mapping[str, Provider]) -> list[FieldError]:
    return list(part_faults(messages, AgentTree(agent(), providers).models))


def faults(**options: Any) -> list[tuple[str, str, str]]:
    return [(fault.pointer, fault.code, fault.message) for fault in option_faults(agent(**options), PROVIDERS)]


def test_every_protocol_says_what_it_carries() -> None:
    assert {*PROTOCOL_RULES} == {*PROTOCOLS} == {*get_args(ProtocolName)}
    assert {*FULL} == {*ModelOptions.model_fields}
    for name, rules in PROTOCOL_RULES.items():
        assert rules.name == PROTOCOLS[name].name == name
        assert rules.options <= {*ModelOptions.model_fields}
        assert {*rules.parts} == {*get_args(Role)}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_request_has_every_option_that_is_carried_and_no_field_that_is_not_told(name: ProtocolName) -> None:
    told = PROTOCOL_RULES[name]

    def sent(options: Mapping[str, Any]) -> dict[str, Any]:
        spec = agent(stream=True, instructions="Be brief.", **options)
        body: dict[str, Any] = json.loads(PROTOCOLS[name].body(spec, [], OFFERS, CallSettings()))
        return body

    plain, full = sent({}), sent({option: FULL[option] for option in told.options})
    assert {*plain, *full} - {*FULL["extra_body"]} <= told.written
    for option in told.options:
        assert sent({option: FULL[option]}) != plain, f"{option} is not sent"


VALUES: Mapping[str, tuple[Any, Any]] = {
    "cache": ("off", "auto"),
    "thinking": (None, "summarized"),
    "max_output_tokens": (50, 60),
    "max_completion_tokens": (False, True),
    "short_call_ids": (False, True),
}
"""Two values of every option of a provider."""


def provider(protocol: ProtocolName, **options: Any) -> Provider:
    table = {"base_url": "https://x.example/v1", "protocol": protocol, "max_output_tokens": 50, **options}
    return Provider.model_validate(table)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_has_a_rule_for_every_option_of_a_provider(name: ProtocolName) -> None:
    rules, options = PROTOCOL_RULES[name], {*ProviderOptions.model_fields}
    assert options == {*VALUES}
    assert rules.provider_options | rules.refusals.keys() == options, "the rest is taken and not used"
    for option in options - rules.provider_options:
        with pytest.raises(ValueError, match=option):
            provider(name, **{option: VALUES[option][1]})
    assert rules.thinking_on <= {*get_args(Thinking)}
    assert (rules.output_limit or rules.least_output) >= rules.least_output


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_request_depends_on_every_option_that_a_provider_of_its_protocol_has(name: ProtocolName) -> None:
    call = ToolCall(id="call_0123", name="add")
    asking, result = Message(role="assistant", tool_calls=(call,)), Message(role="tool", content="3", call_id=call.id)

    def sent(**options: Any) -> bytes:
        terms = ModelTerms({"fake": provider(name, **options)})
        spec, protocol = agent(instructions="Be brief."), terms.protocol(agent())
        return protocol.body(spec, protocol.turn(asking, [result]), OFFERS, terms.settings(spec, plain=False))

    for option in PROTOCOL_RULES[name].provider_options:
        one, other = VALUES[option]
        assert sent(**{option: one}) != sent(**{option: other}), f"{option} changes nothing"


def test_the_page_has_every_field_of_a_provider() -> None:
    _, _, rest = (ROOT / "docs/reference/settings.md").read_text().partition("## Providers")
    (table,) = tomllib.loads(rest.partition("```toml")[2].partition("```")[0])["providers"].values()
    assert {*table, "prices"} == {*Provider.model_fields}, "docs/reference/settings.md, 'Providers'"


@pytest.mark.slow
def test_nobody_asks_which_protocol_it_is() -> None:
    for path in [*ROOT.glob("api/**/*.py"), *ROOT.glob("workers/**/*.py"), *ROOT.glob("palaver/config/*.py")]:
        compared = (node for node in ast.walk(syntax(path)) if isinstance(node, ast.Compare))
        constants = (each for node in compared for each in ast.walk(node) if isinstance(each, ast.Constant))
        assert not [each.value for each in constants if each.value in PROTOCOL_RULES], path


def test_a_chat_completion_is_asked_for_in_its_own_words() -> None:
    body = json.loads(PROTOCOLS["chat_completions"].body(agent(**FULL), [], OFFERS, CallSettings()))
    schema = {"name": "sum", "schema": SUM, "strict": True}
    assert {name: body[name] for name in (*FULL, "max_tokens", "user") if name in body} == {
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 100, "seed": 7, "stop": ["END"], "reasoning_effort": "low",
        "parallel_tool_calls": False, "tool_choice": {"type": "function", "function": {"name": "add"}},
        "response_format": {"type": "json_schema", "json_schema": schema}, "user": "u1",
    }  # fmt: skip
    without = json.loads(PROTOCOLS["chat_completions"].body(agent(**FULL), [], [], CallSettings()))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & {*without}, "refused without tools"


def test_what_a_protocol_lacks_is_refused_and_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = ProtocolRules(
        name="chat_completions", options=frozenset(), formats=frozenset(), efforts=frozenset(), written=frozenset(),
        parts=dict.fromkeys(get_args(Role), frozenset()), addresses=frozenset(),
        provider_options=frozenset(), refusals={}, key_beside_login=False,
        grammar=STRICT, tools=ToolGrammar(), reasoning=lambda fields: "",
    )  # fmt: skip
    monkeypatch.setattr(providers, "PROTOCOL_RULES", {"chat_completions": poor})
    assert {where for where, _, _ in faults(**FULL)} == {
        *(f"/agent/{name}" for name in FULL), "/agent/response_format/type",
    }  # fmt: skip
    (found,) = faults(seed=1)
    assert found == (
        "/agent/seed", "unsupported_option",
        "cannot be sent to fake/echo: its provider speaks chat_completions, which has no such option",
    )  # fmt: skip
    assert not faults()
    message = Message.model_validate_json(json.dumps({"role": "user", "content": [{"type": "image", "url": DATA}]}))
    assert [each.code for each in content_faults([message], PROVIDERS)] == ["unsupported_content"]


@pytest.mark.parametrize(
    ("options", "where", "code", "says"),
    [
        ({"tool_choice": {"name": "ad"}}, "/agent/tool_choice/name", "unknown_tool", "did you mean 'add'?"),
        ({"tool_choice": "required", "tools": []}, "/agent/tool_choice", "unknown_tool", "no tools"),
        ({"extra_body": {"model": "x"}}, "/agent/extra_body/model", "unsupported_option", "writes itself"),
        ({"extra_body": {"seed": 1}}, "/agent/extra_body/seed", "unsupported_option", "use seed of the agent"),
        ({"extra_body": {"Model": "x"}}, "/agent/extra_body/Model", "unsupported_option", "writes itself"),
        ({"extra_body": {"STREAM": False}}, "/agent/extra_body/STREAM", "unsupported_option", "writes itself"),
        ({"extra_body": {"user": "x" * 17_000}}, "/agent/extra_body", "unsupported_option", "at most 16384"),
        (
            {"response_format": {"type": "json_schema", "name": "a", "schema": {"type": "text"}}},
            "/agent/response_format/schema/type", "invalid_schema", "must be one of",
        ),
        (
            {"response_format": {"type": "json_schema", "name": "a", "schema": {"title": "x" * 33_000}}},
            "/agent/response_format/schema", "invalid_schema", "at most 32768",
        ),
    ],
)  # fmt: skip
def test_options_that_contradict_the_agent_are_refused(
    options: dict[str, Any], where: str, code: str, says: str
) -> None:
    (found,) = faults(**options)
    assert found[:2] == (where, code)
    assert says in found[2]


@pytest.mark.parametrize(
    "options",
    [
        {"stop": []},
        {"stop": [""]},
        {"stop": ["x"] * (limit_of("stop_texts") + 1)},
        {"stop": ["x" * (limit_of("stop_text") + 1)]},
        {"top_p": 0},
        {"seed": 2**63},
        {"tool_choice": "any"},
        {"tool_choice": {"name": "a", "more": 1}},
        {"reasoning_effort": "lots"},
        {"response_format": {"type": "yaml"}},
        {"response_format": {"type": "json_schema", "name": "a b", "schema": {}}},
        {"response_format": {"type": "json_schema", "name": "a"}},
        {"extra_body": {}},
        {"extra_body": {str(i): i for i in range(limit_of("extra_body_fields") + 1)}},
    ],
)
def test_options_have_bounds(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        agent(**options)


CLAUDE: Mapping[str, Any] = {"base_url": "http://127.0.0.1:1/v1", "protocol": "anthropic", "max_output_tokens": 100}
FORCED: Mapping[str, Any] = {"tool_choice": "required", "temperature": 0.5, "top_p": 0.9, "extra_body": {"top_k": 5}}
"""What no model that thinks takes."""


def refused_of_claude(thinking: str | None, model: str = "claude/x", **options: Any) -> list[tuple[str, str, str]]:
    known = {**PROVIDERS, "claude": Provider.model_validate({**CLAUDE, "thinking": thinking})}
    found = option_faults(agent(**{"model": model, **options}), known)
    return [(fault.pointer, fault.code, fault.message) for fault in found]


def test_an_answer_in_responses_is_not_limited_to_less_than_its_provider_takes() -> None:
    responding = Provider(base_url="http://127.0.0.1:1/v1", protocol="responses")
    spec = agent(fallbacks=["gpt/x"], max_output_tokens=15)
    (found,) = option_faults(spec, {**PROVIDERS, "gpt": responding})
    said = "cannot be sent to gpt/x: its provider speaks responses, which takes at least 16"
    assert (found.pointer, found.code, found.message) == ("/agent/max_output_tokens", "unsupported_option", said)
    assert not [*option_faults(agent(model="gpt/x", max_output_tokens=16), {"gpt": responding})]
    assert not faults(max_output_tokens=1)


def test_an_address_is_sent_to_who_may_fetch_it_only() -> None:
    def found(table: dict[str, Any], url: str = "https://example.com/a.png") -> list[str]:
        message = Message.model_validate_json(json.dumps({"role": "user", "content": [{"type": "image", "url": url}]}))
        known = {"fake": Provider.model_validate(table)}
        return [each.message for each in content_faults([message], known)]

    for base_url in ("http://127.0.0.1:8000/v1", "https://vllm.models.svc.cluster.local/v1", "http://example.com/v1"):
        (refused,) = found({"base_url": base_url})
        assert "send a data: URL" in refused
        assert not found({"base_url": base_url}, "data:image/png;base64,iVBORw0KGgo=")
        assert not found({"base_url": base_url, "image_addresses": True})
    assert not found({"base_url": "https://api.example.com/v1"})
    assert found({"base_url": "https://api.example.com/v1", "image_addresses": False})


def test_what_claude_does_not_take_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    loose = {"type": "json_schema", "name": "a", "schema": schema, "strict": False}
    for options, where, says in (
        ({"temperature": 1.5}, "/agent/temperature", "takes at most 1"),
        ({"response_format": loose}, "/agent/response_format/strict", "leave it out"),
        ({"extra_body": {"cache_control": {"type": "ephemeral"}}}, "/agent/extra_body/cache_control", "writes itself"),
    ):
        ((found, _, message),) = refused_of_claude(None, **options)
        assert found == where
        assert says in message
        assert not faults(**options)
    assert not refused_of_claude(None, temperature=1, response_format={**loose, "strict": True})


@pytest.mark.parametrize("thinking", ["adaptive", "summarized"])
def test_what_a_model_that_thinks_does_not_take_is_refused(thinking: str) -> None:
    found = refused_of_claude(thinking, **FORCED)
    assert {where for where, _, _ in found} == {
        "/agent/tool_choice", "/agent/temperature", "/agent/top_p", "/agent/extra_body/top_k",
    }  # fmt: skip
    assert refused_of_claude(thinking, model="fake/echo", fallbacks=["claude/x"], temperature=0) == [(
        "/agent/temperature", "unsupported_option",
        "cannot be sent to claude/x: its provider's table has thinking on, and a model that thinks takes no "
        "temperature but 1",
    )]  # fmt: skip
    (named,) = refused_of_claude(thinking, tool_choice={"name": "add"})
    assert named[0] == "/agent/tool_choice"


@pytest.mark.parametrize("thinking", ["adaptive", "summarized"])
def test_what_a_model_that_thinks_takes_is_not(thinking: str) -> None:
    assert not refused_of_claude(thinking, temperature=1, top_p=0.95, tool_choice="auto")
    assert not refused_of_claude(thinking, **{**FORCED, "extra_body": {"thinking": {"type": "disabled"}, "top_k": 5}})
    for other in ("off", None):
        assert not refused_of_claude(other, **FORCED)
    assert not refused_of_claude(thinking, model="fake/echo", **FORCED)


def test_a_model_of_responses_that_says_what_it_thinks_may_be_made_to_call() -> None:
    told = Provider(base_url="http://127.0.0.1:1/v1", protocol="responses", thinking="summarized")
    assert not list(option_faults(agent(model="other/x", tool_choice="required"), {"other": told}))


def test_a_client_tool_may_be_chosen() -> None:
    assert not faults(tools=[], client_tools=[{"name": "ask"}], tool_choice={"name": "ask"})
