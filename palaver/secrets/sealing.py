"""Secrets of users at rest: sealed before Redis sees them, and opened where they are used (ADR 0052).

The keys are ``PALAVER_SECRET_KEY``: the first one seals, each of them opens, as palaver/secrets/ciphers.py does. One
key may seal 2^32 values before two nonces may be alike (NIST SP 800-38D, 8.3). A sealed text is bound to its place,
such as a conversation and a name: put elsewhere, it does not open.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from palaver.secrets.ciphers import Cipher

_KEY_BYTES: Final = 32
_LEAST_BYTES: Final = 16
"""Different bytes of a key. Of 32 random ones there are 30 on average, and 16 or fewer in one key of 10^13."""
_VERSION: Final = "1"
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")


class KeyMissing(Exception):
    """It was sealed with a key that this process does not have."""


class SealBroken(Exception):
    """The sealed text was changed, or belongs to another place."""


def key_of(text: str) -> bytes:
    """A key as it is written: 32 random bytes in base64, or in hex.

    Raises:
        ValueError: it is none; says what is wrong and never quotes it.
    """
    if _HEX.fullmatch(text):
        key = bytes.fromhex(text)
    else:
        try:
            key = _decoded(text.replace("+", "-").replace("/", "_"))
        except ValueError:
            key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError("is not 32 bytes in base64 or hex: make one with `openssl rand -base64 32`")
    if len(set(key)) <= _LEAST_BYTES:
        raise ValueError("is not random, so it can be guessed: make one with `openssl rand -base64 32`")
    return key


class Sealer:
    """Seals with the first of some keys, and opens with any of them. Without keys it does neither."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers = {_id_of(key): _cipher(key) for key in keys}
        self._newest = next(iter(self._ciphers), "")

    def __bool__(self) -> bool:
        """True if it has a key."""
        return bool(self._ciphers)

    def __repr__(self) -> str:
        return f"<Sealer with {len(self._ciphers)} keys>"

    def seal(self, text: str, *place: str) -> str:
        """``text`` as it may be stored, to be opened at ``place``.

        Raises:
            KeyMissing: there is no key.
        """
        if not self:
            raise KeyMissing
        sealed = self._ciphers[self._newest].seal(text.encode(), _bound(place))
        return ".".join((_VERSION, self._newest, base64.urlsafe_b64encode(sealed).decode()))

    def open(self, sealed: str, *place: str) -> str:
        """Decrypt a text that was sealed for ``place``.

        Raises:
            KeyMissing: with a key that is not among these.
            SealBroken: it was changed, or sealed for another place.
        """
        version, _, rest = sealed.partition(".")
        key_id, _, body = rest.partition(".")
        cipher = self._ciphers.get(key_id)
        if cipher is None or version != _VERSION:
            # A version that is not known is one of a newer process, which has what it takes.
            raise KeyMissing
        try:
            return cipher.open(_decoded(body), _bound(place)).decode()
        except ValueError:
            raise SealBroken from None

    def is_newest(self, sealed: str) -> bool:
        """Tell whether it was sealed with the first key, so that the others may go."""
        return sealed.startswith(f"{_VERSION}.{self._newest}.")


def _cipher(key: bytes) -> Cipher:
    # Not at the top: `cryptography` is 6 MB of each process, and most have no key.
    from palaver.secrets.ciphers import Cipher

    return Cipher(key)


def _id_of(key: bytes) -> str:
    return hashlib.sha256(b"palaver key\0" + key).hexdigest()[:8]


def _decoded(text: str) -> bytes:
    """Decode base64 as URLs have it. Raises ValueError for any other text."""
    return base64.b64decode(text, b"-_", validate=True)


def _bound(place: Sequence[str]) -> bytes:
    """Return bytes that tell places apart, whatever is in their names."""
    return json.dumps(place).encode()
