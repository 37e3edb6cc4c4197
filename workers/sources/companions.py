"""The processes that sources of tools started for themselves, such as servers that they talk to.

A child of a tools worker ends what a tool started once its call is over. These stay: their source ends them.
"""

from __future__ import annotations

from typing import Final

companions: Final[set[int]] = set()
"""Their process ids, of this process."""
