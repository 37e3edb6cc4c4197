"""Tokens of an issuer (OpenID Connect) in the place of keys (ADR 0019)."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(__name__, tokens="opening:tokens_of", checks="opening:findings_of", limits="limits:LIMITS")
