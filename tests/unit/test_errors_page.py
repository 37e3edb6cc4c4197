"""docs/reference/errors.md says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from palaver.errors import FACTS, ConfigurationError, ErrorClass, Failure
from palaver.errors.failure import MAX_MESSAGE, ErrorObject
from palaver.errors.tool_findings import TOOL_CLASSES
from palaver.steps.retry import MODEL_CALL, TOOL_CALL, RetryPolicy, stop_reason
from palaver.steps.tool_retry import SERVICE_CALL

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text()


def table(first_column: str) -> list[list[str]]:
    lines = PAGE[PAGE.index(f"| {first_column} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_classes() -> None:
    said = [(row[0], *row[2:]) for row in table("class")]
    word = {True: "yes", False: "no"}
    assert said == [
        (
            error_class.value,
            FACTS[error_class].source,
            word[FACTS[error_class].retryable],
            word[FACTS[error_class].recoverable],
            FACTS[error_class].user_action,
            stop_reason(Failure.of(error_class)).value,
        )
        for error_class in ErrorClass
    ]


def test_the_table_of_policies() -> None:
    assert table("policy") == [
        [
            *(name, error_class.value, f"{rule.attempts}", f"{rule.first:g}", f"{rule.factor:g}"),
            *(f"{rule.max_delay:g}", rule.jitter, f"{rule.retry_after_cap:g}", rule.then),
        ]
        for name, policy in (("MODEL_CALL", MODEL_CALL), ("TOOL_CALL", TOOL_CALL), ("SERVICE_CALL", SERVICE_CALL))
        for error_class, rule in policy.rules.items()
    ]
    assert f"`max_elapsed`, {RetryPolicy().max_elapsed.total_seconds():g} by default" in PAGE


def test_the_table_of_failed_calls_of_tools() -> None:
    rules = {error_class: f"{rule.attempts} attempts" for error_class, rule in SERVICE_CALL.rules.items()}
    assert [(row[0], row[2], row[3]) for row in table("class of a call")] == [
        (f"`{error_class}`", rules.get(error_class, "told to the model"), sentence)
        for error_class, sentence in TOOL_CLASSES.items()
    ]


def test_the_examples() -> None:
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    error, policy = map(json.loads, blocks)
    assert error.keys() == ErrorObject.__annotations__.keys()
    assert f"at most {MAX_MESSAGE} characters" in PAGE
    assert RetryPolicy.parse(policy).max_elapsed.total_seconds() == 600
    with pytest.raises(ConfigurationError) as wrong:
        RetryPolicy.parse({"rules": {"rate_limit": {}}})
    assert f"`{wrong.value}`" in PAGE
