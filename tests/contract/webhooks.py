"""The invariants of webhooks, as far as they can be read off their keys, and what a receiver's part is in a test."""

from __future__ import annotations
