"""The environment, read once. Each setting is ``PALAVER_<NAME>``; docs/reference/settings.md lists them all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator

from palaver.config.clusters import is_cluster
from palaver.config.environment import FromEnvironment
from palaver.config.lists import entries, parts
from palaver.config.oidc import IssuerSettings
from palaver.config.secret_files import secret_of
from palaver.config.server_urls import known_server
from palaver.errors import ConfigurationError
from palaver.late import dataclass
from palaver.schemas.endpoints import listed_host
from palaver.schemas.mcp_servers import listed_mcp_host
from palaver.secrets.redaction import passwords_of, register_secrets
from palaver.secrets.sealing import Sealer, key_of
from palaver.telemetry.logs import LogFormat
from palaver.vocabulary.ids import MAX_SHARDS
from palaver.vocabulary.limits import limit_of

S = TypeVar("S", bound=FromEnvironment)
_PREFIX: Final = "PALAVER_"
SECRET: Final = ("redis_url", "broker_url", "api_keys", "metrics_keys", "queues_keys", "secret_key")
"""Settings that may stand in a file, which ``PALAVER_<NAME>_FILE`` names."""
_ON_CLUSTER: Final = 1024
"""Shards of a cluster: spread over three masters within 4 %, over ten within 11 %."""
_SHORTEST_KEY: Final = 16
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A bearer key. What its bearer does is recorded under its name, if it has one."""

    secret: SecretStr
    name: str | None = None


