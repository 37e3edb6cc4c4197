"""The cases of offboarding in tests of the core."""

from __future__ import annotations

from typing import Final

UNGROUPED: Final = ("get /v1/tenants/{tenant}/export", "post /v1/tenants/{tenant}/erase")

NO_PART: Final = {"POST /v1/tenants/{tenant}/erase": "it is about no conversation"}
