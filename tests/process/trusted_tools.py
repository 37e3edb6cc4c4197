"""Tools that are given secrets of a conversation and tell them, in every way that a tool has."""

from __future__ import annotations

import base64
import logging
import os
import signal
import sys

from palaver import ToolContext, tool

NAME = "CANARY_TOKEN"
CANARY = "Canary/t1+token~of-a-conversation"
LATER = "canaryt2tokenthatcamelater"
SHORT = "4711-pin"


def _told(context: ToolContext) -> str:
    value = context.secret(NAME)
    return f"{value}, {value.upper()}, {base64.b64encode(f'me:{value}'.encode()).decode()}, {value.encode().hex()}"


@tool
def tells(context: ToolContext) -> str:
    """Answers with it, reports it, prints it and logs it."""
    told = _told(context)
    context.progress(f"halfway: {told}")
    print(told)
    sys.stderr.write(told + "\n")
    logging.getLogger("trusted").warning("%s", told)
    return f"the token has {len(context.secret(NAME))} characters: {told}"


@tool(inline=True)
def tells_inline(context: ToolContext) -> dict[str, str]:
    """Answers with it from within the model's worker."""
    logging.getLogger("trusted").warning("%s", _told(context))
    return {"told": _told(context), "pin": context.secrets["PIN"]}


@tool
def fails(context: ToolContext) -> str:
    """Raises it."""
    raise ValueError(_told(context))


@tool
def breaks(context: ToolContext) -> str:
    """Prints it and takes its process with it."""
    os.write(1, _told(context).encode())
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@tool
def asks_for_another(context: ToolContext) -> str:
    """Asks for what nobody has set."""
    return context.secret("NO_SUCH_SECRET")
