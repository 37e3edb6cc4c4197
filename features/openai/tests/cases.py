"""The cases of OpenAI's dialect in tests of the core."""

from __future__ import annotations

from typing import Final

STREAMS: Final = 3
PARAMETERS: Final = (("get /openai/v1/responses/{response_id}", "starting_after", 0, -1),)

NO_PART: Final = {
    "DELETE /openai/v1/conversations/{conversation_id}": "it ends something",
    "DELETE /openai/v1/responses/{response_id}": "it ends something",
    "POST /openai/v1/responses/{response_id}/cancel": "it ends something",
    "POST /openai/v1/conversations/{conversation_id}": "no model is told what it brings",
}
