"""A tool whose schema llama.cpp's grammars hold to the letter: they know no limits of numbers with fractions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaver import tool


@tool(idempotent=True)
def dim(on: bool, level: Annotated[int, Field(ge=0, le=9)]) -> str:
    """Switch a light."""
    return f"{'on' if on else 'off'}, {level}"
