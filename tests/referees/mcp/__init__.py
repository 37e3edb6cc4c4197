"""The conformance suite of the Model Context Protocol, for our server and for our client."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.referees.packages import NodePackages

SUITE: Final = NodePackages("mcp", Path(__file__).parent)


def install() -> None:
    """As the folder above says."""
    SUITE.install()