class Settings(IssuerSettings, prefix=_PREFIX):
    """Durations are seconds."""

    redis_url: str | None = None
    """The Redis that has the truth. Unset: an error, but for ``palaver up``, which brings a server of its own."""
    durability: str = Field(default="server", pattern=r"^(server|fsync|replicas=[1-9])$")
    """The condition that a promise to a client or the start of a tool waits for: ``server``, written there; ``fsync``,
    on its disk; ``replicas=N``, written by so many replicas."""
    redis_check: Literal["warn", "fatal"] = "warn"
    """The reaction of a process at its start if Redis may lose what it is given, or refuses what the process needs:
    ``warn``, it says so; ``fatal``, it does not start."""
    broker_url: str | None = Field(default=None, validate_default=True)
    """The broker that deliveries go to, a Redis or a RabbitMQ (``amqp://``); default: the same Redis."""
    shards: int = Field(default_factory=lambda data: _shards(data), ge=1, le=MAX_SHARDS)
    """Hash tags that new conversations are spread over; 1 unless Redis is a cluster, 1,024 there. May grow, ids carry
    theirs."""
    providers: Path | None = None
    """The TOML file of model providers."""
    retry_policies: Path | None = None
    """The TOML file of named retry policies."""
    policy: Path | None = None
    """The TOML file of the operator's rules for runs: approvals that cannot be waived, allowed tools and models,
    limits. The API reads it when it starts."""
    tools: tuple[str, ...] = ()
    """Python modules with the users' tools, comma separated: tools workers import them."""
    inline_tools: tuple[str, ...] = ()
    """Python modules whose ``inline`` tools run within model steps: model workers import these and no others, tools
    workers these, too."""
    tool_sources: Path | None = None
    """The TOML file of tools that are no Python functions."""
    tool_lists: Path | None = None
    """The folder in which workers remember the lists of tools that MCP servers gave last; one of this user's among the
    temporary files unless given."""
    tool_env: tuple[str, ...] = ("*",)
    """Environment variables that tools may see, comma separated, ``*`` and ``?`` stand for others. Palaver's own and
    those with keys of providers only if they are named in full."""
    tool_pool: Literal["processes", "loop"] = "processes"
    """The place where a tools worker runs its calls: ``processes``, each in a child that can be ended; ``loop``, all on
    one event loop of its own process, which leaves tools that are not ``async`` to other workers."""
    tool_memory: int = Field(default=limit_of("tool_memory"), ge=0)
    """MiB that a tool's process, and all that it started, may use during a call; 0 is any amount."""
    tool_kept_memory: int = Field(default=limit_of("tool_kept_memory"), ge=0)
    """MiB: a tool's process that has ever used more is replaced after its call; 0 is never."""
    tool_address_space: int = Field(default=0, ge=0)
    """MiB of address space of a tool's process (``RLIMIT_AS``); 0 is any amount."""
    tool_cpu_seconds: float = Field(default=0.0, ge=0)
    """CPU time of a call, all its processes together; 0 is any amount."""
    tool_output: int = Field(default=limit_of("tool_output"), ge=0)
    """Bytes of what a call prints that go to the worker's log."""
    api_keys: tuple[ApiKey, ...] = ()
    """Bearer keys that the API takes, comma separated, each ``key`` or ``name=key``; none: open, for loopback only."""
    require_keys: bool = False
    """True if the API wants a key though ``api_keys`` has none: one that `palaver keys create` has made."""
    metrics_keys: tuple[ApiKey, ...] = ()
    """Bearer keys that open ``/metrics`` and nothing else, beside ``api_keys`` and written as these."""
    queues_keys: tuple[ApiKey, ...] = ()
    """Bearer keys that open ``/v1/queues`` and nothing else, for what scales workers; written as these."""
    secret_key: tuple[SecretStr, ...] = ()
    """Keys that secrets of conversations are sealed with, comma separated, the newest first: it seals, each of them
    opens. 32 random bytes in base64 or hex each. None: nothing that would have to be sealed is taken."""
    inline_provider_hosts: tuple[str, ...] = ()
    """Hosts, or host:port, at which an agent's own endpoint may be, comma separated. None: agents have none."""
    inline_mcp_hosts: tuple[str, ...] = ()
    """Hosts, host:port, or ``*.domain``, at which an agent's own MCP servers may be, comma separated. None: agents have
    none."""
    webhooks: Path | None = None
    """The TOML file of the operator's webhooks: workers read it when they start."""
    webhook_hosts: tuple[str, ...] = ()
    """Hosts, or host:port, at which webhooks may be though they are in a private network or have another port than the
    usual one, comma separated."""
    deliver_webhooks: bool = True
    """False: a model worker leaves deliveries to webhooks to others."""
    host: str = "127.0.0.1"
    """The address at which the API listens; another one wants keys."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that the API is asked by, comma separated, without ports; none: any with keys, loopback's without."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may read answers, comma separated, each exactly as browsers name it."""
    insecure_open: bool = False
    """Serve at any address though there are no keys: everyone who reaches it may do everything."""
    open_docs: bool = False
    """True if ``/docs`` and ``/openapi.json`` want no key."""
    dialects: tuple[str, ...] = ("*",)
    """Dialects that the API speaks beside its own, comma separated, as packages call them; ``*``: all that are
    installed; ``native``: none but its own."""
    console: bool = False
    """True if the API serves its console at ``/console``: pages that ask with what key the user gives them."""
    flower_open: bool = False
    """True if Flower starts without a login: everyone who reaches it may look."""
    log_format: LogFormat = "text"
    """The form of servers' log lines: ``text`` for people, ``json`` for machines."""
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """The port at which a worker answers ``GET /metrics`` with what it has seen; each on a machine needs one of its
    own. None: it does not."""
    metrics_host: str = "127.0.0.1"
    """The address at which it does; everyone who reaches it may look."""
    trace_content: bool = False
    """True if traces have the content of messages, arguments and results; otherwise names and counts alone."""
    lease_seconds: float = Field(default=15.0, ge=1.0)
    """The right to work on a step, unless renewed; a dead worker's steps go on after this long."""
    probe_interval: float = Field(default=5.0, ge=0.1, le=300)
    """A provider, or a model, that is out is tried so often, by one call of the whole fleet."""
    retention: float = Field(default=7 * 86400.0, ge=1)
    """A finished run and its conversation stay this long after the last run ended."""
    audit_retention: float = Field(default=365 * 86400.0, ge=0)
    """Acts with keys of the store stay known this long; 0: they are only logged."""
    feed_retention: float = Field(default=3600.0, ge=1)
    """Token deltas stay this long after the run ended; afterwards events come from the log."""
    usage_retention: float = Field(default=400 * 86400.0, ge=86400)
    """The ledger of a day, which says what models used by agent, model and key, stays this long."""
    feed_cap: int = Field(default=20_000, ge=100)
    """Events that a run's feed keeps, about; older ones are dropped first."""
    run_deadline: float = Field(default=86400.0, ge=1)
    """The longest a run may take when it does not say."""
    max_losses: int = Field(default=3, ge=1)
    """The number of workers whose loss a step may be to blame for before the run fails: it must not eat the fleet."""
    max_runs: int = Field(default=100_000, ge=1)
    """Unfinished runs, about, beyond which the API takes no new one on; one that is worked on counts twice."""
    max_queued: int = Field(default=limit_of("queued_runs"), ge=1)
    """Unfinished runs of a conversation beyond which it takes no further one."""
    max_entries: int = Field(default=limit_of("entries"), ge=100)
    """Entries of a conversation's log beyond which no further model call is made in it."""
    max_conversation_bytes: int = Field(default=limit_of("conversation_bytes"), ge=1 << 20)
    """Bytes of data in a conversation's log beyond which no further model call is made in it."""
    max_memory_percent: float = Field(default=85.0, gt=0, le=100)
    """Percent of Redis's ``maxmemory`` beyond which the API takes no new run on; the rest is for those that it has."""
    max_body: int = Field(default=1 << 20, ge=1024)
    """Bytes of a request body."""
    max_connections: int = Field(default=10_000, ge=1)
    """Connections of an API process; fewer if it has not so many file descriptors and some to spare."""
    max_watchers: int = Field(default=5_000, ge=1)
    """Streams and long polls of an API process."""
    max_watchers_per_key: int = Field(default=limit_of("watchers_per_key"), ge=1)
    """Streams and long polls of keys of one name, where there are keys of several names: the rest is for the others."""
    max_half_open: int = Field(default=1_024, ge=1)
    """Connections of one address without a whole head, half of all at most; beyond that each has a second for it, not
    ten."""
    drain_grace: float = Field(default=10.0, ge=0)
    """On SIGTERM, steps may finish for this long; then their leases are handed back."""
    progress_file: Path | None = None
    """A file that a worker touches every five seconds while it makes progress: what a probe looks at."""
    outage: float = Field(default=60.0, ge=0)
    """A worker goes on with its steps for this long without word from Redis, never less than a lease; then it stops
    them."""
    stalled_after: float = Field(default=30.0, ge=1)
    """A worker with room that gets nothing for this long, while messages wait, reconnects to the broker."""
    in_place_steps: int = Field(default=16, ge=0, le=1000)
    """A worker goes on with a run for so many model steps, one behind the other, without a trip through the queue, as
    long as no step waits there; 0 for none."""
    in_place_seconds: float = Field(default=60.0, gt=0)
    """It begins the last of them within so long."""
    delta_interval: float = Field(default=0.03, ge=0.005)
    """Token deltas are gathered for this long before they are written; more while a worker is busy."""

    @classmethod
    def given(cls) -> dict[str, str]:
        """Secrets in files, too.

        Raises:
            ConfigurationError: as `secret_of`.
        """
        secrets = {name: secret_of(f"{_PREFIX}{name.upper()}") for name in SECRET}
        return super().given() | {name: value for name, value in secrets.items() if value is not None}

    @field_validator("redis_url", "broker_url")
    @classmethod
    def _address(cls, value: str | None, field: ValidationInfo) -> str | None:
        if field.field_name == "broker_url" and not value and is_cluster(field.data.get("redis_url") or ""):
            raise ValueError(
                "is not set, and kombu has no transport for the cluster of PALAVER_REDIS_URL: name one Redis, as "
                "redis://HOST:PORT/0, Sentinels, or a RabbitMQ, as amqp://USER:PASSWORD@HOST//"
            )
        return value and known_server(value, amqp=field.field_name == "broker_url")

    @field_validator("tools", "inline_tools", "tool_env", "allowed_hosts", "dialects", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return parts(value) if isinstance(value, str) else value

    @field_validator("api_keys", "metrics_keys", "queues_keys", mode="before")
    @classmethod
    def _keys_with_names(cls, value: object) -> object:
        return _api_keys(value) if isinstance(value, str) else value

    @field_validator("inline_provider_hosts", "webhook_hosts", mode="before")
    @classmethod
    def _listed_hosts(cls, value: object) -> object:
        return entries(value, listed_host) if isinstance(value, str) else value

    @field_validator("inline_mcp_hosts", mode="before")
    @classmethod
    def _listed_mcp_hosts(cls, value: object) -> object:
        return entries(value, listed_mcp_host) if isinstance(value, str) else value

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _listed_origins(cls, value: object) -> object:
        return entries(value, _origin) if isinstance(value, str) else value

    @field_validator("secret_key", mode="before")
    @classmethod
    def _sealing_keys(cls, value: object) -> object:
        return _secret_keys(value) if isinstance(value, str) else value

    @property
    def sealer(self) -> Sealer:
        """The sealer, which seals and opens secrets of conversations."""
        return Sealer([key_of(key.get_secret_value()) for key in self.secret_key])

    @property
    def keyed(self) -> bool:
        """True if the API wants keys."""
        return bool(self.api_keys) or self.require_keys or self.oidc_issuer is not None

    @property
    def store_url(self) -> str:
        """The Redis URL.

        Raises:
            ConfigurationError: when it is not set.
        """
        if self.redis_url is None:
            raise ConfigurationError(
                "PALAVER_REDIS_URL is not set. Point it at a Redis 7.0 or later, e.g. redis://127.0.0.1:6379/0, "
                "or use `palaver up`, which starts a server of its own."
            )
        return self.redis_url

    @property
    def deliveries_url(self) -> str:
        """The broker's URL."""
        return self.broker_url or self.store_url

    @property
    def one_server(self) -> bool:
        """True if the broker is the store's own Redis, and the same database there."""
        return not self.broker_url or self.broker_url == self.redis_url

    @property
    def clustered(self) -> bool:
        """True if the store is a cluster."""
        return is_cluster(self.redis_url or "")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets in these settings: keys and passwords."""
        passwords = (*passwords_of(self.redis_url), *passwords_of(self.broker_url))
        keys = (*self.api_keys, *self.metrics_keys, *self.queues_keys)
        sealing = (key.get_secret_value() for key in self.secret_key)
        return (*(key.secret.get_secret_value() for key in keys), *sealing, *passwords)

    @property
    def heartbeat(self) -> float:
        """Leases are renewed this often: three tries before one is lost."""
        return self.lease_seconds / 3


def _shards(data: Mapping[str, Any]) -> int:
    return _ON_CLUSTER if is_cluster(data.get("redis_url") or "") else 1


def _api_keys(text: str) -> tuple[ApiKey, ...]:
    """The keys in ``text``. Messages say which entry is meant and never quote it: the key may be anywhere in it."""
    keys: dict[str, ApiKey] = {}
    for number, entry in enumerate(parts(text), 1):
        name, _, key = entry.partition("=")
        if not key.strip("="):
            # Nothing behind it but more of them: the end of a key in base64.
            name, key = "", entry
        elif not _KEY_NAME.fullmatch(name):
            rule = "letters, digits, _ . and -, at most 32, no spaces"
            raise ValueError(f"entry {number} must be a key or name=key, and before its first = is no name ({rule})")
        made = ApiKey(SecretStr(key), name or None)
        if len(key) < _SHORTEST_KEY:
            raise ValueError(f"entry {number} is a key of fewer than {_SHORTEST_KEY} characters, which can be guessed")
        if keys.setdefault(key, made) != made:
            raise ValueError(f"entry {number} gives a second name to a key that is there before")
    if text.strip() and not keys:
        raise ValueError("holds no key; unset it or write one")
    return tuple(keys.values())


def _secret_keys(text: str) -> tuple[SecretStr, ...]:
    """The keys in ``text``. Messages say which entry is meant and never quote it."""
    found = parts(text)
    if not found:
        raise ValueError("holds no key; unset it or write one")
    for number, part in enumerate(found, 1):
        try:
            key_of(part)
        except ValueError as error:
            raise ValueError(f"entry {number} {error}") from None
    return tuple(map(SecretStr, found))


def _origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError(
            "is not an origin such as https://app.example.com: a scheme, a host in small letters, a port unless it is "
            "the usual one, and nothing behind it; there are no patterns"
        )
    return text


def read(kind: type[S]) -> S:
    """Settings of a kind, from the environment.

    Raises:
        ConfigurationError: naming each variable that does not fit.
    """
    try:
        return kind()
    except ValidationError as error:
        # A default that depends on others is not made where one of these is wrong, and that is no fault of its own.
        wrong = [each for each in error.errors() if each["type"] != "default_factory_not_called"]
        raise ConfigurationError(
            "; ".join(f"{kind.prefix}{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in wrong)
        ) from None


@cache
def settings() -> Settings:
    """Return this process's settings; their secrets are compared with what others say from here on.

    Raises:
        ConfigurationError: naming each variable that does not fit.
    """
    loaded = read(Settings)
    register_secrets(loaded.secrets)
    return loaded
