"""Secrets of webhooks, as Standard Webhooks writes them: ``whsec_`` and 24 to 64 bytes in base64."""

from __future__ import annotations

import base64
import secrets
from typing import Final

_PREFIX: Final = "whsec_"
_BYTES: Final = range(24, 65)
_MADE: Final = 32


def new_secret() -> str:
    """A fresh one."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_MADE)).decode()


def signing_key(secret: str) -> bytes:
    """The bytes that a secret stands for.

    Raises:
        ValueError: it is none; says what is wrong and never quotes it.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_PREFIX) or len(key) not in _BYTES:
        raise ValueError(f"is not {_PREFIX} and 24 to 64 bytes in base64")
    return key
