"""Providers that are known by name need no address, and their keys go nowhere else."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from palaver.config.presets import PRESETS
from palaver.config.providers import Provider, load_providers
from palaver.errors import ConfigurationError


@pytest.fixture
def load(tmp_path: Path):  # type: ignore[no-untyped-def]
    def load(text: str) -> dict[str, Provider]:
        path = tmp_path / "providers.toml"
        path.write_text(text)
        return dict(load_providers(path))

    return load


@pytest.mark.parametrize("name", PRESETS)
def test_a_name_is_enough(name: str, load, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    preset = PRESETS[name]
    more = f'base_url = "{preset.example}"' if preset.base_url is None else ""
    if preset.api_key_env:
        monkeypatch.setenv(preset.api_key_env, "a-key-of-sixteen-letters")
    provider = load(f'[providers."{name}"]\n{more}')[name]
    assert provider.base_url == (preset.base_url or preset.example)
    assert provider.api_key_env == preset.api_key_env
    assert provider.has_key


@pytest.mark.parametrize("name", PRESETS)
def test_what_asks_for_no_key_is_on_this_machine(name: str) -> None:
    preset = PRESETS[name]
    place = urlsplit(preset.base_url or preset.example)
    assert (place.hostname == "127.0.0.1") == (preset.api_key_env is None)
    assert (place.scheme == "https") == (preset.api_key_env is not None)
    assert not place.path.endswith("/")


def test_what_a_table_says_goes_before_what_is_known(load) -> None:  # type: ignore[no-untyped-def]
    found = load('[providers.openai]\napi_key_env = "MINE"\nmax_in_flight = 3')["openai"]
    assert (found.base_url, found.api_key_env, found.max_in_flight) == ("https://api.openai.com/v1", "MINE", 3)


def test_two_keys_of_one_provider_are_two_tables(load) -> None:  # type: ignore[no-untyped-def]
    found = load('[providers.ours]\npreset = "openai"\napi_key_env = "OURS"\n[providers.openai]')
    assert {each.base_url for each in found.values()} == {"https://api.openai.com/v1"}
    assert [each.api_key_env for each in found.values()] == ["OURS", "OPENAI_API_KEY"]


@pytest.mark.parametrize("more", ["", '\npreset = "openai"'])
def test_the_usual_key_goes_to_no_other_place(more: str, load) -> None:  # type: ignore[no-untyped-def]
    found = load(f'[providers.openai]\nbase_url = "https://gateway.example/v1"{more}')["openai"]
    assert (found.base_url, found.api_key_env) == ("https://gateway.example/v1", None)


def test_a_preset_that_is_named_is_spoken_to_in_its_way_at_another_place(load) -> None:  # type: ignore[no-untyped-def]
    found = load(
        '[providers.ours]\npreset = "anthropic"\nbase_url = "https://gateway.example/v1"\napi_key_env = "OURS"'
    )["ours"]
    assert (found.base_url, found.api_key_env) == ("https://gateway.example/v1", "OURS")
    assert (found.protocol, found.max_output_tokens) == ("anthropic", 32_000)
    found = load('[providers.ours]\npreset = "mistral"\nbase_url = "https://gateway.example/v1"')["ours"]
    assert (found.short_call_ids, found.api_key_env) == (True, None)
    found = load('[providers.anthropic]\nbase_url = "https://gateway.example/v1"')["anthropic"]
    assert found.protocol == "chat_completions"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[providers.opnai]", "opnai: no base_url, and not known by this name; did you mean 'openai'?"),
        (
            "[providers.llama.cpp]",
            'llama: no base_url; a name with a dot is in quotation marks: [providers."llama.cpp"]',
        ),
        ("[providers.my.eu.one]\nprices.x = {input = 1, output = 1}", '[providers."my.eu.one"]'),
        ("[providers.opnai.timeouts]", "opnai: no base_url, and not known by this name; did you mean 'openai'?"),
        ("[providers.zzz]", "zzz: no base_url, and not known by this name; there are: openai, "),
        ('[providers.x]\npreset = "grok"', "x: preset 'grok' is none that there is; did you mean 'groq'?"),
        ("[providers.azure]", "azure: needs a base_url, like https://RESOURCE.openai.azure.com/openai/v1"),
        ("[providers.openai]\nmax_in_flight = 0", "openai.max_in_flight: "),
        (
            '[providers.x]\nbase_url = "http://me:it@x/v1"\napi_key_env = "X"',
            "base_url has a login and api_key_env a key",
        ),
        ("[providers]\nopenai = 3", "providers.openai: "),
        ("providers = 3", "providers: "),
    ],
)
def test_what_is_not_known_is_refused_in_one_sentence(text: str, said: str, load) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigurationError) as refused:
        load(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
