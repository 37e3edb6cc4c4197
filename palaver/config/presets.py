"""Model providers that are known by name: where they are asked, and which variable mostly has their key.

A table ``[providers.NAME]`` of such a name needs no ``base_url``. Nothing is asked because a row is here.
``python -m docs.generate presets`` prints the table of docs/how-to/providers.md; a test compares them.

Addresses and variables are those of the providers' own documentation, as of November 2026: platform.openai.com,
platform.claude.com, ai.google.dev (OpenAI compatibility), api-docs.deepseek.com, docs.mistral.ai, platform.kimi.ai,
openrouter.ai/docs, console.groq.com/docs, docs.together.ai, docs.fireworks.ai, docs.x.ai, docs.ollama.com,
docs.vllm.ai, llama.cpp's server README, lmstudio.ai/docs, docs.litellm.ai. Azure's v1 API (learn.microsoft.com, "api
version lifecycle") takes the key as OpenAI's client sends it and no ``api-version``, but each resource has a host of
its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from palaver.late import dataclass
from palaver.schemas.protocols import PROTOCOL_RULES, ProtocolName

RateLimitScope = Literal["model", "provider"]
"""The scope of a provider's rate limits: each model, or the account with all models."""


@dataclass(frozen=True, slots=True)
class Preset:
    """The public facts about a provider."""

    title: str
    base_url: str | None
    """None: each customer has one, like ``example``."""
    api_key_env: str | None = None
    """The usual variable with its key. None for servers that ask for no key unless they are configured to."""
    example: str = ""
    protocol: ProtocolName = "chat_completions"
    max_output_tokens: int | None = None
    """The limit to send where a request has to have one: all models of the provider can do so much."""
    max_completion_tokens: bool = False
    short_call_ids: bool = False
    rate_limit_scope: RateLimitScope | None = None
    """``provider`` where its documentation says that all models share a limit; None: each has its own, or it does not
    say."""
    aliases: tuple[str, ...] = ()
    """Other names that it goes by."""


_ROWS: Final[Mapping[str, Preset]] = {
    "openai": Preset("OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", max_completion_tokens=True),
    "anthropic": Preset(
        "Anthropic (Claude)",
        "https://api.anthropic.com/v1",
        "ANTHROPIC_API_KEY",
        protocol="anthropic",
        max_output_tokens=PROTOCOL_RULES["anthropic"].output_limit,
        aliases=("claude",),
    ),
    "gemini": Preset(
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        aliases=("google",),
    ),
    "azure": Preset(
        "Azure OpenAI",
        None,
        "AZURE_OPENAI_API_KEY",
        example="https://RESOURCE.openai.azure.com/openai/v1",
        max_completion_tokens=True,
    ),
    "deepseek": Preset("DeepSeek", "https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "mistral": Preset(
        "Mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        short_call_ids=True,
        rate_limit_scope="provider",
    ),
    "moonshot": Preset("Moonshot (Kimi)", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", aliases=("kimi",)),
    "openrouter": Preset("OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": Preset("Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "together": Preset("Together AI", "https://api.together.ai/v1", "TOGETHER_API_KEY"),
    "fireworks": Preset("Fireworks AI", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "xai": Preset("xAI", "https://api.x.ai/v1", "XAI_API_KEY"),
    "ollama": Preset("Ollama", "http://127.0.0.1:11434/v1"),
    "vllm": Preset("vLLM", "http://127.0.0.1:8000/v1"),
    "llamacpp": Preset("llama.cpp", "http://127.0.0.1:8080/v1", aliases=("llama.cpp",)),
    "lmstudio": Preset("LM Studio", "http://127.0.0.1:1234/v1"),
    "litellm": Preset("LiteLLM proxy", "http://127.0.0.1:4000/v1"),
}

PRESETS: Final[Mapping[str, Preset]] = {
    name: preset for first, preset in _ROWS.items() for name in (first, *preset.aliases)
}
"""Every preset, by each of its names."""
