"""Tools of other frameworks: what LangChain, pydantic-ai and the OpenAI Agents SDK declare is taken as it is."""

from __future__ import annotations

from typing import Final

from palaver.feature import Feature

# The last package is the OpenAI Agents SDK. Nothing of any framework is imported here.
FEATURE: Final = Feature(
    __name__,
    tool_classes={
        ("langchain_core", "BaseTool"): "langchain:facts_of",
        ("pydantic_ai", "Tool"): "pydantic_ai:facts_of",
        ("agents", "FunctionTool"): "openai_agents:facts_of",
    },
)
