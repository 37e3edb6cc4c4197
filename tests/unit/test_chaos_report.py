"""The report of the chaos tests: several runs of the harness add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.report import main, record


def test_runs_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for seed, file in enumerate(files, 7):
        monkeypatch.setenv("PALAVER_CHAOS_REPORT", str(file))
        record("kills", seed=seed, counts={"kill": 100, "runs": 3}, seconds=[n * seed / 10 for n in range(1, 51)])
    record("mutants", seed=0, counts={"mutants": 1}, violations=2)
    main([*map(str, files), "--to", str(tmp_path / "report")])
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["lines"] == 3
    kills = report["tests"]["kills"]
    assert (kills["runs"], kills["counts"], kills["seeds"]) == (2, {"kill": 200, "runs": 6}, [7, 8])
    shown = (tmp_path / "report.md").read_text()
    assert "**2 violations.**" in shown
    assert "- *mutants*, 1 run, 2 violations: mutants 1\n" in shown
    assert "- *kills*, 2 runs: kill 200, runs 6\n" in shown
    # Of 100 values the nearest ranks are the 50th, 90th, 99th and 100th.
    expected = sorted(n * seed / 10 for n in range(1, 51) for seed in (7, 8))
    p50, p90, p99, most = (f"{expected[rank - 1]:.3f}" for rank in (50, 90, 99, 100))
    assert f"| kills | 100 | {p50} | {p90} | {p99} | {most} |" in shown


def test_cases_of_aimed_kills_are_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALAVER_CHAOS_REPORT", str(tmp_path / "one.jsonl"))
    for point, case in (("tool.done", "tool"), ("tool.done", "parallel"), ("step.claimed", "tool")):
        record(f"aimed kills: {point}-{case}", seed=1, counts={f"kills at {point}": 100, "runs completed": 1})
    main([str(tmp_path / "one.jsonl")])
    assert "- *aimed kills*, 3 runs: kills at 2 points 300, runs completed 3\n" in (tmp_path / "one.md").read_text()
    assert len(json.loads((tmp_path / "one.json").read_text())["tests"]) == 3


def test_without_a_file_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAVER_CHAOS_REPORT", raising=False)
    monkeypatch.chdir(tmp_path)
    record("kills", seed=1, counts={})
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_recorded_nothing_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(SystemExit, match="1"):
        main([str(tmp_path / "empty.jsonl")])
