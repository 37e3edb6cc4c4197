"""What the workers do for each kind of step in ``palaver/vocabulary/step_kinds.py``."""

from __future__ import annotations

from typing import Final

from palaver.steps.retry import MODEL_CALL, TOOL_CALL
from palaver.vocabulary.step_kinds import MODEL, TOOL

from .step import StepHandler
from .step_functions import call_model, call_tool

STEP_HANDLERS: Final = (
    StepHandler(MODEL, MODEL_CALL, call_model),
    StepHandler(TOOL, TOOL_CALL, call_tool),
)
"""A row for every kind."""
