"""Errors of the stack."""

from __future__ import annotations


class StackError(RuntimeError):
    """The stack, or one process of it, cannot run; the message says what to do or shows the process's log."""
