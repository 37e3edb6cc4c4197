"""Endpoints of agents: one way to write a host, a list that is exact, and addresses at which nothing is asked."""

from __future__ import annotations

import pytest
from pydantic import SecretStr, ValidationError

from palaver.client.options import wire
from palaver.config.providers import Provider
from palaver.config.settings import settings
from palaver.errors import ConfigurationError
from palaver.schemas.actions import ClientTool
from palaver.schemas.endpoints import Endpoint, listed_host
from palaver.schemas.models import AgentSpec
from palaver.store.reading import records
from palaver.store.scripting.contracts.wire import read_agent
from palaver.vocabulary.addresses import host_and_port, never_asked

CANARY = "sk-canary-of-an-endpoint-1f2e"


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("https://API.Example.COM/v1", "api.example.com", None),
        ("https://api.example.com./v1", "api.example.com", None),
        ("http://127.0.0.1:8000", "127.0.0.1", 8000),
        ("http://2130706433:8000", "127.0.0.1", 8000),
        ("http://0x7f.1", "127.0.0.1", None),
        ("http://127.1", "127.0.0.1", None),
        ("http://[::1]:9", "::1", 9),
        ("http://[0:0:0:0:0:0:0:1]", "::1", None),
        ("http://[::ffff:127.0.0.1]", "127.0.0.1", None),
        ("https://bücher.example", "xn--bcher-kva.example", None),
        ("https://example。com", "example.com", None),
        ("https://ⓔxample.com", "example.com", None),
        ("http://gpu_box:8000", "gpu_box", 8000),
        ("localhost:9101", "localhost", 9101),
    ],
)
def test_a_host_is_read_in_one_way(address: str, host: str, port: int | None) -> None:
    assert host_and_port(address) == (host, port)


@pytest.mark.parametrize(
    "base_url",
    [
        *(
            "ftp://example.com",
            "//example.com",
            "example.com/v1",
            "http://",
            "http:///v1",
            "https://[::1",
            "http://a b",
        ),
        *("http://example.com\\@127.0.0.1", "http://example.com%2e", "http://exa%6dple.com", "http://ex\tample.com"),
        *("https://user:pass@example.com/v1", "https://key@example.com", "http://[fe80::1%25eth0]", "http://a:b"),
        *("https://example.com/v1?key=1", "https://example.com/v1#x", "https://example.com?", "http://-a-.example"),
        *("http://example.com:99999", "http://..", "http://.", "https://" + "a" * 300, "https://" + "x" * 3000),
    ],
)
def test_what_could_be_read_in_several_ways_is_refused(base_url: str) -> None:
    with pytest.raises(ValidationError):
        Endpoint(base_url=base_url)


def test_an_address_is_kept_as_it_is_compared() -> None:
    assert Endpoint(base_url="HTTPS://API.Example.com.:443/v1/").base_url == "https://api.example.com/v1"
    assert Endpoint(base_url="http://[::1]:8000/v1").base_url == "http://[::1]:8000/v1"
    assert Endpoint(base_url="http://127.1:80").base_url == "http://127.0.0.1"


