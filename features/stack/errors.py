"""Errors of the stack."""

from __future__ import annotations

from palaver.config.exits import EX_CONFIG, EX_UNAVAILABLE


class StackError(RuntimeError):
    """The stack, or one process of it, cannot run; the message says what to do or shows the process's log."""

    status = EX_UNAVAILABLE
    """The exit code for it."""


class WrongSetting(StackError):
    """It will not run until something is changed."""

    status = EX_CONFIG
