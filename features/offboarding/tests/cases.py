"""The cases of offboarding in tests of the core."""

from __future__ import annotations

from typing import Final

NO_PART: Final = {"POST /v1/tenants/{tenant}/erase": "it is about no conversation"}
