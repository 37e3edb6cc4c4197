"""The cases of AG-UI's dialect in tests of the core."""

from __future__ import annotations

from typing import Final

STREAMS: Final = 2
PARAMETERS: Final = (("post /ag-ui/agents/{name}", "name", "support", "\u00f3"),)

NO_PART: Final = {"POST /ag-ui/threads/{thread_id}/cancel": "it ends something"}
