"""Keys of providers.

Those of one share a hash tag, with the provider's name in it; all have a TTL: ten minutes after
what they say has lost its meaning. There are none for a provider without limits that neither failed nor asked to slow
down.

{palaver:provider:<name>}:gate     hash   its cool-down, and how far its rates are used
{palaver:provider:<name>}:calls    zset   calls in flight, by the time until which their place lasts
{palaver:provider:<name>}:waiting  zset   calls that wait, by the time that they were told
{palaver:provider:<name>}:places   hash   the place of each of them in the queue, and what it asks for
{palaver:provider:<name>}:line     zset   those that wait for the end of another call, in order
{palaver:provider:<name>}:queue    zset   all that wait and are not late, in order
{palaver:provider:<name>}:sums     hash   tokens that they ask for, summed up for 32 places at once
{palaver:provider:<name>}:turns    zset   owners whose last place in that order is ahead of it, by that place
{palaver:provider:<name>}:streak   zset   the last failures in a row that an outage shows itself by, by time
{palaver:provider:<name>}:outage   hash   while it is out: who probes it, and how it failed last
{palaver:provider:<name>}:models   zset   its models with a gate that has to be asked, by the time until which
{palaver:provider:<name>}:model:<model>:…   the same keys, but for `models`: the gate of a model that is out
palaver:providers           pub/sub channel: gates that have to be asked
"""

from __future__ import annotations

from typing import Final, NamedTuple

from palaver.store.redis.keys import Key

PROVIDERS = "palaver:providers"


class ProviderKeys(NamedTuple):
    """The keys of every script about one provider."""

    gate: Key
    calls: Key
    waiting: Key
    places: Key
    line: Key
    queue: Key
    sums: Key
    turns: Key
    streak: Key
    outage: Key
    models: Key
    """The provider's, also among the keys of a model, as the next."""
    cooldowns: Key


_OF_PROVIDER: Final = ("models", "cooldowns")


def of_gate(name: str) -> ProviderKeys:
    """Return the keys for a script about a gate: ``provider``, or ``provider/model``."""
    provider, _, model = name.partition("/")
    tag = f"{{palaver:provider:{provider}}}"
    place = f"{tag}:model:{model}" if model else tag
    return ProviderKeys(*(f"{tag if kind in _OF_PROVIDER else place}:{kind}" for kind in ProviderKeys._fields))