@pytest.mark.parametrize(
    ("hosts", "base_url", "allowed"),
    [
        ("", "https://api.example.com", False),
        ("api.example.com", "https://api.example.com/v1", True),
        ("API.example.com.", "http://api.example.com/v1", True),
        ("api.example.com", "https://api.example.com:8443", False),
        ("api.example.com:8443", "https://api.example.com:8443", True),
        ("api.example.com:8443", "https://api.example.com", False),
        ("api.example.com:443", "https://api.example.com", True),
        ("api.example.com:443", "http://api.example.com", False),
        ("example.com", "https://api.example.com", False),
        ("api.example.com", "https://api.example.com.evil.test", False),
        ("api.example.com", "https://evil-api.example.com", False),
        ("127.0.0.1:8000", "http://2130706433:8000", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8001", False),
        ("127.0.0.1", "http://127.0.0.1:6379", False),
        ("::1", "http://[::1]", True),
        ("[::1]:8000", "http://[0::1]:8000", True),
        ("bücher.example", "https://xn--bcher-kva.example", True),
    ],
)
def test_a_host_is_allowed_if_it_is_listed(
    monkeypatch: pytest.MonkeyPatch, hosts: str, base_url: str, allowed: bool
) -> None:
    settings.cache_clear()
    monkeypatch.setenv("PALAVER_INLINE_PROVIDER_HOSTS", hosts)
    assert Endpoint(base_url=base_url).allowed_by(settings().inline_provider_hosts) is allowed
    settings.cache_clear()


@pytest.mark.parametrize(
    "entry", ["*", "*.example.com", "https://example.com", "example.com/v1", "169.254.169.254", "a:b", "[::1", "a b"]
)
def test_an_entry_that_is_no_host_is_named(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    settings.cache_clear()
    monkeypatch.setenv("PALAVER_INLINE_PROVIDER_HOSTS", f"example.com,{entry}")
    with pytest.raises(ConfigurationError, match="PALAVER_INLINE_PROVIDER_HOSTS"):
        settings()
    settings.cache_clear()
    with pytest.raises(ValueError, match=r"\w"):
        listed_host(entry)


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "0.0.0.0"),
        *("::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
        *("fec0::1", "fd00:ec2::23", "::169.254.169.254"),
        *("2002:a9fe:a9fe::", "127.0.0.1", "::1", "::ffff:127.0.0.1", "no address"),
    ],
)
def test_nothing_is_asked_there_by_a_name(address: str) -> None:
    assert never_asked(address, loopback=False)


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.7", "172.16.0.1", "fd12::1", "1.1.1.1", "2606:4700::1111"])
def test_a_listed_host_may_be_within(address: str) -> None:
    assert not never_asked(address, loopback=False)


def test_an_agent_is_stored_without_its_key_and_its_models_are_named_by_the_host() -> None:
    agent = AgentSpec.model_validate(
        {
            "model": "inline/org/model-1",
            "fallbacks": ("inline/model-2", "fake/echo"),
            "endpoint": {"base_url": "https://api.example.com/v1", "api_key": CANARY},
        }
    )
    assert agent.models == ("inline:api.example.com/org/model-1", "inline:api.example.com/model-2", "fake/echo")
    kept = records.agent_json(agent)
    again = read_agent(kept.encode())
    assert again.endpoint == Endpoint(base_url="https://api.example.com/v1")
    for told in (kept, repr(agent), agent.model_dump_json(), str(agent.model_dump()), records.names(agent)):
        assert CANARY not in told
    assert wire(agent)["endpoint"]["api_key"] == CANARY
    assert agent.endpoint is not None
    assert Provider.inline(agent.endpoint).api_key == CANARY
    assert CANARY not in repr(Provider.inline(agent.endpoint))


def test_an_agent_without_one_is_stored_as_before() -> None:
    assert "endpoint" not in records.agent_json(AgentSpec(model="fake/echo"))


def test_what_a_client_tool_does_not_say_is_not_stored() -> None:
    tools = (ClientTool(name="look"), ClientTool(name="tell", acknowledgement="Told."))
    kept = records.agent_json(AgentSpec(model="fake/echo", client_tools=tools))
    assert kept.count("acknowledgement") == 1
    again = read_agent(kept.encode())
    assert again.client_tools == tools


def test_an_anthropic_endpoint_says_how_long_an_answer_may_be() -> None:
    endpoint = Endpoint(base_url="https://api.example.com/v1", protocol="anthropic", api_key=SecretStr(CANARY))
    assert Provider.inline(endpoint).max_output_tokens


@pytest.mark.parametrize("key", ["sk-x\nX-Evil: 1", "k\u00e9y", " "])
def test_a_key_of_the_environment_that_no_header_can_carry_is_a_sentence(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", key)
    with pytest.raises(ConfigurationError, match=r"^OUR_KEY: the key must be printable ASCII") as refused:
        Provider(base_url="https://api.example.com/v1", api_key_env="OUR_KEY")
    assert not key.strip() or key not in str(refused.value)
