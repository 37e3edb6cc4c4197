"""Palaver: agent conversations on Celery. This package is the language and the SDK; it needs no Celery and no web."""

from __future__ import annotations

from palaver.tools import RetryableToolError, ToolError, tool

__all__ = ["RetryableToolError", "ToolError", "tool"]
