"""The conversation that Palaver and the floors hold: 21 model calls with 20 calculator calls between them."""

from __future__ import annotations

from typing import Final

MODEL: Final = "tool-20"
CALLS: Final = 21
"""Of the model."""
TOOL: Final = "calculator"
INSTRUCTIONS: Final = "You are a careful assistant. Use the calculator for every sum."
INPUT: Final = "What do they all add up to?"
