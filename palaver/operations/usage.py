"""Usage: what models used on which day, by agent, model and key, added up as it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Final, Literal, assert_never, get_args

from palaver.errors import FieldError, Refused
from palaver.operations.backend import Backend, within_deadline
from palaver.schemas.fields import DataModel
from palaver.store.reading.records import NANODOLLARS
from palaver.store.reading.usage_ledger import Spender, today
from palaver.store.redis.reach import reach
from palaver.store.redis.single_flight import yielding
from palaver.vocabulary.ledger import COLUMNS
from palaver.vocabulary.limits import count_exceeded, limit_of

Group = Literal["day", "tenant", "agent", "model", "key"]
_A_MONTH: Final = timedelta(days=29)
GROUPS: Final[tuple[Group, ...]] = get_args(Group)


class UsedSum(DataModel):
    """A sum of usage."""

    model_calls: int
    input_tokens: int
    cached_tokens: int
    """Tokens of the input that were cached; they are among these."""
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    """Tokens of the output that models thought with; they are among these."""
    cost_usd: float
    """Without the calls whose price is unknown."""
    unpriced_calls: int


class UsageRow(UsedSum):
    """The usage of a day, an agent, a model or a key, or of several of these together."""

    day: date | None = None
    """In UTC. Null: not asked for."""
    tenant: str | None = None
    """Its name; `default` for the one that there is without any other. Null: not asked for."""
    agent: str | None = None
    """Null: not asked for, or an agent without a name. `other`, as with the next two: beyond the rows of a day."""
    model: str | None = None
    key: str | None = None
    """The name of the key that submitted the runs. Null: not asked for, or none with a name."""


class UsageReport(DataModel):
    """Usage, by what was asked for."""

    start: date
    end: date
    group_by: list[Group]
    data: list[UsageRow]
    """In the order of the days and names."""
    total: UsedSum


async def read_usage(backend: Backend, start: date | None, end: date | None, group_by: Sequence[Group]) -> UsageReport:
    """Return the usage of the days from ``start`` to ``end``, both included, in UTC; without them, of the 30 days up to
    today.

    Raises:
        Refused: there is no such span, or it is too long, or has too many rows.
        StoreUnavailable: the store took too long.
    """
    end = end or max(today(), start or date.min)
    start = start or max(end, date.min + _A_MONTH) - _A_MONTH
    if end < start:
        raise Refused.of_faults([FieldError("?end", "invalid_time", f"must not be before the start, {start}")])
    if (end - start).days >= limit_of("usage_days"):
        count_exceeded("usage_days")
        raise Refused.of_faults([FieldError("?end", "invalid_time", f"at most {limit_of('usage_days')} days at once")])
    sums: dict[tuple[date | str | None, ...], Counter[str]] = {}
    tenants = await _tenants(backend)
    if len(tenants) * ((end - start).days + 1) > limit_of("usage_ledgers"):
        count_exceeded("usage_ledgers")
        why = f"of {len(tenants)} tenants: ask for fewer, {limit_of('usage_ledgers')} ledgers of a day are read at once"
        raise Refused.of_faults([FieldError("?end", "invalid_time", why)])
    days = backend.store.usage.read(start, end, tenants)
    while (found := await within_deadline(anext(days, None))) is not None:
        day, used = found
        async for spender, numbers in yielding(used.items()):
            group = tuple(_part(part, day, spender, tenants) for part in group_by)
            sums.setdefault(group, Counter()).update(numbers)
        if len(sums) > limit_of("usage_answer"):
            count_exceeded("usage_answer")
            why = f"has more than {limit_of('usage_answer')} rows: ask for fewer days, or group by less"
            raise Refused("validation_error", faults=[FieldError("?group_by", "too_many_rows", why)])
    total = Counter[str]()
    for numbers in sums.values():
        total.update(numbers)
    in_order = sorted(sums.items(), key=lambda item: tuple(str(part or "") for part in item[0]))
    return UsageReport(
        start=start,
        end=end,
        group_by=[*group_by],
        data=[UsageRow(**_columns(numbers), **dict(zip(group_by, group, strict=True))) for group, numbers in in_order],
        total=UsedSum(**_columns(total)),
    )


async def _tenants(backend: Backend) -> Mapping[str, str]:
    """Return the names of the tenants that this is done for, by their tags: all of them for operators."""
    tenant, all_tenants = reach()
    if all_tenants:
        return {each.tag: each.name for each in await within_deadline(backend.store.tenants.list())}
    named = await within_deadline(backend.store.tenants.by_tag(tenant))
    return {tenant: tenant if named is None else named.name}


def _part(part: Group, day: date, spender: Spender, tenants: Mapping[str, str]) -> date | str | None:
    match part:
        case "day":
            return day
        case "tenant":
            return tenants[spender.tenant]
        case "agent":
            return spender.agent
        case "model":
            return spender.model
        case "key":
            return spender.key
        case _:
            assert_never(part)


def _columns(numbers: Counter[str]) -> dict[str, float]:
    return {name: numbers[name] for name in COLUMNS if name != "cost"} | {"cost_usd": numbers["cost"] / NANODOLLARS}
