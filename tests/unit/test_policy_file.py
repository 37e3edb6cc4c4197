"""PALAVER_POLICY: what a file of rules may say, and the sentences about what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaver.config.policy import NO_POLICY, load_policy
from palaver.errors import ConfigurationError
from palaver.schemas.models import AgentSpec
from tests.pages import ROOT, blocks

WHOLE = """
[rules.refunds]
when = { tenants = ["acme", "default"], agents = ["support*"], tools = ["refund"], models = ["fake/*"] }
approvals = { require = ["refund", "pay_*"], approver = "other" }
inline_agents = false

[rules.limits]
tools = ["calc*"]
models = ["fake/*", "openai/gpt-5*"]
max_steps = 50
budget = { tokens = 200000, cost_usd = 2.0, tool_calls = 20, seconds = 3600 }
retry = { attempts = 5, max_elapsed = 600, patience = 60 }
"""


def file(path: Path, text: str) -> Path:
    (path / "policy.toml").write_text(text)
    return path / "policy.toml"


def test_without_a_file_there_are_no_rules() -> None:
    assert load_policy(None) is NO_POLICY
    assert not NO_POLICY.rules


def test_a_whole_file(tmp_path: Path) -> None:
    policy = load_policy(file(tmp_path, WHOLE))
    refunds, limits = policy.rules["refunds"], policy.rules["limits"]
    assert refunds.approvals is not None
    assert refunds.approvals.require == ("refund", "pay_*")
    assert limits.budget is not None
    assert limits.budget.cost_usd == 2.0
    assert limits.retry is not None
    assert limits.retry.attempts == 5


@pytest.mark.parametrize(
    ("tenant", "agent", "names"),
    [
        ("acme", {"name": "support-2", "tools": ("refund",)}, ["refunds", "limits"]),
        ("other", {"name": "support-2", "tools": ("refund",)}, ["limits"]),
        ("acme", {"name": "billing", "tools": ("refund",)}, ["limits"]),
        ("acme", {"tools": ("refund",)}, ["limits"]),
        ("acme", {"name": "support", "tools": ("look_up",)}, ["limits"]),
        ("acme", {"name": "support", "tools": ("refund",), "model": "other/x"}, ["limits"]),
        ("acme", {"name": "support", "tools": ("refund",), "model": "other/x", "fallbacks": ("fake/y",)},
         ["refunds", "limits"]),
    ],
)  # fmt: skip
def test_a_rule_is_for_the_runs_that_all_of_its_when_fits(
    tmp_path: Path, tenant: str, agent: dict[str, object], names: list[str]
) -> None:
    policy = load_policy(file(tmp_path, WHOLE))
    spec = AgentSpec.model_validate({"model": "fake/tool-20", **agent})
    assert [*policy.rules_for(tenant, spec)] == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[rule.x]\nmax_steps = 1", "rule: is no key here; did you mean 'rules'"),
        ("[rules.x]\nmax_step = 1", "rules.x.max_step: is no key here; did you mean 'max_steps'"),
        ("[rules.x]\nmax_steps = 0", "rules.x.max_steps: must be greater than or equal to 1"),
        ('[rules.x]\nmax_steps = "5"', "rules.x.max_steps: must be a valid integer"),
        ('[rules.x]\nwhen = { agent = ["a"] }\nmax_steps = 1', "rules.x.when.agent: is no key here; did you mean"),
        ('[rules.x]\nwhen = { agents = ["a"] }', "rules.x: demands nothing; a rule has approvals"),
        ("[rules.x]\ntools = []", "rules.x.tools: Value should have at least 1 item"),
        ("[rules.x]\napprovals = { approver = \"other\" }", "rules.x.approvals.require: Field required"),
        ('[rules.x]\napprovals = { require = "never" }', "rules.x.approvals.require"),
        ('[rules.x]\napprovals = { require = ["a b"] }', "rules.x.approvals.require.0"),
        ("[rules.x]\nbudget = { dollars = 1 }", "rules.x.budget.dollars: is no key here"),
        ("[rules.x]\nretry = { attempts = 0 }", "rules.x.retry.attempts"),
        ('[rules."a b"]\nmax_steps = 1', "rules.a b"),
        ("[rules.x\nmax_steps = 1", "is not TOML: .*line 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_an_error_that_says_where(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        load_policy(file(tmp_path, text))
    assert "PALAVER_POLICY" in str(refused.value)
    assert "policy.toml" in str(refused.value)


@pytest.mark.parametrize("page", ["docs/how-to/policy.md"])
def test_what_the_page_shows_fits(tmp_path: Path, page: str) -> None:
    shown = [content for kind, content in blocks(ROOT / page) if kind == "toml"]
    assert len(shown) >= 3
    for content in shown:
        assert load_policy(file(tmp_path, content)).rules


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"PALAVER_POLICY: cannot read .*none\.toml"):
        load_policy(tmp_path / "none.toml")
