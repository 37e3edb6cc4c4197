"""The first section of docs/how-to/django.md, followed in an empty folder: from `startproject` to a chat with a tool
over the ORM, which is there after a restart. What it has written is what the page shows, and not much."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from features.fake_provider.server import FakeProvider
from features.stack.child import ChildCommand
from features.stack.ports import free_port
from features.stack.readiness import answers_ok
from features.stack.redis_server import RedisServer
from tests.pages import ROOT
from tests.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.process, pytest.mark.long]

FILES: Final = (
    ("shop/settings.py", "python"),
    ("providers.toml", "toml"),
    ("desk/agent_tools.py", "python"),
    ("shop/asgi.py", "python"),
    ("shop/urls.py", "python"),
    ("desk/templates/chat.html", "html"),
)
"""The files of the page, in its order, each with the language of its block."""
MOST: Final = 40
"""Lines of one's own."""


def blocks() -> dict[str, str]:
    """What the page has a reader write, by file."""
    page = (ROOT / "docs" / "how-to" / "django.md").read_text().partition("\n## Settings and commands")[0]
    found = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    written = [(language, text) for language, text in found if language != "sh"]
    assert [language for language, _ in written] == [language for _, language in FILES]
    return {name: text for (name, _), (_, text) in zip(FILES, written, strict=True)}


class Shop:
    """The project, in a folder."""

    def __init__(self, folder: Path, redis: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PALAVER_", "DJANGO_"))}
        self.environment = {**kept, "PALAVER_REDIS_URL": redis, "OPENAI_API_KEY": "of-a-test-0123456789"}

    def run(self, *words: str, **more: str) -> None:
        """Run a program of Python there."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr

    @contextmanager
    def running(self) -> Iterator[None]:
        """The processes of the page."""
        manage = str(self.folder / "manage.py")
        place = ("--app-dir", str(self.folder), "--port", str(self.port))
        server = ("-m", "uvicorn", "shop.asgi:application", *place)
        with ExitStack() as more:
            for name, words in (
                ("worker", (manage, "palaver", "worker")),
                ("tools", (manage, "palaver", "tools")),
                ("server", server),
            ):
                child = ChildCommand(
                    f"{name}-1",
                    (sys.executable, *words),
                    environment=self.environment,
                    log_path=self.folder / f"{name}.log",
                    ready=lambda child: "ready." in child.output or answers_ok(f"{self.url}/agents/readyz"),
                )
                more.callback(child.reap, time.monotonic() + PATIENCE)
                more.callback(child.terminate)
                child.start()
                child.wait_until_ready(time.monotonic() + PATIENCE)
            yield

    @contextmanager
    def admin(self) -> Iterator[httpx.Client]:
        """A browser that has logged in, as the page says."""
        with httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False, follow_redirects=True) as browser:
            browser.get("/admin/login/")
            form = {"username": "root", "password": "of a test", "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
            assert "Log out" in browser.post("/admin/login/?next=/admin/", data=form).text
            yield browser


def test_a_chat_with_a_tool_over_the_orm(tmp_path: Path) -> None:
    written = blocks()
    assert sum(len([line for line in text.splitlines() if line.strip()]) for text in written.values()) <= MOST
    with RedisServer() as redis, FakeProvider.running() as provider:
        shop = Shop(tmp_path, redis.url)
        shop.run("-m", "django", "startproject", "shop", ".")
        shop.run("manage.py", "startapp", "desk")
        (tmp_path / "desk" / "templates").mkdir()
        written["providers.toml"] = written["providers.toml"].replace("https://api.openai.com/v1", f"{provider.url}/v1")
        for name, text in written.items():
            with (tmp_path / name).open("a") as file:
                file.write(f"\n{text}")
        shop.run("manage.py", "migrate", "-v0")
        shop.run("manage.py", "createsuperuser", "--noinput", **_SUPERUSER)
        shop.run("manage.py", "check", "--deploy", "--tag", "palaver")
        agent = {"model": "openai/tool-1", "tools": ["count_users"]}
        with shop.running(), shop.admin() as browser:
            assert "EventSource" in browser.get("/").text
            tools = "/agents/v1/tools"
            eventually(lambda: "count_users" in browser.get(tools).text, why="the worker has told of it")
            taken = browser.post("/agents/v1/runs", json={"agent": agent, "input": "How many users are there?"})
            run = taken.json()
            assert taken.status_code == 202, taken.text
            eventually(lambda: browser.get(run["links"]["self"]).json()["status"] == "completed")
            assert run["id"] in browser.get("/admin/palaver/listedrun/").text
        with shop.running(), shop.admin() as browser:
            messages = browser.get(f"/agents/v1/conversations/{run['conversation_id']}/messages").json()["data"]
            results = [each["content"] for each in messages if each["role"] == "tool"]
            assert results == ["1"]


_SUPERUSER: Final = {
    "DJANGO_SUPERUSER_USERNAME": "root",
    "DJANGO_SUPERUSER_PASSWORD": "of a test",
    "DJANGO_SUPERUSER_EMAIL": "root@example.org",
}
