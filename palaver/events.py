"""Kinds of events that both ends of a stream must know by name."""

from __future__ import annotations

from typing import Final

LAST: Final = "run.finished"
"""The last event of every run."""
REWOUND: Final = "stream.rewound"
"""Said to a watcher alone: the store has lost what it saw ``from`` … ``to``, and uses these numbers again."""
