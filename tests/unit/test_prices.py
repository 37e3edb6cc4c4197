"""What calls cost, and what is said when nobody knows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from palaver.config.providers import Price, Provider, load_providers
from palaver.errors import ConfigurationError
from palaver.schemas.models import AgentSpec, Usage
from palaver.vocabulary.step_kinds import MODEL
from workers.models.call_clock import CallProgress
from workers.models.model import ModelPort
from workers.models.refused_tools import RefusedTools
from workers.protocols import CHAT_COMPLETIONS, AnswerReader, ModelReply
from workers.steps.attempt_notes import AttemptNotes
from workers.steps.conversations import CachedConversation
from workers.steps.histograms import Histograms
from workers.steps.model_calls import ModelCalls
from workers.steps.prompt import Prompt

FILE = """
[providers.x]
base_url = "http://x/v1"

[providers.x.prices."gpt-4o-mini"]
input = 0.15
cached_input = 0.075
output = 0.6

[providers.x.prices."*"]
input = 5
output = 15

[providers.y]
base_url = "http://y/v1"
"""
USAGE = Usage(input_tokens=1000, cached_tokens=400, output_tokens=100)


@pytest.fixture
def port(tmp_path: Path) -> ModelPort:
    path = tmp_path / "providers.toml"
    path.write_text(FILE)
    return ModelPort(load_providers(path))


def price(port: ModelPort, model: str) -> Price | None:
    return port.price(AgentSpec(model=model))


def test_a_model_has_its_own_price_or_that_of_all_others(port: ModelPort) -> None:
    assert price(port, "x/gpt-4o-mini") == Price(input=0.15, cached_input=0.075, output=0.6)
    assert price(port, "x/whatever") == Price(input=5, output=15)
    assert price(port, "y/gpt-4o-mini") is None
    assert price(port, "z/gpt-4o-mini") is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("input = -1, output = 2", "input: Input should be greater than or equal to 0"),
        ("input = 1", "output: Field required"),
        ('input = "1", output = 2', "input: Input should be a valid number"),
        ("input = 150000000, output = 2", "input: Input should be less than"),
        ("input = inf, output = 2", "input: "),
        ("input = nan, output = 2", "input: "),
    ],
)
def test_a_wrong_price_says_where(tmp_path: Path, wrong: str, said: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(f'[providers.x]\nbase_url = "http://x/v1"\nprices.a = {{{wrong}}}\n')
    with pytest.raises(ConfigurationError, match=f"providers.x.prices.a.{said}"):
        load_providers(path)


def test_what_the_provider_had_in_its_cache_has_a_price_of_its_own() -> None:
    dollars = pytest.approx((600 * 2 + 400 * 0.5 + 100 * 8) / 1e6)
    assert Price(input=2, cached_input=0.5, output=8).cost(USAGE) == dollars
    assert Price(input=2, output=8).cost(USAGE) == pytest.approx((1000 * 2 + 100 * 8) / 1e6)
    assert Price(input=2, cached_input=0, output=8).cost(USAGE) == pytest.approx((600 * 2 + 100 * 8) / 1e6)


def test_what_went_into_the_cache_has_a_price_of_its_own() -> None:
    usage = USAGE.model_copy(update={"cache_write_tokens": 300})
    price = Price(input=2, cached_input=0.5, cache_write=2.5, output=8)
    assert price.cost(usage) == pytest.approx((300 * 2 + 400 * 0.5 + 300 * 2.5 + 100 * 8) / 1e6)
    same = Price(input=2, cached_input=0.5, output=8)
    assert same.cost(usage) == same.cost(USAGE)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('protocol = "anthropic"', "max_output_tokens is needed with protocol"),
        ('protocol = "responses"\nmax_output_tokens = 15', "max_output_tokens is at least 16 with protocol"),
        ('thinking = "off"', "thinking goes with protocol"),
        ('thinking = "a lot"', "providers.x.thinking: "),
        ('protocol = "openai"', "providers.x.protocol: "),
        ('protocol = "responses"\nthinking = "off"', "use reasoning_effort of an agent"),
        ('protocol = "responses"\ncache = "auto"', "the provider caches by itself"),
        ('protocol = "responses"\nmax_completion_tokens = true', "go with protocol"),
    ],
)
def test_settings_that_do_not_fit_a_protocol_are_refused(tmp_path: Path, wrong: str, said: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(f'[providers.x]\nbase_url = "http://x/v1"\n{wrong}\n')
    with pytest.raises(ConfigurationError, match=said):
        load_providers(path)


def test_claude_is_known_by_name(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text('[providers.anthropic]\n[providers.claude]\ncache = "off"\n[providers.openai]\n')
    found = load_providers(path)
    assert [(each.protocol, each.caches) for each in found.values()] == [
        ("anthropic", True), ("anthropic", False), ("chat_completions", False),
    ]  # fmt: skip
    assert found["anthropic"].max_output_tokens


def test_a_preset_in_another_protocol_has_its_place_and_its_key(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text('[providers.openai]\nprotocol = "responses"\nthinking = "summarized"\n')
    found = load_providers(path)["openai"]
    assert (found.protocol, found.base_url, found.api_key_env, found.max_completion_tokens, found.caches) == (
        "responses", "https://api.openai.com/v1", "OPENAI_API_KEY", False, False,
    )  # fmt: skip


def test_what_costs_nothing_is_not_unknown() -> None:
    provider = Provider(base_url="http://x/v1", prices={"local": Price(input=0, output=0)})
    found = provider.price("local")
    assert found is not None
    assert found.cost(USAGE) == 0.0


class Providers(ModelPort):
    """Answers each call with a usage, or with none, in place of a network."""

    def __init__(self, usages: list[dict[str, int] | None]) -> None:
        free = {"base_url": "http://x/v1", "prices": {"a": {"input": 1, "output": 0}, "b": {"input": 100, "output": 0}}}
        super().__init__({"x": Provider.model_validate(free), "y": Provider(base_url="http://y/v1")})
        self._usages = usages

    async def port(self) -> Providers:
        return self

    async def complete(self, *_: Any, reader: AnswerReader, **__: Any) -> ModelReply:
        usage = self._usages.pop(0)
        answer = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": usage}
        reader.read(orjson.dumps(answer))
        return reader.reply()


async def cost(*asked: str, usages: list[dict[str, int] | None] | None = None) -> float | None:
    """What an attempt costs that asks these models, one after another."""
    runtime: Any = SimpleNamespace(
        refused_tools=RefusedTools(),
        model=Providers(usages or [{"prompt_tokens": 1_000_000}] * len(asked)),
        limiter=SimpleNamespace(permit=lambda *_: SimpleNamespace(begin_call=lambda: None)),
        tools=(),
        histograms=Histograms(MODEL),
    )
    lease: Any = SimpleNamespace(
        run_id="run_1", step="1", try_number=1, time_left=60.0, money_capped=False, rate_capped=False
    )
    prompt = Prompt(lease, CachedConversation(CHAT_COMPLETIONS))
    calls = ModelCalls(lease, runtime, CallProgress(), AttemptNotes(), prompt)
    for model in asked:
        purpose = "condense" if model == asked[0] else ""
        await calls.ask(AgentSpec(model=model), CHAT_COMPLETIONS, [], purpose=purpose)
    assert calls.tally.usage.model_calls == len(asked)
    return calls.tally.usage.cost_usd


async def test_each_call_of_an_attempt_costs_what_its_model_does() -> None:
    assert await cost() == 0.0
    assert await cost("x/a") == 1.0
    assert await cost("x/a", "x/b", "x/a") == 102.0


async def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    assert await cost("x/a", "y/a") is None
    assert await cost("x/a", "x/a", usages=[{"prompt_tokens": 5}, None]) is None
