"""Model providers, with their addresses and keys. Read from the TOML file ``PALAVER_PROVIDERS``.

    [providers.openai]                  # known by name (``palaver.config.presets``): nothing else is needed

    [providers.fake]
    base_url = "http://127.0.0.1:9101/v1"
    protocol = "chat_completions"       # how it is spoken to; the default
    api_key_env = "FAKE_API_KEY"        # the name of an environment variable, never the key itself
    max_in_flight = 50
    requests_per_minute = 600
    tokens_per_minute = 200000

    [providers.fake.prices."tool-20"]   # US dollars per million tokens
    input = 0.15
    cached_input = 0.075
    output = 0.6

All workers share the limits; there is none that is left out. An entry is an endpoint with a key: two keys of one
endpoint are two entries, each with limits and cool-downs of its own. The price ``"*"`` is that of all models without
one of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, PrivateAttr, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from palaver.config.presets import PRESETS, RateLimitScope
from palaver.config.secret_files import secret_of
from palaver.config.toml_file import read_model, read_toml
from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.schemas.endpoints import INLINE, Endpoint
from palaver.schemas.fields import UNFIT_FOR_HEADERS, DataModel, fits_a_header
from palaver.schemas.models import Usage
from palaver.schemas.protocols import PROTOCOL_RULES, ProtocolName, ProtocolRules, ProviderOptions
from palaver.secrets.redaction import passwords_of, register_secrets
from palaver.vocabulary.addresses import leads_within
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.names import did_you_mean

_DEAREST: Final = 1_000_000
"""US dollars per million tokens: beyond it the unit was mistaken."""


class Timeouts(DataModel):
    """Seconds that a model call may take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect: float = Field(default=10.0, gt=0)
    first_token: float = Field(default=120.0, gt=0)
    """From the request to the first byte of the answer's body."""
    idle: float = Field(default=60.0, gt=0)
    """Between two bytes of a stream."""
    total: float = Field(default=600.0, gt=0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a provider's account, for all workers together. None: no limit."""

    max_in_flight: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __bool__(self) -> bool:
        return bool(self.max_in_flight or self.requests_per_minute or self.tokens_per_minute)


class Price(DataModel):
    """The price of a model, in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input: float = Field(ge=0, le=_DEAREST)
    output: float = Field(ge=0, le=_DEAREST)
    """The price of the answer, reasoning included."""
    cached_input: float | None = Field(default=None, ge=0, le=_DEAREST)
    """The price of input tokens that came from the provider's cache; None: as ``input``."""
    cache_write: float | None = Field(default=None, ge=0, le=_DEAREST)
    """The price of input tokens that went into it; None: as ``input``."""

    def most(self, input_tokens: int, output_tokens: int) -> tuple[float, float]:
        """Return the US dollars for so many tokens of input at most, and with so many of output."""
        dearest = max(self.input, self.cached_input or 0.0, self.cache_write or 0.0)
        return input_tokens * dearest / 1_000_000, (input_tokens * dearest + output_tokens * self.output) / 1_000_000

    def cost(self, usage: Usage) -> float:
        """Return the US dollars for what ``usage`` counts."""
        cached = self.input if self.cached_input is None else self.cached_input
        cache_write = self.input if self.cache_write is None else self.cache_write
        fresh = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
        input_cost = fresh * self.input + usage.cached_tokens * cached + usage.cache_write_tokens * cache_write
        return (input_cost + usage.output_tokens * self.output) / 1_000_000


class Provider(ProviderOptions):
    """An endpoint that models are asked at. Its key is read when it is made.

    Raises:
        ConfigurationError: the key stands in a file that cannot be read.
    """

    preset: str | None = None
    """The name of a provider that this one is like; left out: its own name, unless it says where it is."""
    base_url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*)?$")]
    protocol: ProtocolName = "chat_completions"
    api_key_env: Annotated[str, StringConstraints(pattern=r"^[^\s=\x00-\x1f]{1,128}$")] | None = None
    timeouts: Timeouts = Timeouts()
    image_addresses: bool | None = None
    """True if it is sent addresses of images and files, which it fetches. None: if it is at an https:// address that
    does not lead into a network of one's own, where it would fetch what only those within may see."""
    max_response_bytes: int = Field(default=limit_of("answer"), ge=1024)
    """An answer, streamed or not, is refused beyond this."""
    max_tool_calls: int = Field(default=limit_of("tool_calls"), ge=1, le=limit_of("tool_calls"))
    """An answer with more calls is refused."""
    max_in_flight: int | None = Field(default=None, ge=1, le=1_000_000)
    """Calls at a time."""
    requests_per_minute: int | None = Field(default=None, ge=1, le=10_000_000)
    """Calls that begin in a minute; up to a tenth more in bursts."""
    tokens_per_minute: int | None = Field(default=None, ge=1, le=10_000_000_000)
    """Tokens of prompts and answers; estimated when a call begins and corrected by what the provider reports."""
    rate_limit_scope: RateLimitScope = "model"
    """The scope of its 429, and so what is left alone after one: the model that was asked, or all of its models."""

    models: tuple[Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f]{1,200}$")], ...] = Field(
        default=(), max_length=limit_of("provider_models")
    )
    """The provider's own names of models that people are shown; runs may name others as well."""
    prices: dict[str, Price] = Field(default={})
    """By the provider's own name of the model; ``*`` stands for all others."""
    _api_key: str | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Read the key: not for each call, which would wait for a disk, and not after `register_secrets` was
        called with it.

        Raises:
            ConfigurationError: it cannot be read, or no request can be sent with it; names the variable.
        """
        self._api_key = secret_of(self.api_key_env) if self.api_key_env else None
        if self._api_key is not None and not fits_a_header(self._api_key):
            raise ConfigurationError(f"{self.api_key_env}: the key {UNFIT_FOR_HEADERS}")

    @model_validator(mode="after")
    def _fits_its_protocol(self) -> Self:
        if self.api_key_env and "@" in urlsplit(self.base_url).netloc and not self.rules.key_beside_login:
            raise ValueError("base_url has a login and api_key_env a key: a request has room for one of them")
        for fault in self.rules.provider_faults(self):
            raise ValueError(fault)
        return self

    @classmethod
    def inline(cls, endpoint: Endpoint) -> Provider:
        """Make the provider that came with an agent, with the limits that one has by default."""
        limit = PROTOCOL_RULES[endpoint.protocol].output_limit
        made = cls(base_url=endpoint.base_url, protocol=endpoint.protocol, max_output_tokens=limit)
        made._api_key = endpoint.api_key.get_secret_value() if endpoint.api_key else None
        return made

    @property
    def rules(self) -> ProtocolRules:
        """The rules of its protocol."""
        return PROTOCOL_RULES[self.protocol]

    @property
    def thinks(self) -> bool:
        """True if its models are to think, not only to say what they think."""
        return self.thinking in self.rules.thinking_on

    @cached_property
    def fetches(self) -> bool:
        """True if it is sent addresses of images and files."""
        if self.image_addresses is not None:
            return self.image_addresses
        return self.base_url.startswith("https://") and not leads_within(self.base_url)

    @property
    def caches(self) -> bool:
        """True if prompts get cache breakpoints."""
        return self.rules.caches if self.cache is None else self.cache == "auto"

    def price(self, model_name: str) -> Price | None:
        """Return the price of the model; None if it is not set."""
        return self.prices.get(model_name) or self.prices.get("*")

    @property
    def limits(self) -> Limits:
        """The limits of this entry: one endpoint with one key."""
        return Limits(self.max_in_flight, self.requests_per_minute, self.tokens_per_minute)

    @property
    def api_key(self) -> str | None:
        """The key, from the environment or a file that it names; None if there is none, or it needs none."""
        return self._api_key

    @property
    def has_key(self) -> bool:
        """True if this process could call it: it has its key, or needs none."""
        return self.api_key_env is None or self._api_key is not None


class _File(DataModel):
    model_config = ConfigDict(extra="forbid")

    providers: dict[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")], Provider]

    @field_validator("providers", mode="before")
    @classmethod
    def _fill_in(cls, tables: Any) -> Any:
        """Add what is known of providers by their names."""
        if not isinstance(tables, dict):
            return tables
        if INLINE in tables:
            raise _refusal(INLINE, "is the name of providers that come with an agent: call this one something else")
        return {name: _whole(name, table) if isinstance(table, dict) else table for name, table in tables.items()}


def _whole(name: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return a provider's table, with what it leaves out and a preset has. A table that says another place takes
    something only if it names a preset, and never the key: that goes nowhere but to its own place."""
    named, placed = table.get("preset"), "base_url" in table
    preset = PRESETS.get(str(named or name))
    if preset is None and not named and not placed and (meant := _with_dots(name, table)):
        raise _refusal(name, f'no base_url; a name with a dot is in quotation marks: [providers."{meant}"]')
    if preset is None and (named or not placed):
        typo = next((key for key in table if "base_url" in did_you_mean(key, Provider.model_fields)), None)
        if typo is not None and not named:
            raise _refusal(name, f"no base_url, but {typo}; did you mean 'base_url'?")
        slip = f"preset {named!r:.80} is none that there is" if named else "no base_url, and not known by this name"
        raise _refusal(name, slip + (did_you_mean(str(named or name), PRESETS) or f"; there are: {', '.join(PRESETS)}"))
    elsewhere = preset is not None and placed and preset.base_url is not None
    if preset is None or (elsewhere and not named):
        return table
    if not placed and preset.base_url is None:
        raise _refusal(name, f"needs a base_url, like {preset.example}")
    known: dict[str, Any] = {
        "base_url": preset.base_url,
        "api_key_env": None if elsewhere else preset.api_key_env,
        "rate_limit_scope": preset.rate_limit_scope,
    }
    if table.get("protocol", preset.protocol) == preset.protocol:
        known |= {
            "protocol": preset.protocol,
            "max_output_tokens": preset.max_output_tokens,
            "max_completion_tokens": preset.max_completion_tokens or None,
            "short_call_ids": preset.short_call_ids or None,
        }
    return {name: value for name, value in known.items() if value is not None} | table


