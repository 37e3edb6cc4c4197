"""What the workers do for each kind of step in ``palaver/kinds.py``."""

from __future__ import annotations

from typing import Final

from palaver.kinds import MODEL, TOOL
from palaver.retry import MODEL_CALL, TOOL_CALL
from workers.step import StepKind
from workers.steps import call_model, call_tool

STEP_KINDS: Final = (
    StepKind(MODEL, MODEL_CALL, call_model),
    StepKind(TOOL, TOOL_CALL, call_tool),
)
"""A row for every kind."""
