"""What follows from a script's answer: deliveries go out, and every run whose turn has come starts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palaver.config.settings import Settings
from palaver.delivery.publishing import follow_up
from palaver.errors import CorruptRecord
from palaver.schemas.models import Message
from palaver.steps.leases import Delivery
from palaver.steps.stuck import Nudge
from palaver.steps.verdicts import Finish
from palaver.store import Store
from palaver.store.redis import keys
from palaver.store.steps.due_items import DueItem
from palaver.vocabulary.lifecycle import StopReason
from tests.contract.store_driver import StoreDriver
from tests.pages import syntax

TREE = Path(__file__).parents[2]


@pytest.fixture
def published() -> list[Delivery]:
    """What was sent to the workers."""
    return []


async def test_the_next_run_starts_and_its_delivery_goes_out(driver: StoreDriver, published: list[Delivery]) -> None:
    _, lease = await driver.begin()
    second = await driver.submit(conversation_id=lease.conversation_id)
    await follow_up(driver.store, published.extend, [await driver.finish(lease)])
    assert [(each.run_id, each.step) for each in published] == [(second.run_id, "1")]
    assert await driver.sweep(second.run_id, "start")
    assert (await driver.store.due.due())[0] == []


async def test_runs_that_end_as_they_start_stop_nobody_behind_them(
    redis: Any, settings: Settings, published: list[Delivery]
) -> None:
    driver = StoreDriver(Store(redis, settings.model_copy(update={"max_entries": 100})), redis)
    _, lease = await driver.begin()
    behind = [await driver.submit(conversation_id=lease.conversation_id) for _ in range(4)]
    fills_the_log = Finish(Message(role="assistant", content="bye"), StopReason.END_TURN, notes=(Nudge("so"),) * 97)
    await follow_up(driver.store, published.extend, [await driver.store.steps.settle(lease, fills_the_log)])
    runs = [await driver.get(each.run_id) for each in behind]
    assert {run.stop_reason for run in runs} == {StopReason.CONVERSATION_FULL}
    assert (await driver.store.due.due())[0] == []


async def test_several_conversations_go_on_at_once(driver: StoreDriver, published: list[Delivery]) -> None:
    leases = [(await driver.begin())[1] for _ in range(3)]
    behind = [await driver.submit(conversation_id=lease.conversation_id) for lease in leases]
    await follow_up(driver.store, published.extend, [await driver.finish(lease) for lease in leases])
    assert [each.run_id for each in published] == [each.run_id for each in behind]


async def test_what_a_sweep_cannot_do_to_one_run_keeps_it_from_no_other(driver: StoreDriver, redis: Any) -> None:
    broken, lost = (await driver.submit()).run_id, (await driver.submit()).run_id
    things = [DueItem(broken, "1"), DueItem(lost, "1")]
    await redis.rename(keys.steps(broken), f"{keys.steps(broken)}:aside")
    await redis.set(keys.steps(broken), "no hash")
    (found,) = await driver.store.due.sweep(things, unclaimed_after=-60)
    assert [each.run_id for each in found.deliveries] == [lost]
    with pytest.raises(CorruptRecord) as raised:
        await driver.store.due.sweep(things[:1], unclaimed_after=-60)
    assert "WRONGTYPE" in str(raised.value.__cause__)
    await redis.rename(f"{keys.steps(broken)}:aside", keys.steps(broken))


def _reads(folder: str) -> Iterator[str]:
    """The modules in which something of an answer is looked at that ``follow_up`` acts upon."""
    for path in sorted((TREE / folder).rglob("*.py")):
        place = str(path.relative_to(TREE))
        if not place.startswith("palaver/store/"):
            names = {node.attr for node in ast.walk(syntax(path)) if isinstance(node, ast.Attribute)}
            yield from (f"{place}: {name}" for name in names & {"deliveries", "next_run"})


@pytest.mark.slow
def test_nobody_else_picks_an_answer_to_pieces() -> None:
    found = [*_reads("palaver"), *_reads("workers"), *_reads("api")]
    # What a submit or a claim answers has deliveries, and no run whose turn has come. Those of webhooks are others.
    others = ("features/webhooks/commands.py", "palaver/cli/app.py")
    found = [each for each in found if not each.startswith(others)]
    use_cases = ("api/", "palaver/operations/")
    assert {each for each in found if not (each.startswith(use_cases) and each.endswith(": deliveries"))} == {
        "palaver/delivery/publishing.py: deliveries",
        "palaver/steps/leases.py: next_run",
        "workers/steps/outages.py: deliveries",
    }
