"""Secrets in files: `NAME_FILE` in place of `NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.config.providers import load_providers
from palaver.config.secret_files import secret_of
from palaver.config.settings import Settings, settings
from palaver.config.variables import unread
from palaver.errors import ConfigurationError
from palaver.secrets.redaction import redact
from workers.children.environment import hidden_keys

URL = "redis://:a-password-in-a-file@redis:6379/0"


@pytest.fixture(autouse=True)
def read_anew() -> Iterator[None]:
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PALAVER_REDIS_URL", raising=False)
    path = tmp_path / "redis_url"
    path.write_text(URL + "\n")
    monkeypatch.setenv("PALAVER_REDIS_URL_FILE", str(path))
    return path


def test_an_address_stands_in_a_file(file: Path) -> None:
    assert settings().store_url == URL
    assert "a-password-in-a-file" not in redact(f"said {URL}")


def test_keys_of_the_api_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_text("ann=0123456789abcdef,bob=fedcba9876543210\n")
    monkeypatch.setenv("PALAVER_API_KEYS_FILE", str(path))
    assert [key.name for key in Settings().api_keys] == ["ann", "bob"]


def test_a_wrong_value_in_a_file_is_named_and_not_shown(file: Path) -> None:
    file.write_text("sqs://:s3cret@host")
    with pytest.raises(ConfigurationError, match="PALAVER_REDIS_URL: ") as refused:
        settings()
    assert "s3cret" not in str(refused.value)


def test_both_are_too_many(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_REDIS_URL", URL)
    with pytest.raises(ConfigurationError, match="PALAVER_REDIS_URL and PALAVER_REDIS_URL_FILE are both set"):
        settings()


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot read .*: No such file"), (b"\xff\xfe\xff", "is not text"), (b"x" * 70_000, "longer than 64 KiB")],
)
def test_a_file_that_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, said: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("A_KEY_FILE", str(path))
    with pytest.raises(ConfigurationError, match=f"A_KEY_FILE: .*{said}"):
        secret_of("A_KEY")


def test_a_secret_in_the_place_of_a_path_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY_FILE", "sk-0123456789abcdef")
    with pytest.raises(ConfigurationError, match="A_KEY_FILE names no absolute path") as refused:
        secret_of("A_KEY")
    assert "sk-" not in str(refused.value)


def test_the_file_of_a_secret_is_a_variable_that_somebody_reads_and_that_of_a_plain_setting_is_none() -> None:
    assert unread({"PALAVER_API_KEYS_FILE": "/run/secrets/api_keys"}) == []
    assert unread({"PALAVER_RETENTION_FILE": "/run/secrets/retention"})


def test_an_empty_file_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("\n")
    monkeypatch.setenv("A_KEY_FILE", str(path))
    assert secret_of("A_KEY") is None


def test_a_providers_key_stands_in_a_file_and_its_name_is_hidden_from_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, key = tmp_path / "providers.toml", tmp_path / "key"
    table.write_text('[providers.x]\nbase_url = "http://127.0.0.1/v1"\napi_key_env = "X_KEY"\n')
    key.write_text("sk-0123456789abcdef0123\n")
    monkeypatch.setenv("X_KEY_FILE", str(key))
    assert load_providers(table)["x"].api_key == "sk-0123456789abcdef0123"
    assert "sk-0123" not in redact("it said sk-0123456789abcdef0123")
    assert hidden_keys(Settings(providers=table)) == {"X_KEY", "X_KEY_FILE"}


def test_a_providers_key_is_read_once_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, key = tmp_path / "providers.toml", tmp_path / "key"
    table.write_text('[providers.x]\nbase_url = "http://127.0.0.1/v1"\napi_key_env = "X_KEY"\n')
    key.write_text("sk-of-the-start-0123")
    monkeypatch.setenv("X_KEY_FILE", str(key))
    provider = load_providers(table)["x"]
    key.write_text("sk-that-nobody-hides")
    assert provider.api_key == "sk-of-the-start-0123"
    key.unlink()
    assert (provider.api_key, provider.has_key) == ("sk-of-the-start-0123", True)
