"""Keys of the API that the store keeps: ``plv_<id>_<secret>_<checksum>``.

The id finds the key's record, where a digest of the secret is. The checksum tells a key from a typo, and from any other
text: without a look at the store, so that scanners of secrets know one, too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from typing import Final, Self

from palaver.late import dataclass

PREFIX: Final = "plv_"
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
"""Letters that are not taken for another, as in ids: five bits each."""
_ID: Final = 12
_SECRET: Final = 52
"""Letters of 256 bits."""
_CHECKSUM: Final = 7
"""Letters of 32 bits."""
_PATTERN: Final = re.compile(
    rf"(plv_([{_ALPHABET}]{{{_ID}}})_([{_ALPHABET}]{{{_SECRET}}}))_([{_ALPHABET}]{{{_CHECKSUM}}})"
)
_KEY_ID: Final = re.compile(rf"[{_ALPHABET}]{{{_ID}}}")


@dataclass(frozen=True, slots=True)
class KeyParts:
    """A key, taken apart."""

    id: str
    digest: str
    """SHA-256 of the secret, in hex. It has 256 bits of chance, so nothing slower is needed."""

    @classmethod
    def of(cls, key: str) -> Self | None:
        """Return the parts of a key; None if it is none, or has a wrong checksum."""
        match = _PATTERN.fullmatch(key)
        if match is None or _checksum(match[1]) != match[4]:
            return None
        return cls(match[2], hashlib.sha256(match[3].encode()).hexdigest())

    def opens(self, digest: str) -> bool:
        """Tell whether this is the key whose record has that ``digest``; that takes the same time for any."""
        return hmac.compare_digest(self.digest, digest)


def new_api_key() -> str:
    """Return a key that does not exist yet."""
    key = f"{PREFIX}{_letters(secrets.randbits(5 * _ID), _ID)}_{_letters(secrets.randbits(256), _SECRET)}"
    return f"{key}_{_checksum(key)}"


def is_key_id(text: str) -> bool:
    """Tell whether ``text`` may be the id of a key."""
    return _KEY_ID.fullmatch(text) is not None


def _checksum(key: str) -> str:
    return _letters(zlib.crc32(key.encode()), _CHECKSUM)


def _letters(number: int, count: int) -> str:
    return "".join(_ALPHABET[(number >> 5 * place) & 31] for place in reversed(range(count)))
