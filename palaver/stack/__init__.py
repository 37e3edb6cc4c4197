"""The whole of Palaver on one machine, for `palaver up`, demos and tests."""

from __future__ import annotations

from palaver.stack.errors import StackError
from palaver.stack.ports import Ports
from palaver.stack.stack import Stack

__all__ = ["Ports", "Stack", "StackError"]
