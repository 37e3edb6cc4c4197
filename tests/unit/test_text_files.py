"""Files as Excel, PowerShell and editors of Windows write them: with a mark of their encoding, and other line ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from palaver.cli.options import json_object
from palaver.config.providers import load_providers
from palaver.config.secret_files import secret_of
from palaver.config.text_files import text_in
from palaver.errors import ConfigurationError
from tests.command_line import RUNS, CommandResult
from tests.scripted_api import ScriptedAPI, answer, run_object

PROVIDERS = '[providers.x]\r\nbase_url = "http://127.0.0.1:9/v1"\r\n'
written = pytest.mark.parametrize(
    "encode",
    [str.encode, lambda text: text.encode("utf-8-sig"), lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
     lambda text: b"\xfe\xff" + text.encode("utf-16-be")],
    ids=["plain", "UTF-8 with a mark", "UTF-16 of Windows", "UTF-16 of others"],
)  # fmt: skip
Encode = Callable[[str], bytes]


@written
def test_tables_keys_and_agents_are_read(encode: Encode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An old locale says nothing about what stands in files.
    monkeypatch.setenv("LC_ALL", "C")
    (table := tmp_path / "providers.toml").write_bytes(encode(PROVIDERS))
    assert load_providers(table)["x"].base_url == "http://127.0.0.1:9/v1"
    (key := tmp_path / "key").write_bytes(encode("a-key-0123456789\r\n"))
    monkeypatch.setenv("A_KEY_FILE", str(key))
    assert secret_of("A_KEY") == "a-key-0123456789"
    (agent := tmp_path / "agent.json").write_bytes(encode('{\r\n"instructions": "größe"}'))
    assert json_object("an agent is")(f"@{agent}") == {"instructions": "größe"}


@written
def test_so_is_standard_input(encode: Encode) -> None:
    with ScriptedAPI() as api:
        api.on("POST", RUNS, answer(run_object("queued"), 202))
        said = CommandResult(api, "run", "-", "--model", "fake/echo", "--detach", input=encode("größe\r\nzwei"))
        assert said.code == 0, said.err
        assert api.seen[-1].body["input"] == "größe\nzwei"


@pytest.mark.parametrize("data", [b"\xff\xfe\xff", b"gr\xf6\xdfe", b"\xff"])
def test_what_is_no_text_is_said(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnicodeDecodeError):
        text_in(data)
    (path := tmp_path / "file").write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"PALAVER_PROVIDERS: .*file is not TOML"):
        load_providers(path)
    with pytest.raises(typer.BadParameter, match="codec can't decode"):
        json_object("an agent is")(f"@{path}")
    with ScriptedAPI() as api:
        said = CommandResult(api, "run", "-", "--model", "fake/echo", input=data)
        assert (said.code, "standard input is no text" in said.err, api.seen) == (2, True, [])
