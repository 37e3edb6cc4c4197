"""The cases of the AI SDK's dialect in tests of the core."""

from __future__ import annotations

from typing import Final

STREAMS: Final = 2
PARAMETERS: Final = (("get /ui/agents/{name}/chat/{chat_id}/stream", "name", "support@7", "a b"),)

NO_PART: Final = {"POST /ui/agents/{name}/chat/{chat_id}/stop": "it ends something"}
