"""The checkers are worth something: each mutant of the product is caught by those that are named, and the product
itself gets through the same scenarios. The mutants of the modules beside this one are noticed by their tests."""

from __future__ import annotations

import pytest

from tests.chaos.history_mutants import HISTORY_MUTANTS
from tests.chaos.mutants import MUTANTS, mutants_of_tests
from tests.chaos.mutation import Mutant, TestedMutant, by_name, play, unnoticed
from tests.chaos.report import record
from tests.chaos.scenarios import SCENARIOS
from tests.pages import ROOT

pytestmark = pytest.mark.process

QUICK = ("a lease of a tool that is no record of intent",)
TESTED = by_name(*mutants_of_tests())
QUICK_TESTED = ("two probes at once",)
"""Those that are played outside of `make chaos` as well."""


def named(*, quick: bool) -> list[str]:
    return [name for name in MUTANTS if (name in QUICK) is quick]


@pytest.mark.parametrize("mutant", [*MUTANTS.values(), *TESTED.values()], ids=lambda mutant: mutant.name)
def test_what_a_mutant_breaks_is_there(mutant: Mutant | TestedMutant) -> None:
    assert (ROOT / mutant.change.file).read_text().count(mutant.change.old) == 1


@pytest.mark.parametrize("name", named(quick=True))
def test_a_quick_mutant_is_caught(name: str) -> None:
    catch(name)


@pytest.mark.chaos
@pytest.mark.parametrize("name", named(quick=False))
def test_a_mutant_is_caught(name: str) -> None:
    catch(name)


@pytest.mark.parametrize("name", QUICK_TESTED)
def test_a_quick_mutant_is_noticed(name: str) -> None:
    notice(name)


@pytest.mark.chaos
@pytest.mark.parametrize("name", sorted(TESTED.keys() - {*QUICK_TESTED}))
def test_a_mutant_is_noticed(name: str) -> None:
    notice(name)


@pytest.mark.chaos
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_product_itself_gets_through(scenario: str) -> None:
    found = play(None, scenario)
    record("scenarios", seed=0, counts={"scenarios": 1}, violations=len(found))
    assert not found


def catch(name: str) -> None:
    """Play a mutant; all checkers that are named for it must fail."""
    mutant = MUTANTS[name]
    failed = {violation["checker"] for violation in play(mutant, mutant.scenario)}
    caught = mutant.caught_by <= failed
    record("mutants", seed=0, counts={"mutants": 1, "mutants caught": int(caught)})
    assert caught, f"{name}: {sorted(mutant.caught_by - failed)} did not fail, only {sorted(failed)}"
    assert name not in HISTORY_MUTANTS or failed == mutant.caught_by, f"{name}: others than the history tell, {failed}"


def notice(name: str) -> None:
    """Run the test that is named for a mutant; it must fail."""
    said = unnoticed(TESTED[name])
    record("mutants", seed=0, counts={"mutants": 1, "mutants caught": int(not said)})
    assert not said, f"{name}: {said}"
