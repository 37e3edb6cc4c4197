"""Settings of an issuer: each that does not fit is one sentence that names it."""

from __future__ import annotations

import re

import pytest

from palaver.config.oidc import ScopeGrant
from palaver.config.settings import Settings, read
from palaver.errors import ConfigurationError
from palaver.vocabulary.scopes import SCOPES

GOOD = {
    "OIDC_ISSUER": "https://login.example.com/realms/one/",
    "OIDC_AUDIENCE": "palaver",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_REDIS_URL", "redis://fake/0")


def test_an_issuer_and_an_audience_are_enough_and_close_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Settings().keyed
    for name, value in GOOD.items():
        monkeypatch.setenv(f"PALAVER_{name}", value)
    here = Settings()
    assert here.keyed
    assert here.oidc_issuer == GOOD["OIDC_ISSUER"], "a slash at the end is a part of it"
    assert (here.oidc_tenant_claim, here.oidc_scopes_claim, here.oidc_scopes) == (None, "scope", ())


def test_scopes_are_written_by_the_values_that_stand_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "support=runs:read runs:act, cn=leads = actions:approve ,root=operator"
    for name, value in {**GOOD, "OIDC_SCOPES": text, "OIDC_PRIVATE_HOSTS": "Login.Internal, [fd00::1]"}.items():
        monkeypatch.setenv(f"PALAVER_{name}", value)
    here = Settings()
    assert here.oidc_scopes == (
        ScopeGrant("support", frozenset({"runs:read", "runs:act"})),
        ScopeGrant("cn=leads", frozenset({"actions:approve"})),
        ScopeGrant("root", frozenset(SCOPES), operator=True),
    )
    assert here.oidc_private_hosts == ("login.internal", "fd00::1")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9000", "http://localhost/realm", "http://[::1]:80/", "https://10.0.0.1"]
)
def test_addresses_that_fit(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name, value in {**GOOD, "OIDC_ISSUER": url, "OIDC_JWKS_URL": url}.items():
        monkeypatch.setenv(f"PALAVER_{name}", value)
    assert Settings().oidc_issuer == url
    monkeypatch.setenv("PALAVER_OIDC_JWKS_URL", "https://login.example.com/keys?app=1")
    assert Settings().oidc_jwks_url == "https://login.example.com/keys?app=1"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"OIDC_ISSUER": "login.example.com"}, "OIDC_ISSUER: .*must begin with https://"),
        ({"OIDC_ISSUER": "http://login.example.com"}, "OIDC_ISSUER: .*http:// is for an issuer on this machine"),
        ({"OIDC_ISSUER": "https://login.example.com/?realm=1"}, "OIDC_ISSUER: .*neither a query nor a fragment"),
        ({"OIDC_ISSUER": "https://me:password@login.example.com"}, "OIDC_ISSUER: .*has a login"),
        ({"OIDC_ISSUER": "https://login.example.com/" + "x" * 500}, "OIDC_ISSUER: .*500 characters at most"),
        ({"OIDC_JWKS_URL": "http://10.0.0.1/keys"}, "OIDC_JWKS_URL: .*must begin with https://"),
        ({"OIDC_AUDIENCE": ""}, "OIDC_AUDIENCE: .*is not set: name the audience"),
        ({"OIDC_ISSUER": ""}, "OIDC_AUDIENCE: .*is nothing without PALAVER_OIDC_ISSUER"),
        ({"OIDC_ISSUER": "", "OIDC_AUDIENCE": "", "OIDC_SCOPES_CLAIM": "roles"}, "OIDC_SCOPES_CLAIM: .*is nothing"),
        ({"OIDC_TENANT_CLAIM": "the tenant"}, "OIDC_TENANT_CLAIM: "),
        ({"OIDC_SCOPES": "support"}, "OIDC_SCOPES: .*'support' is not VALUE=SCOPE"),
        ({"OIDC_SCOPES": "support="}, "OIDC_SCOPES: .*is not VALUE=SCOPE"),
        (
            {"OIDC_SCOPES": "support=runs:reed"},
            "OIDC_SCOPES: .*'runs:reed', which is no scope; did you mean 'runs:read'",
        ),
        ({"OIDC_PRIVATE_HOSTS": "https://login.internal"}, "OIDC_PRIVATE_HOSTS: .*is no host"),
        ({"OIDC_PRIVATE_HOSTS": "*.internal"}, "OIDC_PRIVATE_HOSTS: .*is no host"),
        ({"OIDC_PRIVATE_HOSTS": "login.internal:8443"}, "OIDC_PRIVATE_HOSTS: .*has a port"),
        ({"OIDC_PRIVATE_HOSTS": "169.254.169.254"}, "OIDC_PRIVATE_HOSTS: .*nothing is ever asked"),
    ],
)
def test_what_does_not_fit_is_one_sentence(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], said: str) -> None:
    for name, value in {**GOOD, **changes}.items():
        monkeypatch.setenv(f"PALAVER_{name}", value)
    with pytest.raises(ConfigurationError) as refused:
        read(Settings)
    assert re.fullmatch(f"PALAVER_{said}.*", str(refused.value)), refused.value
    assert ";" not in str(refused.value).replace("; did you mean", "")
