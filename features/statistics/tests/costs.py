"""What makes scripts of statistics dear."""

from __future__ import annotations

from typing import Final

from features.statistics import statistics_keys
from features.statistics.contract import FoldedTally, FoldJournal
from tests.contract.store_driver import StoreDriver
from tests.cost.case import Act, Case


async def _fold_journal(driver: StoreDriver, n: int) -> Act:
    await driver.submit("hello")
    entry, _ = (await driver.redis.xrange(statistics_keys.journal("00")))[0]
    fold = FoldJournal(
        journal=statistics_keys.journal("00"),
        first=entry.decode(),
        next=f"{entry.decode()}9",
        lasts=60,
        tallies=tuple(
            FoldedTally(statistics_keys.statistics("00", f"@{i:06}:"), "hour:1", b"1" * 600) for i in range(n)
        ),
    )
    return lambda: driver.store.scripts.run(fold)


SCRIPTS: Final = (Case("fold_journal", "tallies of a tenant each", _fold_journal, most=300 * 6),)
