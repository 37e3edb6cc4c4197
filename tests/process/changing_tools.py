"""Tools whose signatures differ between two versions of a deployment (PALAVER_TOOLS of test_tool_versions.py)."""

from __future__ import annotations

import os

from palaver import tool

if os.environ.get("SHOP_VERSION") == "2":

    @tool
    def added(order: str, note: str) -> str:
        """Has a required argument more."""
        return f"{order} {note}"

    @tool
    def optional(order: str = "", note: str = "") -> str:
        """Has an optional argument more."""
        return f"{order} {note}"

    @tool
    def removed(order: str) -> str:
        """Has an argument less."""
        return order

    @tool
    def renamed(number: str) -> str:
        """Has an argument of another name."""
        return number

    @tool
    def retyped(order: list[str]) -> str:
        """Has an argument of another type."""
        return ", ".join(order)

else:

    @tool
    def added(order: str) -> str:
        """Has a required argument less."""
        return order

    @tool
    def optional(order: str = "") -> str:
        """Has an optional argument less."""
        return order

    @tool
    def removed(order: str, note: str) -> str:
        """Has an argument more."""
        return f"{order} {note}"

    @tool
    def renamed(order: str) -> str:
        """Has an argument of the name that it had."""
        return order

    @tool
    def retyped(order: str) -> str:
        """Has an argument of the type that it had."""
        return order
