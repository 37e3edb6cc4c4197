"""Tools that tell what they must not, in every way that a tool has (PALAVER_TOOLS of test_secrets.py)."""

from __future__ import annotations

import base64
import ctypes
import logging
import sys

from palaver import tool

SECRETS = {
    "key of a provider": "sk-Canary/a1+provider7f3e9d2c4b",
    "key of another provider": "canaryb2providerplain4d5e6f7a8b",
    "key of the API": "Canary-c3-api-key-9a8b7c6d5e4f",
    "password of Redis": "Canary.d4-redis!pass~word-1f2e3d",
    "password of Flower": "Canary-e5-flower-0b1c2d3e4f",
}
"""What the processes of the stack are to keep secret; Flower's password only Flower knows."""
KNOWN = tuple(value for name, value in SECRETS.items() if "Flower" not in name)
TOLD = f"{' and '.join(KNOWN)}, or {base64.b64encode(f'me:{KNOWN[0]}'.encode()).decode()}"
RESULT = "canary-f6-of-a-result"
RAISED = "canary-g7-of-an-exception"
ARGUMENT = "canary-h8-of-an-argument"
PRINTED = "canary-i9-that-is-printed"


@tool
def answers() -> str:
    """Answers with them."""
    return f"{RESULT}: {TOLD}"


@tool(inline=True)
def answers_inline() -> dict[str, str]:
    """Answers with them from within the model's worker."""
    return {RESULT: TOLD}


@tool
def raises(text: str = "") -> str:
    """Raises them."""
    raise ValueError(f"{RAISED}: {TOLD}")


@tool(inline=True)
def raises_inline() -> str:
    """Raises them in the model's worker."""
    raise ValueError(f"{RAISED}: {TOLD}")


@tool
def declares(text: str = TOLD) -> str:
    """Has them in what its worker tells of it."""
    return text


@tool
def prints() -> str:
    """Prints and logs them."""
    print(f"{PRINTED}: {TOLD}")
    print(TOLD, file=sys.stderr, flush=True)
    logging.getLogger("somebody.elses").error("with %s", TOLD)
    return "done"


@tool
def crashes() -> str:
    """Ends its process with them in its memory."""
    told = TOLD
    return str(ctypes.string_at(0)) + told
