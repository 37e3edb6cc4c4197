"""Clients of OpenAI's API in Node.js: the AI SDK's providers of two generations, and OpenAI's own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.referees.packages import NodePackages

PACKAGES: Final = NodePackages("openai_node", Path(__file__).parent)


def install() -> None:
    """As the folder above says."""
    PACKAGES.install()
