"""The variables that a worker hides from its tools: Palaver's own, and those that hold keys of providers.

Tools run as the user of their worker, in its children or in its own process, so this keeps keys out of sight, out of
subprocesses and out of what a tool shows by mistake. It does not stop code that is out for them
(docs/reference/tools.md).
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from palaver.config.providers import key_variables, load_providers
from palaver.config.secret_files import SUFFIX
from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError
from palaver.feature import switched_on
from palaver.secrets.redaction import register_secrets
from palaver.telemetry.traces import HEADERS

log = logging.getLogger("palaver.workers.children.environment")

_OURS: Final = "PALAVER_"
_NEEDED_HERE: Final = frozenset({"SSL_CERT_FILE", "SSL_CERT_DIR"})
"""Read with each new context of TLS, to Redis, providers and whatever else the process of a tool connects to."""
_NEEDED_BY_OTHERS: Final = frozenset({"PALAVER_API_KEYS", f"PALAVER_API_KEYS{SUFFIX}", *HEADERS})


def visible(name: str, patterns: Iterable[str], hidden: frozenset[str]) -> bool:
    """Tell whether a tool may see a variable: a hidden one, or one that is for others, only if it is named itself."""
    if name in patterns or name in _NEEDED_HERE:
        return True
    others = name in hidden or name in HEADERS or name.startswith(_OURS)
    return not others and any(fnmatchcase(name, pattern) for pattern in patterns)


def hidden_keys(here: Settings) -> frozenset[str]:
    """The variables that hold keys of providers, or name files with them; what tools say is compared with the keys.

    Raises:
        ConfigurationError: the table of providers cannot be read, so it is unknown which variables these are.
    """
    names = key_variables(here.providers)
    register_secrets(map(os.environ.get, names))
    try:
        load_providers(here.providers)
    except ConfigurationError as error:
        log.warning("not all keys of providers can be kept out of what tools say: %s", error)
    return frozenset(name + suffix for name in names for suffix in ("", SUFFIX))


def forget_keys(hidden: frozenset[str]) -> None:
    """In the main process of a worker that asks no model, before it has children: drop what it never needs, and take
    all that is hidden out of the block that /proc shows of this process and of its children."""
    for name in hidden | _NEEDED_BY_OTHERS:
        os.environ.pop(name, None)
    settings.cache_clear()
    ours = [name for name in os.environ if name.startswith(_OURS)]
    for name in ours:
        # A copy elsewhere: the worker starts itself again with it on request.
        os.environ[name] = os.environ[name]
    _wipe({*hidden, *_NEEDED_BY_OTHERS, *ours})


def narrow(here: Settings, hidden: frozenset[str]) -> None:
    """Before a process imports tools: leave what they may see."""
    switched_on()
    for name in list(os.environ):
        if not visible(name, here.tool_env, hidden):
            del os.environ[name]
    settings.cache_clear()


@contextmanager
def narrowed(here: Settings, hidden: frozenset[str]) -> Iterator[None]:
    """Within the block, as `narrow`, and /proc does not show it either: for a process that has use for the rest before
    and after."""
    gone = {name: value for name, value in os.environ.items() if not visible(name, here.tool_env, hidden)}
    narrow(here, hidden)
    _wipe(gone)
    try:
        yield
    finally:
        # Whatever tools have set in the meantime: the worker starts itself again with it.
        os.environ.update(gone)
        settings.cache_clear()


def _wipe(names: Iterable[str]) -> None:
    """Overwrite the values of these variables where the process found them at its start. None is used from there."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        begin, end = int(fields[47]), int(fields[48])
        block = ctypes.string_at(begin, end - begin)
        encoded = {os.fsencode(name) for name in names}
        at = 0
        for entry in block.split(b"\0"):
            name, equals, value = entry.partition(b"=")
            if equals and name in encoded:
                ctypes.memset(begin + at + len(name) + 1, ord("x"), len(value))
            at += len(entry) + 1
