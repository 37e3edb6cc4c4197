"""The checkers are worth something: each mutant of the product is caught by those that are named, and the product
itself gets through the same scenarios. Mutants of the circuit breaker, of the model protocols, of the death watch,
of what goes to the broker, of how deliveries are taken and Redis is asked, of what goes on in place, of the ledger
of usage, of queues that tools name, of the caps of tenants, of their turns and their erasure, of schedules and
batches, of the operator's policy, of tokens of an issuer, of chats, of tools that are declared elsewhere, of tools
on a loop, of what is tried again of them, of the rounds over shards, and of webhooks are caught by their tests."""

from __future__ import annotations

import pytest

from tests.chaos.batch_mutants import BATCH_MUTANTS
from tests.chaos.broker_mutants import BROKER_MUTANTS
from tests.chaos.cap_mutants import CAP_MUTANTS
from tests.chaos.chat_mutants import CHAT_MUTANTS
from tests.chaos.death_mutants import DEATH_MUTANTS
from tests.chaos.declaration_mutants import DECLARATION_MUTANTS
from tests.chaos.erasure_mutants import ERASURE_MUTANTS
from tests.chaos.family_mutants import FAMILY_MUTANTS
from tests.chaos.history_mutants import HISTORY_MUTANTS
from tests.chaos.in_place_mutants import IN_PLACE_MUTANTS
from tests.chaos.issuer_mutants import ISSUER_MUTANTS
from tests.chaos.ledger_mutants import LEDGER_MUTANTS
from tests.chaos.mutants import MUTANTS
from tests.chaos.mutation import Mutant, TestedMutant, by_name, play, unnoticed
from tests.chaos.outage_mutants import OUTAGE_MUTANTS
from tests.chaos.planned_mutants import PLANNED_MUTANTS
from tests.chaos.policy_mutants import POLICY_MUTANTS
from tests.chaos.protocol_mutants import PROTOCOL_MUTANTS
from tests.chaos.queue_mutants import QUEUE_MUTANTS
from tests.chaos.report import record
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.service_mutants import SERVICE_MUTANTS
from tests.chaos.shard_mutants import SHARD_MUTANTS
from tests.chaos.statistics_mutants import STATISTICS_MUTANTS
from tests.chaos.tool_mutants import TOOL_MUTANTS
from tests.chaos.turn_mutants import TURN_MUTANTS
from tests.chaos.webhook_mutants import WEBHOOK_MUTANTS
from tests.pages import ROOT

pytestmark = pytest.mark.process

QUICK = ("a lease of a tool that is no record of intent",)
KINDS = (
    BROKER_MUTANTS,
    DEATH_MUTANTS,
    BATCH_MUTANTS,
    CAP_MUTANTS,
    CHAT_MUTANTS,
    DECLARATION_MUTANTS,
    ERASURE_MUTANTS,
    FAMILY_MUTANTS,
    IN_PLACE_MUTANTS,
    ISSUER_MUTANTS,
    LEDGER_MUTANTS,
    STATISTICS_MUTANTS,
    OUTAGE_MUTANTS,
    PLANNED_MUTANTS,
    POLICY_MUTANTS,
    PROTOCOL_MUTANTS,
    QUEUE_MUTANTS,
    SERVICE_MUTANTS,
    SHARD_MUTANTS,
    TOOL_MUTANTS,
    TURN_MUTANTS,
    WEBHOOK_MUTANTS,
)
TESTED = by_name(*(mutant for kind in KINDS for mutant in kind.values()))
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
