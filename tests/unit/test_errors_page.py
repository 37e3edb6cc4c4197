"""docs/reference/errors.md says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from palaver.errors import ConfigurationError
from palaver.errors.failure import MAX_MESSAGE, ErrorObject
from palaver.errors.vocabulary import TOOL_CLASSES
from palaver.steps.retry import RetryPolicy
from palaver.steps.tool_retry import SERVICE_CALL

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text()


def table(first_column: str) -> list[list[str]]:
    lines = PAGE[PAGE.index(f"| {first_column} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_of_failed_calls_of_tools() -> None:
    rules = {error_class: f"{rule.attempts} attempts" for error_class, rule in SERVICE_CALL.rules.items()}
    assert [(row[0], row[2], row[3]) for row in table("class of a call")] == [
        (f"`{error_class}`", rules.get(error_class, "told to the model"), sentence)
        for error_class, sentence in TOOL_CLASSES.items()
    ]


def test_the_examples() -> None:
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    error, policy = map(json.loads, blocks)
    assert f"`max_elapsed`, {RetryPolicy().max_elapsed.total_seconds():g} by default" in PAGE
    assert error.keys() == ErrorObject.__annotations__.keys()
    assert f"at most {MAX_MESSAGE} characters" in PAGE
    assert RetryPolicy.parse(policy).max_elapsed.total_seconds() == 600
    with pytest.raises(ConfigurationError) as wrong:
        RetryPolicy.parse({"rules": {"rate_limit": {}}})
    assert f"`{wrong.value}`" in PAGE
