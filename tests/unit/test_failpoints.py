"""Points at which a process fails when it is asked to."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palaver.errors import ConfigurationError
from palaver.processes.failpoints import POINTS, Failpoints
from tests.pages import ROOT
from tests.waiting import PATIENCE

CODE = """
from palaver.processes.failpoints import failpoint
for n in range(1, 9): print(n, flush=True); failpoint('step.claimed')
"""


def run(specs: str, ledger: Path) -> tuple[int, str]:
    """The exit code and the output of a process that passes one point eight times."""
    found = subprocess.run(
        [sys.executable, "-c", CODE],
        env={"PALAVER_FAILPOINTS": specs, "PALAVER_FAILPOINTS_LEDGER": str(ledger)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=PATIENCE,
    )
    return found.returncode, found.stdout


@pytest.mark.process
@pytest.mark.parametrize("action", ["kill", "kill-group"])
def test_a_process_dies_at_the_nth_pass(tmp_path: Path, action: str) -> None:
    code, output = run(f"step.claimed={action}@3", tmp_path / "ledger")
    assert (code, output.split()) == (-signal.SIGKILL, ["1", "2", "3"])
    assert (tmp_path / "ledger").read_text().startswith(f"step.claimed {action} ")


@pytest.mark.process
def test_chance_decides_at_each_pass(tmp_path: Path) -> None:
    assert run("step.claimed=kill%100", tmp_path / "ledger")[1].split() == ["1"]
    assert run("step.claimed=kill%0", tmp_path / "ledger")[0] == 0


@pytest.mark.process
@pytest.mark.parametrize("specs", ["", "step.settled=kill"])
def test_what_is_not_armed_does_nothing(tmp_path: Path, specs: str) -> None:
    assert run(specs, tmp_path / "ledger") == (0, "".join(f"{n}\n" for n in range(1, 9)))
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize("spec", ["step.claimd=kill", "step.claimed", "step.claimed=explode", "step.claimed=kill@x"])
def test_what_cannot_be_meant_is_refused(spec: str) -> None:
    with pytest.raises(ConfigurationError, match="no point=action"):
        Failpoints(spec, None)


@pytest.mark.process
def test_a_process_may_be_armed_anew(tmp_path: Path) -> None:
    code = (
        "from palaver.processes.failpoints import failpoint; failpoint('step.claimed')\n"
        f"failpoint.arm('step.settled=kill@2', {str(tmp_path / 'ledger')!r})\n"
        "for n in range(1, 9): failpoint('step.claimed'); print(n, flush=True); failpoint('step.settled')"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PALAVER_FAILPOINTS": "step.claimed=kill@2"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (found.returncode, found.stdout.split()) == (-signal.SIGKILL, ["1", "2"])
    assert (tmp_path / "ledger").read_text().startswith("step.settled kill ")


@pytest.mark.slow
def test_every_point_is_passed_somewhere() -> None:
    passed = set[str]()
    for part in ("palaver", "workers", "api", "features", "tests/process"):
        for path in (ROOT / part).rglob("*.py"):
            passed |= set(re.findall(r'\bfailpoint\("([a-z.]+)"\)', path.read_text()))
    assert passed == POINTS
