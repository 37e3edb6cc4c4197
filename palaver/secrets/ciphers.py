"""The cipher of palaver/secrets/sealing.py: AES-256-GCM of ``cryptography``, a random nonce before the sealed bytes."""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12


class Cipher:
    """Seals and opens with one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._aes = AESGCM(key)

    def seal(self, plain: bytes, bound: bytes) -> bytes:
        """``plain``, sealed; with other bytes in the place of ``bound`` it does not open."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aes.encrypt(nonce, plain, bound)

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """Decrypt ``sealed``.

        Raises:
            ValueError: it was changed, or sealed with another key or other bytes in the place of ``bound``.
        """
        try:
            return self._aes.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except InvalidTag:
            raise ValueError("what was sealed was changed, or is for another place") from None
