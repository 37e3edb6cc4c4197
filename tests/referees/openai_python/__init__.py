"""llm-comply, and frameworks in Python with a client of OpenAI's API: LangChain with its own tests, LiteLLM,
openai-agents, pydantic-ai."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.referees.environments import PythonPackages

PACKAGES: Final = PythonPackages("openai_python", Path(__file__).parent)


def install() -> None:
    """As the folder above says."""
    PACKAGES.install()
