"""LangChain's own tests of chat models, for its client of OpenAI's API at Palaver: chat completions and Responses."""

from __future__ import annotations

import os
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests


class AtPalaver(ChatModelIntegrationTests):
    """What both have."""

    responses = False

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": "fake/tool-1",
            "base_url": os.environ["PALAVER_OPENAI_URL"],
            "api_key": "any",
            "use_responses_api": self.responses,
            "stream_usage": True,
        }

    @property
    def supports_image_inputs(self) -> bool:
        return True

    @property
    def has_tool_choice(self) -> bool:
        return True


class TestChatCompletions(AtPalaver):
    """Its client of chat completions."""


class TestResponses(AtPalaver):
    """Its client of Responses."""

    responses = True


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
