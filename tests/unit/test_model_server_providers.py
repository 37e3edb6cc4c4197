"""Providers that the model server plays refuse what the real ones refuse, in their words, and take what they sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from features.fake_provider.exchanges import RefusedRequest
from features.fake_provider.signed import PROVIDERS, Made, made
from tests.model_server.signed import check

CALLS = [("a", "f", "{}"), ("b", "f", "{}")]
WORDS = {
    "gemini": "Function call is missing a thought_signature in functionCall parts.",
    "deepseek": "Missing `reasoning_content` field in the assistant message at message index 1.",
    "kimi": "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
    "openrouter": "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
}


def message(**more: Any) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": name, "arguments": text}} for i, name, text in CALLS]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def judge(provider: str, text: str) -> None:
    results = ",".join(f'{{"role":"tool","tool_call_id":"{call}","content":"2"}}' for call, *_ in CALLS)
    check(provider, f'{{"messages":[{{"role":"user","content":"go"}},{text},{results}]}}'.encode())


def with_all(given: Made) -> str:
    """The message as it came, with the JSON text of what came with it."""
    found = json.dumps(message(**({"reasoning_content": "".join(given.reasoning)} if given.reasoning else {})))
    if given.details:
        found = f'{found[:-1]},"reasoning_details":[{",".join(given.details)}]}}'
    if given.call_extras:
        found = found.replace('"type": "function"', f'"extra_content": {given.call_extras[0]}, "type": "function"', 1)
    return found


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_it_sent_it_takes(provider: str) -> None:
    judge(provider, with_all(made(provider, "", CALLS)))


@pytest.mark.parametrize("provider", WORDS)
def test_without_it_it_says_what_is_missing(provider: str) -> None:
    with pytest.raises(RefusedRequest) as refused:
        judge(provider, json.dumps(message()))
    assert WORDS[provider] in refused.value.body.decode()


@pytest.mark.parametrize("provider", ["gemini", "openrouter"])
@pytest.mark.parametrize(("old", "new"), [("0", "1"), (".50", ".5"), ("1e2", "100.0"), ('"weight":', '"w":')])
def test_a_digit_that_changed_is_noticed(provider: str, old: str, new: str) -> None:
    text = with_all(made(provider, "", CALLS))
    if (changed := text.replace(old, new)) != text:
        with pytest.raises(RefusedRequest):
            judge(provider, changed)


def test_another_order_of_keys_is_noticed() -> None:
    given = made("gemini", "", CALLS)
    assert given.call_extras[0] is not None
    order = json.dumps({"google": dict(reversed(json.loads(given.call_extras[0])["google"].items()))})
    order = order.replace("1.5", "1.50")
    with pytest.raises(RefusedRequest, match="refused"):
        judge("gemini", with_all(Made(call_extras=(order, None))))


@pytest.mark.parametrize("provider", ["gemini", "deepseek", "kimi", "groq"])
def test_a_field_of_another_provider_is_refused(provider: str) -> None:
    own = with_all(made(provider, "", CALLS))
    for name in ("reasoning_details", "opaque"):
        with pytest.raises(RefusedRequest) as refused:
            judge(provider, f'{own[:-1]},"{name}":[]}}')
        assert name in refused.value.body.decode()
