"""Secrets of the environment that may stand in files: ``NAME_FILE`` is the file that has what ``NAME`` would be.

Orchestrators mount secrets as files. A list of processes, or the orchestrator's own, shows the path only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from palaver.config.text_files import text_in
from palaver.errors import ConfigurationError

SUFFIX: Final = "_FILE"
_MOST: Final = 64 << 10
"""Bytes of such a file: as many keys as anybody has."""


def secret_of(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return what the variable ``name`` holds, or the file that ``name_FILE`` names, without space around it; None if
    it is empty, or neither is set.

    Raises:
        ConfigurationError: both are set, or the file cannot be read; names the variable. What is no absolute path is
            not quoted: it may be the secret itself.
    """
    value, path = environment.get(name), environment.get(name + SUFFIX)
    if not path:
        return value or None
    if value:
        raise ConfigurationError(f"{name} and {name}{SUFFIX} are both set: unset one of them")
    if not os.path.isabs(path):
        raise ConfigurationError(f"{name}{SUFFIX} names no absolute path: a secret itself goes into {name}")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST + 1)
        text = text_in(data) if len(data) <= _MOST else ""
    except OSError as error:
        raise ConfigurationError(f"{name}{SUFFIX}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{name}{SUFFIX}: {path} is not text") from None
    if len(data) > _MOST:
        raise ConfigurationError(f"{name}{SUFFIX}: {path} is longer than {_MOST >> 10} KiB, which no secret is")
    return text.strip() or None
