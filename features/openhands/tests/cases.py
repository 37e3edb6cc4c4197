"""The cases of OpenHands' dialect in tests of the core."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/openhands/api/conversations"
PROBES: Final = ("/openhands/health", "/openhands/alive", "/openhands/ready", "/openhands/server_info")
NO_PART: Final = {
    f"DELETE {PREFIX}/{{conversation}}": "it ends something",
    f"POST {PREFIX}/{{conversation}}/pause": "it ends something",
    f"POST {PREFIX}/{{conversation}}/interrupt": "it ends something",
    f"POST {PREFIX}/{{conversation}}/navigate": "it takes words away, and says none",
    f"POST {PREFIX}/{{conversation}}/condense": "the words of a summary are the model's",
    f"POST {PREFIX}/{{conversation}}/ask_agent": "it leaves no trace in the conversation, and its own run has no tools",
    f"POST {PREFIX}/{{conversation}}/generate_title": "its own run has no tools, and leaves no trace",
    f"PATCH {PREFIX}/{{conversation}}": "no model is told what it brings",
}
