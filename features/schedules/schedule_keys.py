"""Keys of schedules.

Schedules of all tenants share a hash tag; of the default tenant, ``<tag>`` is empty.

{palaver:schedules}:due    zset    ``<tag>/<name>``, by the time at which it next needs attention          no TTL
{palaver:schedules}:of:<tag> zset  the names of the schedules of a tenant                                  no TTL
{palaver:schedules}:schedule:<tag>:<name> hash  one of them (`lua/_schedule.lua`)    none while it is there
{palaver:schedules}:ticks:<tag>:<name> stream  its last ticks that are over          none while it is there
{palaver:schedules}:counts hash    ticks that are over, by what became of them                             no TTL
{palaver:schedules}:erasure:<tag> hash  what was erased of them: none is put any more                      TTL: a day
"""

from __future__ import annotations

from typing import Final

_SCHEDULES: Final = "{palaver:schedules}"
SCHEDULES_DUE: Final = f"{_SCHEDULES}:due"
SCHEDULES_COUNTS: Final = f"{_SCHEDULES}:counts"


def schedule(tenant: str, name: str) -> str:
    """A schedule of a tenant."""
    return f"{_SCHEDULES}:schedule:{tenant}:{name}"


def schedule_ticks(tenant: str, name: str) -> str:
    """The last ticks of a schedule."""
    return f"{_SCHEDULES}:ticks:{tenant}:{name}"


def schedules(tenant: str) -> str:
    """The names of a tenant's schedules."""
    return f"{_SCHEDULES}:of:{tenant}"


def schedules_erasure(tenant: str) -> str:
    """The counts of what was erased of a tenant's schedules."""
    return f"{_SCHEDULES}:erasure:{tenant}"
