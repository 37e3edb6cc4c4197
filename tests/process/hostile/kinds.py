"""All kinds of harm."""

from __future__ import annotations

from tests.process.hostile.echoes import ECHOES
from tests.process.hostile.said import CALLS, TEXT
from tests.process.hostile.sent import HTTP, STREAMS

KINDS = (*CALLS, *TEXT, *STREAMS, *HTTP, *ECHOES)
