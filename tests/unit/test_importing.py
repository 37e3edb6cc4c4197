"""Modules of tools in the main process of a worker: what their environment and their output are while they come."""

from __future__ import annotations

import io
import logging
import os
import ssl
import sys

import pytest

from palaver.config.settings import Settings, settings
from workers.children import environment
from workers.sources.importing import importing


def test_output_is_a_file_and_goes_where_output_goes_later(capfd: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("shop")
    before = sys.stdout
    with importing():
        for stream in (sys.stdout, sys.stderr):
            assert os.fstat(stream.fileno())
            assert not stream.isatty()
            assert stream.writable()
            assert stream.encoding.lower() == "utf-8"
        print("at once", flush=True)
        log.addHandler(logging.StreamHandler(sys.stdout))
    assert sys.stdout is before
    later, sys.stdout = sys.stdout, io.StringIO()
    try:
        log.warning("later")
        assert sys.stdout.getvalue() == "later\n"
    finally:
        sys.stdout = later
    log.warning("in the end")
    assert capfd.readouterr().out == "at once\nin the end\n"


def test_what_tools_may_not_see_is_away_while_their_modules_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_LEASE_SECONDS", "7")
    monkeypatch.setenv("PROVIDER_KEY", "secret")
    monkeypatch.delenv("SHOP_MADE", raising=False)
    settings.cache_clear()
    try:
        with environment.narrowed(Settings(), frozenset({"PROVIDER_KEY"})):
            assert "PALAVER_LEASE_SECONDS" not in os.environ
            assert "PROVIDER_KEY" not in os.environ
            assert settings().lease_seconds == 15.0
            os.environ["SHOP_MADE"] = os.environ["PROVIDER_KEY"] = "by a module"
        assert os.environ["PROVIDER_KEY"] == "secret"
        assert os.environ.pop("SHOP_MADE") == "by a module"
        assert settings().lease_seconds == 7.0
    finally:
        settings.cache_clear()


def test_the_authorities_that_a_worker_trusts_are_the_same_beside_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asks models, too, makes contexts of TLS when what tools must not see is away."""
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ca.pem")
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    try:
        with environment.narrowed(Settings(tool_env=("PATH",)), frozenset()):
            assert ssl.get_default_verify_paths().openssl_cafile_env == "SSL_CERT_FILE"
            assert os.environ["SSL_CERT_FILE"] == "/etc/ca.pem"
            assert "SHOP_TOKEN" not in os.environ
    finally:
        settings.cache_clear()
