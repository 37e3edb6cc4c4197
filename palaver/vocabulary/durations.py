"""How long something takes, or is ago."""

from __future__ import annotations

from typing import Annotated

Seconds = Annotated[float, "seconds"]
"""A time in seconds. Scripts count in milliseconds: the wire converts it (`palaver.store.scripting.contracts.wire`)."""
