"""Named retry policies: the TOML file ``PALAVER_RETRY_POLICIES``, one table a policy (docs/reference/settings.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from palaver.errors import ConfigurationError, ErrorClass
from palaver.retry import FIELDS, RetryPolicy, Rule
from palaver.toml_file import read_toml, warn_of_unknown

_VARIABLE: Final = "PALAVER_RETRY_POLICIES"
_RULE: Final = tuple(field.name for field in fields(Rule))


def load_policies(path: Path | None) -> Mapping[str, RetryPolicy]:
    """The policies of the file, by name; none when there is no file. What nobody knows is left out with a warning.

    Raises:
        ConfigurationError: when it cannot be read or a policy does not fit; says where.
    """
    if path is None:
        return {}
    tables = read_toml(path, _VARIABLE)
    for name, policy in tables.items():
        _drop_unknown(policy, FIELDS, name, path)
        rules = policy.get("rules") if isinstance(policy, dict) else None
        _drop_unknown(rules, tuple(ErrorClass), f"{name}.rules", path)
        for each, rule in rules.items() if isinstance(rules, dict) else ():
            _drop_unknown(rule, _RULE, f"{name}.rules.{each}", path)
    try:
        return {name: RetryPolicy.parse(table) for name, table in tables.items()}
    except ConfigurationError as error:
        raise ConfigurationError(f"{_VARIABLE}: {path}: {error}") from None


def _drop_unknown(table: Any, names: Iterable[str], place: str, path: Path) -> None:
    """What is no table is left to the policy, which says so."""
    for key in [key for key in table if key not in names] if isinstance(table, dict) else ():
        del table[key]
        warn_of_unknown(f"{place}.{key}", names, path, _VARIABLE)
