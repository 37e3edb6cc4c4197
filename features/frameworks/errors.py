"""Errors by which tools of other frameworks speak to the model."""

from __future__ import annotations

from palaver.errors import ToolError


def for_the_model(error: Exception, said_by: str) -> Exception:
    """Return the error as it is, or as a `ToolError` if it is of the framework's class ``said_by``: that is what a tool
    there says to the model."""
    is_said = any(cls.__name__ == said_by for cls in type(error).__mro__)
    return ToolError(str(error)) if is_said else error
