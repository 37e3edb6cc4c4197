"""Calls each tool of ``shop`` as a worker would: reads a list of calls as JSON, and writes what came of them."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from typing import Any

from palaver import ToolContext
from palaver.errors import ToolFailure
from palaver.tools import Tool, load_tools


async def _answer(tool: Tool, text: str) -> dict[str, Any]:
    try:
        result = tool.bind(tool.parse(text), ToolContext(call_id="call_7"))()
        return {"result": await result if inspect.isawaitable(result) else result}
    except ToolFailure as error:
        return {"error": type(error).__name__, "message": str(error)}


async def _main() -> None:
    tools = {each.name: each for each in load_tools(("tests.frameworks.shop",))}
    answers = [await _answer(tools[name], json.dumps(arguments)) for name, arguments in json.load(sys.stdin)]
    declared = {name: each.declaration.model_dump() | {"is_async": each.is_async} for name, each in tools.items()}
    json.dump({"declared": declared, "answers": answers}, sys.stdout)


asyncio.run(_main())
