"""Named retry policies: the TOML file ``PALAVER_RETRY_POLICIES``, one table a policy (docs/reference/settings.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from palaver.errors import ConfigurationError
from palaver.retry import RetryPolicy
from palaver.toml_file import read_toml


def load_policies(path: Path | None) -> Mapping[str, RetryPolicy]:
    """The policies of the file, by name; none when there is no file.

    Raises:
        ConfigurationError: when it cannot be read or a policy does not fit; says where.
    """
    if path is None:
        return {}
    tables = read_toml(path, "PALAVER_RETRY_POLICIES")
    try:
        return {name: RetryPolicy.parse(table) for name, table in tables.items()}
    except ConfigurationError as error:
        raise ConfigurationError(f"PALAVER_RETRY_POLICIES: {path}: {error}") from None
