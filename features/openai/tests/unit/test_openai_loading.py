"""An API loads the routes of a dialect with the first request for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.pages import ROOT
from tests.waiting import PATIENCE

pytestmark = pytest.mark.process


def test_an_application_loads_the_routes_of_a_dialect_with_the_first_request_for_it() -> None:
    program = """
import asyncio, sys
import api.app
from features.openai import OPENAI

app = api.app.create_app()
served = [*app.router.routes]
asyncio.run(app.learn(OPENAI))
found = "ag_ui.running", "ai_sdk.chatting", "mcp_server.serving", "openai.responses", "openhands.conversations"
print(*(name for name in found if f"features.{name}" in sys.modules))
print({route.path.split("/")[1] for route in app.router.routes if route not in served})
"""
    environment = {**os.environ, "PALAVER_REDIS_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.splitlines() == ["openai.responses", "{'openai'}"], done.stderr
