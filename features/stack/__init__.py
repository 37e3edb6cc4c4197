"""The whole of Palaver on one machine, for `palaver serve`, `palaver up`, demos and tests."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

FEATURE: Final = Feature(
    __name__,
    commands="commands:COMMANDS",
    variables=("PALAVER_REDIS_PORT", "PALAVER_MODEL_PORT", "PALAVER_DATA_DIR"),
)
