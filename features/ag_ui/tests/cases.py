"""The cases of AG-UI's dialect in tests of the core."""

from __future__ import annotations

from typing import Final

NO_PART: Final = {"POST /ag-ui/threads/{thread_id}/cancel": "it ends something"}
