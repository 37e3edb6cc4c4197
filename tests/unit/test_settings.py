"""Settings: what the page says is what the code reads, and a wrong value is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palaver.config.providers import load_providers
from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError, ErrorClass
from palaver.steps.policies import load_policies

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_page_lists_every_setting_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `PALAVER_(\w+)` \| `?([^|`]+?)`? \|", PAGE.read_text(), re.MULTILINE))
    assert {name.upper() for name in Settings.model_fields} == set(rows)
    for name, field in Settings.model_fields.items():
        default, kept = rows[name.upper()], field.get_default(call_default_factory=True, validated_data={})
        if isinstance(kept, tuple):
            assert tuple(each for each in default.split(",") if each != "none") == kept, name
        elif default not in ("none", "the same Redis"):
            number = {"false": "0", "true": "1"}.get(default) or default
            read = default if isinstance(kept, str) else float(number)
            assert read == kept, name


def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    monkeypatch.setenv("PALAVER_LEASE_SECONDS", "soon")
    with pytest.raises(ConfigurationError, match="PALAVER_LEASE_SECONDS"):
        settings()
    settings.cache_clear()


def test_what_depends_on_a_wrong_value_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of shards is that of a cluster, or one, and is not known where the address is wrong."""
    settings.cache_clear()
    monkeypatch.setenv("PALAVER_DURABILITY", "paper")
    with pytest.raises(ConfigurationError) as refused:
        settings()
    assert "PALAVER_DURABILITY" in str(refused.value)
    assert "SHARDS" not in str(refused.value)
    settings.cache_clear()


def test_no_redis_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAVER_REDIS_URL", raising=False)
    with pytest.raises(ConfigurationError, match="palaver up"):
        _ = Settings().store_url


@pytest.mark.parametrize(
    ("variable", "url", "told"),
    [
        (
            "BROKER_URL",
            "redis+cluster://10.0.0.1:6379/0",
            "kombu has no transport for a Redis in cluster mode: name one server with `cluster-enabled no`, as redis://",
        ),
        (
            "REDIS_URL",
            "redis-cluster://:s3cret@10.0.0.1:6379",
            "is named in one address, as redis.cluster://HOST:6379,",
        ),
        ("REDIS_URL", "redis://:s3cret@10.0.0.1:6379,10.0.0.2:6379/0", "one server, not several: name one address"),
        (
            "BROKER_URL",
            "rediscluster://10.0.0.1:6379",
            "kombu has no transport for a Redis in cluster mode: .*Sentinels, as redis.sentinel://HOST.* or a RabbitMQ",
        ),
        (
            "REDIS_URL",
            "redis+sentinel://:s3cret@a:26379,b:26379/",
            "the name of the service that the Sentinels watch",
        ),
        ("BROKER_URL", "sentinel://10.0.0.1:26379", "Sentinels are named in one address, as redis.sentinel://HOST"),
        ("REDIS_URL", "redis+socket:///run/redis.sock", "unix:///PATH"),
        (
            "REDIS_URL",
            "amqp://guest@10.0.0.1//",
            "must begin with redis://, rediss://, redis.sentinel://, .*unix://, redis.cluster://, rediss.cluster://$",
        ),
        ("REDIS_URL", "10.0.0.1:6379", "must begin with redis://"),
        ("REDIS_URL", "redis://:s3cret@10.0.0.1:63x9/0", "the port of a Redis is a number from 1 to 65535, and 6379"),
        ("REDIS_URL", "redis://:s3cret/9@10.0.0.1/0", "in a password @ is written %40, / is %2F and . is %3F"),
        ("REDIS_URL", "redis://:s3cret#9@10.0.0.1/0", "in a password it is written %23"),
        ("REDIS_URL", "redis://10.0.0.1/0?ssl_ca_certs=/ca.pem", "takes ssl_… with rediss:// only"),
        ("BROKER_URL", "sqs://", "must begin with redis://, .*unix://, amqp://, amqps://$"),
    ],
)
def test_an_address_that_does_not_work_is_told_at_start(
    monkeypatch: pytest.MonkeyPatch, variable: str, url: str, told: str
) -> None:
    settings.cache_clear()
    monkeypatch.setenv(f"PALAVER_{variable}", url)
    with pytest.raises(ConfigurationError, match=f"PALAVER_{variable}: .*{told}") as refused:
        settings()
    assert "s3cret" not in str(refused.value)
    settings.cache_clear()


@pytest.mark.parametrize("url", ["redis://:p%2C%40@h:1/0", "rediss://h/0", "unix:///run/r.sock?db=1", "amqps://h//"])
def test_an_address_that_works_is_taken(url: str) -> None:
    assert Settings(broker_url=url).broker_url == url


def test_lists_are_comma_separated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_TOOLS", "shop.tools, crm.tools,")
    assert Settings().tools == ("shop.tools", "crm.tools")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[providers.x]\n", "providers: x: no base_url"),
        ('[providers.x]\nbase_url = "ftp://x"\n', "base_url"),
        ('[providers.x]\nbase_url = "http://x/v1"\nmax_in_flight = 0\n', "providers.x.max_in_flight"),
        ('[providers.x]\nbase_url = "http://x/v1"\ntokens_per_minute = "all"\n', "providers.x.tokens_per_minute"),
        (
            '[providers.x]\nbase_url = "http://x/v1"\nprotocol = "openai"\n',
            "providers.x.protocol: Input should be 'chat_completions'",
        ),
        ("[providers", "not TOML"),
    ],
)
def test_a_wrong_providers_file_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load_providers(path)


def test_policies_come_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    path.write_text("[patient.rules.rate_limited]\nattempts = 20\n")
    assert load_policies(path)["patient"].rules[ErrorClass.RATE_LIMITED].attempts == 20
    assert load_policies(None) == {}


def test_a_key_stays_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "providers.toml"
    path.write_text('[providers.x]\nbase_url = "http://x/v1"\napi_key_env = "X_KEY"\n')
    for nothing in ("", None):
        monkeypatch.setenv("X_KEY", nothing) if nothing is not None else monkeypatch.delenv("X_KEY")
        provider = load_providers(path)["x"]
        assert (provider.api_key, provider.has_key) == (None, False)
    monkeypatch.setenv("X_KEY", "secret")
    provider = load_providers(path)["x"]
    assert (provider.api_key, provider.has_key) == ("secret", True)
    assert "secret" not in repr(provider)
