"""The TOML files that settings point at."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from palaver.errors import ConfigurationError


def read_toml(path: Path, variable: str) -> dict[str, Any]:
    """The file's tables.

    Raises:
        ConfigurationError: when it cannot be read; names the environment variable that points at it.
    """
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{variable}: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{variable}: {path} is not TOML: {error}") from None