def _with_dots(name: str, table: dict[str, Any]) -> str:
    """The name that was meant if ``table`` has nothing but another one: TOML takes a dot for a table within a table."""
    match list(table.items()):
        case [(inner, dict(inner_table))] if inner not in Provider.model_fields:
            return _with_dots(f"{name}.{inner}", inner_table) or f"{name}.{inner}"
    return ""


def _refusal(name: str, reason: str) -> PydanticCustomError:
    return PydanticCustomError("preset", "{name}: {reason}", {"name": name, "reason": reason})


def example_model(providers: Mapping[str, Provider]) -> str:
    """Return a name of a model, as runs name it, that one of these may have."""
    named = (f"{name}/{model}" for name, entry in providers.items() for model in (*entry.models, *entry.prices))
    usual = (f"{name}/NAME" for name in providers if name != "fake")
    return next(named, None) or next(usual, "fake/tool-20")


def load_providers(path: Path | None) -> Mapping[str, Provider]:
    """Load the providers of the file; none without a file. Their keys are compared with what others say from here on.

    Raises:
        ConfigurationError: when it cannot be read or an entry does not fit; says where.
    """
    if path is None:
        return {}
    providers = read_model(_File, path, "PALAVER_PROVIDERS").providers
    for provider in providers.values():
        register_secrets((provider.api_key, *passwords_of(provider.base_url)))
    return providers


def key_variables(path: Path | None) -> frozenset[str]:
    """Return the variables that entries of the file name for their keys, entries that do not fit included.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    tables = read_toml(path, "PALAVER_PROVIDERS").get("providers") if path else None
    entries = tables.items() if isinstance(tables, dict) else ()
    names = {_key_variable(name, table) for name, table in entries if isinstance(table, dict)}
    return frozenset(name for name in names if isinstance(name, str))


def _key_variable(name: str, table: dict[str, Any]) -> object:
    with suppress(PydanticCustomError):
        table = _whole(name, table)
    return table.get("api_key_env")
