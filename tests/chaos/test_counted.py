"""README counts kills and mutants as they are."""

from __future__ import annotations

from palaver.processes.failpoints import POINTS
from tests.chaos.mutants import MUTANTS
from tests.chaos.test_aimed_kills import AIMS, APART
from tests.chaos.test_mutants import TESTED
from tests.pages import ROOT
from tests.process.test_random_kills import KILLS


def test_the_numbers_are_those_of_the_tests() -> None:
    aimed = sum(aim.ends for aim in (*AIMS, *APART))
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"kills workers and API {aimed + KILLS} times while runs go on, {aimed} times" in readme
    assert f"at one of {len(POINTS)} named points and {KILLS} times at random" in readme
    assert f"breaks Palaver in {len(MUTANTS)} ways" in readme
    assert f"and in {len(TESTED)} to see that its tests do" in readme
