"""LangChain's own tests of chat models, for its client of OpenAI's API at the address OPENAI_BASE_URL: a file for
pytest."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class TestChatCompletions(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[ChatOpenAI]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "busy/tool-1+json", "api_key": "any", "max_retries": 0, "stream_usage": True}

    @property
    def model_override_value(self) -> str:
        return "fake/echo"

    @property
    def supports_json_mode(self) -> bool:
        return True


class TestResponses(TestChatCompletions):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "use_responses_api": True}
