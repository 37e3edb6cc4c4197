"""A program of an installed Palaver does not start where Python would find another one first: in a clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaver.config.exits import EX_CONFIG
from palaver.config.roles import require_server
from tests.pages import ROOT


def test_a_folder_with_another_palaver_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "palaver").mkdir()
    (tmp_path / "palaver" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as refused:
        require_server("palaver serve")
    assert refused.value.code == EX_CONFIG
    said = "palaver: palaver serve: this folder has another Palaver, which would start in part: start it elsewhere\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("folder", [ROOT, ROOT / "docs"], ids=["its own", "without one"])
def test_other_folders_are_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    require_server("palaver serve")
