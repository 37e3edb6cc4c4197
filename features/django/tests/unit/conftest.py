"""A project with a Redis of its own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from secrets import token_bytes

import pytest

from features.django.tests import project
from features.stack.redis_server import RedisServer
from palaver.config.settings import settings


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.fixture
def shop(redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The project, with its tables and its Palaver, which ends with the test."""
    from palaver.contrib.django import asking

    monkeypatch.setenv("PALAVER_REDIS_URL", redis_url)
    monkeypatch.setenv("PALAVER_SECRET_KEY", base64.b64encode(token_bytes(32)).decode())
    (tmp_path / "providers.toml").write_text('[providers.fake]\nbase_url = "http://127.0.0.1:1/v1"\n')
    monkeypatch.setenv("PALAVER_PROVIDERS", str(tmp_path / "providers.toml"))
    # That of the project would stay in the environment.
    monkeypatch.setenv("PALAVER_TOOLS", "palaver.contrib.django.tools")
    settings.cache_clear()
    project.make_tables()
    yield
    asking.end()
    settings.cache_clear()
