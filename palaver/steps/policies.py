"""Named retry policies: the TOML file ``PALAVER_RETRY_POLICIES``, one table a policy (docs/reference/settings.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from palaver.config.toml_file import read_toml, warn_of_unknown
from palaver.errors import ConfigurationError, ErrorClass
from palaver.steps.retry import FIELDS, RetryPolicy, Rule
from palaver.vocabulary.names import did_you_mean

_VARIABLE: Final = "PALAVER_RETRY_POLICIES"
_RULE: Final = tuple(field.name for field in fields(Rule))
_OF_TOOLS: Final = frozenset(
    {ErrorClass.TOOL_ERROR, ErrorClass.TOOL_TIMEOUT, ErrorClass.TOOL_INTERRUPTED, ErrorClass.TOOL_DENIED}
)
_NO_TOOLS: Final = "these rules are for calls of models: a tool declares its own, @tool(retry=…)"


def load_policies(path: Path | None) -> Mapping[str, RetryPolicy]:
    """The policies of the file, by name; none when there is no file. What is unknown is left out with a warning, but
    for a class of errors that is misspelt.

    Raises:
        ConfigurationError: when it cannot be read or a policy does not fit; says where.
    """
    if path is None:
        return {}
    tables = read_toml(path, _VARIABLE)
    for name, policy in tables.items():
        _drop_unknown(policy, FIELDS, name, path)
        rules = policy.get("rules") if isinstance(policy, dict) else None
        for error_class in rules if isinstance(rules, dict) else ():
            # A misspelt class would leave its failures to the default, and it would go unnoticed.
            if error_class not in tuple(ErrorClass) and (hint := did_you_mean(error_class, ErrorClass)):
                raise ConfigurationError(f"{_VARIABLE}: {path}: {name}.rules.{error_class} is no class of errors{hint}")
        _drop_unknown(rules, tuple(ErrorClass), f"{name}.rules", path)
        for error_class, rule in rules.items() if isinstance(rules, dict) else ():
            _drop_unknown(rule, _RULE, f"{name}.rules.{error_class}", path)
    try:
        return {name: _policy(name, table) for name, table in tables.items()}
    except ConfigurationError as error:
        raise ConfigurationError(f"{_VARIABLE}: {path}: {error}") from None


def _policy(name: str, table: Any) -> RetryPolicy:
    try:
        return policy_of_agent(table)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def policy_of_agent(value: object) -> RetryPolicy:
    """The policy of an agent for its model calls, as a request gives it or as it is stored.

    Raises:
        ConfigurationError: it does not fit, or has a rule for a class that only calls of tools have.
    """
    parsed = RetryPolicy.parse(value, stored=True)
    for error_class in sorted(_OF_TOOLS & parsed.rules.keys()):
        raise ConfigurationError(_NO_TOOLS, pointer=f"/rules/{error_class}")
    return parsed


def _drop_unknown(table: Any, names: Iterable[str], place: str, path: Path) -> None:
    """Drop the unknown keys of a table. A value that is no table is left to the policy, which says so."""
    for key in [key for key in table if key not in names] if isinstance(table, dict) else ():
        del table[key]
        warn_of_unknown(f"{place}.{key}", names, path, _VARIABLE)
