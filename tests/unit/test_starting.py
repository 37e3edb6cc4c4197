"""What nobody reads is said at start: variables that are named like ours, and keys of TOML files."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from palaver.config.exits import EX_CONFIG, refusing
from palaver.config.providers import load_providers
from palaver.config.settings import Settings
from palaver.config.variables import OTHERS, unread, variables
from palaver.errors import ConfigurationError, ErrorClass
from palaver.steps.policies import load_policies
from palaver.vocabulary.names import did_you_mean
from tests.feature_cases import of_the_whole

ROOT = Path(__file__).parents[2]
_READ = re.compile(r"""["'{\s(](PALAVER_[A-Z][A-Z_]*[A-Z])\b""")


def _named() -> set[str]:
    """Every variable that is named in what is run."""
    files = [ROOT / "Makefile", ROOT / "Procfile", *ROOT.glob(".github/**/*.yml"), *ROOT.glob("deploy/*.yaml")]
    for folder in ("palaver", "workers", "api", "features", "deploy", "bench"):
        files += (file for file in (ROOT / folder).rglob("*.py") if "tests" not in file.parts)
    return {name for file in files for name in _READ.findall(file.read_text())}


@of_the_whole
def test_every_variable_is_listed() -> None:
    unlisted = _named() - variables()
    assert not unlisted, "PALAVER_… that is no setting belongs into OTHERS of palaver/config/variables.py"


def test_nothing_is_listed_that_is_a_setting() -> None:
    assert not OTHERS.keys() & {f"PALAVER_{name.upper()}" for name in Settings.model_fields}


def test_a_variable_that_nobody_reads_is_named_with_the_nearest_one() -> None:
    assert unread({"PALAVER_RETENTIN": "5", "PALAVER_RETENTION": "5", "HOME": "/", "PALAVER_CI_DATA_DIR": "x"}) == [
        "PALAVER_RETENTIN is no variable that Palaver reads; did you mean 'PALAVER_RETENTION'?"
    ]


@pytest.mark.parametrize("name", ["PALAVER_RETENTIN", "PALAVER_RETENTON", "PALAVER_RETETION"])
def test_the_nearest_name_does_not_hang_on_the_order_of_the_others(name: str) -> None:
    known = sorted(variables())
    for start in range(len(known)):
        assert did_you_mean(name, [*known[start:], *known[:start]]) == "; did you mean 'PALAVER_RETENTION'?"


def test_what_users_have_said_is_theirs_is_not_told_of() -> None:
    assert unread({"PALAVER_OPENAI_KEY": "secret"}, frozenset({"PALAVER_OPENAI_KEY"})) == []


def test_a_value_is_never_told() -> None:
    (told,) = unread({"PALAVER_API_KYES": "canary-of-16-characters"})
    assert "canary" not in told


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PALAVER_API_SERVICE_HOST", "10.0.0.1"),
        ("PALAVER_API_SERVICE_PORT_HTTP", "8080"),
        ("PALAVER_WORKER_PORT", "tcp://10.0.0.1:8080"),
        ("PALAVER_API_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("PALAVER_API_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
    ],
)
def test_what_kubernetes_sets_for_a_service_is_not_told_of(name: str, value: str) -> None:
    assert unread({name: value}) == []


def test_a_wrong_configuration_ends_the_process_with_a_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, refusing():
        raise ConfigurationError("the moon is not set")
    assert ended.value.code == EX_CONFIG == 78


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ('[providers.x]\nbase_url = "http://x/v1"\napi_key_evn = "K"', "providers.x.api_key_evn", "'api_key_env'"),
        ('[providers.x]\nbase_url = "http://x/v1"\ntimeouts = {idel = 3}', "providers.x.timeouts.idel", "'idle'"),
        (
            '[providers.x]\nbase_url = "http://x/v1"\nprices.m = {input = 1, output = 1, outputs = 2}',
            "providers.x.prices.m.outputs",
            "'output'",
        ),
        ('[provider.y]\n[providers.x]\nbase_url = "http://x/v1"', "provider", "'providers'"),
        ('[providers.x]\nbase_url = "http://x/v1"\nwxyz = 1', "providers.x.wxyz", None),
    ],
)
def test_a_key_of_the_table_of_providers_that_nobody_knows_is_left_out_with_a_warning(
    text: str, place: str, hint: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "providers.toml"
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert load_providers(path).keys() == {"x"}
    (told,) = caplog.messages
    assert told.startswith(f"PALAVER_PROVIDERS: {path}: {place} is no key that this version knows, and is left out")
    assert told.endswith(f"did you mean {hint}?" if hint else "left out")


def test_a_value_that_does_not_fit_is_refused_whatever_nobody_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "providers.toml"
    path.write_text('[providers.x]\nbase_url = "nowhere"\napi_key_evn = "K"')
    with pytest.raises(ConfigurationError, match=r"providers\.x\.base_url") as raised:
        load_providers(path)
    assert "api_key_evn" not in str(raised.value)


def test_a_key_of_a_retry_policy_that_nobody_knows_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policies.toml"
    path.write_text(
        "[patient]\nmax_elapsd = 5\n[patient.rules.moon_phase]\nattempts = 20\n"
        "[patient.rules.timeout]\natempts = 2\nattempts = 3\n"
    )
    with caplog.at_level(logging.WARNING):
        policy = load_policies(path)["patient"]
    assert {name: rule.attempts for name, rule in policy.rules.items()} == {ErrorClass.TIMEOUT: 3}
    assert [message.partition(": ")[2].partition(": ")[2].partition(" is no")[0] for message in caplog.messages] == [
        "patient.max_elapsd", "patient.rules.moon_phase", "patient.rules.timeout.atempts",
    ]  # fmt: skip
    hints = [message.rpartition("did you mean ")[2] for message in caplog.messages if "did you mean" in message]
    assert hints == ["'max_elapsed'?", "'attempts'?"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[patient.rules.rate_limit]\nattempts = 20",
            r"rules\.rate_limit is .*; did you mean 'rate_limited'\?",
        ),
        (
            "[patient.rules.tool_error]\nattempts = 1",
            r"/rules/tool_error: these rules are for calls of models: a tool declares its own",
        ),
    ],
)
def test_a_rule_that_would_be_ignored_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        load_policies(path)


def test_a_misspelt_base_url_is_named(tmp_path: Path) -> None:
    path = tmp_path / "providers.toml"
    path.write_text('[providers.ours]\nbase_ulr = "http://127.0.0.1:1/v1"')
    with pytest.raises(ConfigurationError, match="ours: no base_url, but base_ulr; did you mean 'base_url'\\?"):
        load_providers(path)


@pytest.mark.parametrize("text", ["patient = 5", "[patient]\nrules = 5", "[patient.rules]\ntimeout = 5"])
def test_a_policy_that_is_no_table_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="must be a table"):
        load_policies(path)
