"""What the environment says about proxies and certificates: used where it is needed, else ignored, and said in one
sentence if it is no use."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from features.stack.ports import free_port
from palaver.client import AsyncPalaver, ConnectionFailed, Palaver
from palaver.client.environment import authorities_for, proxy_for
from palaver.errors import ConfigurationError
from tests.both_clients import RUN, Call, both_clients
from tests.command_line import CommandResult
from tests.scripted_api import COMPLETED, RUN_ID, ScriptedAPI, answer

NO_USE = [
    ("NO_PROXY", "::1/128"),
    ("NO_PROXY", "[::1]"),
    ("NO_PROXY", "10.0.0.0/8,fd00::/8"),
    ("NO_PROXY", "http://["),
    ("NO_PROXY", "ä,:::,a:b"),
    ("no_proxy", "::1/128"),
    ("ALL_PROXY", "socks5://127.0.0.1:1"),
    ("all_proxy", "socks4a://127.0.0.1:1"),
    ("HTTP_PROXY", "nonsense://"),
    ("http_proxy", "::::"),
    ("HTTPS_PROXY", "http://["),
    ("HTTP_PROXY", "http://:3128"),
    ("SSL_CERT_FILE", "/nowhere/ca.pem"),
    ("SSL_CERT_FILE", __file__),
    ("SSL_CERT_DIR", "/nowhere"),
    ("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem"),
]
"""Variables that some program sets and httpx fails on."""


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("http", "https", "all", "no"):
        for name in (f"{kind}_proxy", f"{kind}_PROXY".upper()):
            monkeypatch.delenv(name, raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def api() -> Iterator[ScriptedAPI]:
    with ScriptedAPI() as server:
        server.on("GET", RUN, answer(COMPLETED))
        yield server


@both_clients
@pytest.mark.parametrize(("name", "value"), NO_USE)
def test_nothing_of_it_matters_to_this_machine(
    api: ScriptedAPI, call: Call, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert call(api.url, "get", RUN_ID).id == RUN_ID


@pytest.mark.parametrize(("name", "value"), NO_USE)
def test_nor_to_a_command(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    said = CommandResult(f"http://127.0.0.1:{free_port()}", "list")
    assert (said.code, said.err.count("\n")) == (3, 1)
    assert "Start the API" in said.err


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("HTTPS_PROXY", "socks5://ann:pw@127.0.0.1:1", "HTTPS_PROXY names a SOCKS proxy, for which a package is"),
        ("all_proxy", "nonsense://ann:pw@x", "the proxy that all_proxy names is no address such as http://"),
        ("https_proxy", "::::", "the proxy that https_proxy names is no address"),
        ("HTTPS_PROXY", "http://[", "the proxy that HTTPS_PROXY names is no address"),
        ("HTTPS_PROXY", "http://:3128", "the proxy that HTTPS_PROXY names is no address"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE is '/nowhere/ca.pem', and nothing is there"),
        ("SSL_CERT_FILE", __file__, "and no certificates can be read there"),
        ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR is '/nowhere', and nothing is there"),
    ],
)
def test_where_it_is_needed_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(name, value)
    said = CommandResult("https://palaver.invalid", "list")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert sentence in said.err
    assert "ann:pw" not in said.err
    for client in (Palaver, AsyncPalaver):
        with pytest.raises(ConfigurationError) as caught:
            client("https://palaver.invalid")
        assert sentence in str(caught.value)


@both_clients
def test_another_machine_is_asked_through_the_proxy(
    api: ScriptedAPI, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy is sent the whole address, and answers for it."""
    api.on("GET", f"http://palaver.invalid{RUN}", answer(COMPLETED))
    monkeypatch.setenv("HTTP_PROXY", api.url.removeprefix("http://"))
    assert call("http://palaver.invalid", "get", RUN_ID).id == RUN_ID
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ConnectionFailed, match=r"\(through the proxy that HTTP_PROXY names\)"):
        call("http://palaver.invalid", "create_conversation")


@pytest.mark.parametrize(
    ("url", "listed", "asked"),
    [
        ("https://desk.example.com", "example.org", True),
        ("https://desk.example.com", "*", False),
        ("https://desk.example.com", "example.com", False),
        ("https://desk.example.com", ".example.com", False),
        ("https://desk.example.com", "*.example.com", False),
        ("https://desk.example.com", "localhost desk.example.com", False),
        ("https://desk.example.com", "DESK.example.com:443", False),
        ("https://desk.example.com:8443", "desk.example.com:443", True),
        ("https://desk.example.com", "http://desk.example.com", True),
        ("https://desk.example.com", "https://desk.example.com", False),
        ("https://adesk.example.com", "desk.example.com", True),
        ("https://10.1.2.3", "10.0.0.0/8", False),
        ("https://10.1.2.3", "10.1.2.3", False),
        ("https://11.1.2.3", "10.0.0.0/8", True),
        ("https://[fd00::7]", "fd00::/8", False),
        ("https://[fd00::7]", "[fd00::7]", False),
        ("https://[fd00::7]:8443", "[fd00::7]:8443", False),
        ("https://[fd00::7]", "[fd00::]/8", False),
        ("https://[fd01::7]", "::1/128,[::1],", True),
        ("http://desk.example.com", "", False),
    ],
)
def test_what_no_proxy_lists_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, url: str, listed: str, asked: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("NO_PROXY", listed)
    assert (proxy_for(httpx.URL(url)) is not None) is asked


def test_whose_certificates_are_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def count(url: str) -> int:
        return authorities_for(httpx.URL(url), None).cert_store_stats()["x509_ca"]

    everyone = count("https://desk.example.com")
    assert (everyone > 1, count("http://desk.example.com")) == (True, 0)
    assert authorities_for(httpx.URL("http://desk.example.com"), None).verify_mode is ssl.CERT_REQUIRED
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert count("https://desk.example.com") == 0
