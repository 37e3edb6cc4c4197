"""The cases of the AI SDK's dialect in tests of the core."""

from __future__ import annotations

from typing import Final

NO_PART: Final = {"POST /ui/agents/{name}/chat/{chat_id}/stop": "it ends something"}
