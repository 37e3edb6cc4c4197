"""The deed as Python functions, in a child and on a loop, as a declared tool, and as one of another framework."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from palaver import ImagePart, Tool, ToolContext, tool
from palaver.errors import ToolError
from tests.process.deeds import LONGEST, PNG, SCHEMA, deed, deed_async

BRIEF: Final = 1.0
"""Seconds of a tool that is called ``…_brief``."""
_IMAGE: Final = ImagePart.of(PNG, "image/png")


def _secret(context: ToolContext) -> str:
    """The conversation's, if it has one."""
    with suppress(ToolError):
        return context.secret("TOKEN")
    return "none"


def python_deed(do: str, key: str, context: ToolContext) -> Any:
    """Do something."""
    if do == "tell":
        print(f"printed: {_secret(context)}")
    return deed(do, key, _secret(context), _IMAGE, context.progress)


async def loop_deed(do: str, key: str, context: ToolContext) -> Any:
    """Do something."""
    if do == "tell":
        print(f"printed: {_secret(context)}")
    return await deed_async(do, key, _secret(context), _IMAGE, context.progress)


def _declared(do: str, key: str, context: ToolContext) -> Any:
    return deed(do, key, _secret(context), _IMAGE, context.progress)


class BaseTool:
    """What a tool of LangChain is to us: a class of this name in that package, with these attributes."""

    __module__ = "langchain_core.tools.base"
    description = "Do something."
    tool_call_schema = SCHEMA
    return_direct = False
    coroutine = None

    def __init__(self, name: str) -> None:
        self.name = name

    def invoke(self, arguments: dict[str, Any]) -> Any:
        """Call it."""
        return deed(arguments["do"], arguments["key"], image=_IMAGE)


def _foreign(name: str) -> Any:
    return BaseTool(name)


python, python_brief = tool(timeout=LONGEST)(python_deed), tool(name="python_deed_brief", timeout=BRIEF)(python_deed)
python_again = tool(name="python_deed_again", idempotent=True, timeout=LONGEST)(python_deed)
loop = tool(queue="loop", timeout=LONGEST)(loop_deed)
loop_brief = tool(name="loop_deed_brief", timeout=BRIEF, queue="loop")(loop_deed)
loop_again = tool(name="loop_deed_again", idempotent=True, queue="loop", timeout=LONGEST)(loop_deed)
declared = Tool("declared_deed", "Do something.", SCHEMA, _declared, timeout=LONGEST)
declared_brief = Tool("declared_deed_brief", "Do something.", SCHEMA, _declared, timeout=BRIEF)
declared_again = Tool("declared_deed_again", "Do something.", SCHEMA, _declared, idempotent=True, timeout=LONGEST)
foreign = tool(timeout=LONGEST)(_foreign("foreign_deed"))
foreign_brief = tool(timeout=BRIEF)(_foreign("foreign_deed_brief"))
foreign_again = tool(idempotent=True, timeout=LONGEST)(_foreign("foreign_deed_again"))
