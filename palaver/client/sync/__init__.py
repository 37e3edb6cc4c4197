# Generated from palaver/client/aio/__init__.py by `make twin`: change that file, not this one.
"""The blocking client, generated: `make twin` makes it from `palaver.client.sync`."""

from __future__ import annotations

from palaver.client.sync.client import Palaver

__all__ = ["Palaver"]
