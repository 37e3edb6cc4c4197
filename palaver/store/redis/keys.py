"""Keys of shards. The keys of a conversation and the indexes of its shard share one hash tag: ``{p00}``.

All other keys are in the modules beside this one whose names end with ``_keys``. In the broker of a Celery application
whose tasks are tools, which is mostly another Redis, there are those of `palaver.celery.reports`.

An id outside the tenant scope of the caller makes a key that nothing has (`palaver.store.redis.reach`). The lists with
``<owner>`` are there for the default tenant, without anything in its place; for each other tenant, as ``@<tag>:``; and
once for all of these together, as ``@:``.

{p00}:run:<id>     hash     the run                      TTL: retention after its end
{p00}:steps:<id>   hash     its open steps               gone when it ends
{p00}:feed:<id>    stream   what its watchers see        TTL: feed retention after its end
                            and the pub/sub channel of the same name
{p00}:conv:<id>    hash     the conversation             TTL: retention after its last run
{p00}:log:<id>     stream   its log                      TTL: as above
                            the pub/sub channel of the same name says that something happened to the conversation
{p00}:left:<id>    zset     the position up to which its watchers were told all of it when their process ended
                            TTL: as long as they may take to be back
{p00}:copy:<name>  hash     how far the log is copied that a fork is to begin with  TTL: ten minutes
{p00}:copied:<name> stream  these entries; they become the log of the fork    TTL: as above
{p00}:idem:<hash>  hash     an idempotency key           TTL: retention
{p00}:due          zset     when something needs attention: leases, retries, starts, ends      no TTL
{p00}:ready:<queue> zset    delivered and not yet claimed, by time of the delivery             no TTL
                            A queue is that of a kind of step, or one that tools name
{p00}:<owner>in_flight zset  steps that are delivered or leased, by what was charged for them in advance; a model
                            step by its run                                                    no TTL
{p00}:<owner>backlog:<queue> zset  steps that are ready and not delivered, in the order in which they will be  no TTL
{p00}:turns:<queue> zset    owners with a backlog, by virtual time                             no TTL
{p00}:capped:<queue> zset   those of them that are at their cap, by the same                   no TTL
{p00}:<owner>capped_in zset  the queues in which the owner is among these                      no TTL
{p00}:ahead:<queue> zset    owners without one whose virtual time is ahead of the queue's      no TTL
{p00}:undelivered:<queue> hash  the delivery that each step in a backlog will have              no TTL
{p00}:held_back:<queue> zset  the same steps, by since when                                     no TTL
{p00}:fair         hash     the virtual time of each queue, and what a step of each owner costs  no TTL
{p00}:lacking      zset     steps that wait for a worker that has what they need, behind that  no TTL
{p00}:<owner>runs  zset     runs by time of creation                                           no TTL
{p00}:<owner>runs:<status> zset  those that have this status, by the same                      no TTL
{p00}:<owner>convs zset     conversations by time of creation                                  no TTL
{p00}:<owner>convs:updated zset  the same by the time at which something last happened to them  no TTL
{p00}:convs:expiring zset   those without an unfinished run, by the time at which their retention is over
{p00}:ended        zset     runs that have ended, by the time at which their retention is over no TTL
                            sweepers take what is over out of this one and of the lists above
{p00}:waiting:<reason> zset  unfinished runs that wait for that, by since when                 no TTL
{p00}:pending:<type> zset  actions of that type that are pending, by since when                no TTL
{p00}:counts       hash     what was ever counted: a number for each series of a metric        no TTL
{p00}:<owner>usage:<day> hash  what calls of models used on that day, by agent, model and key    TTL: usage retention
                            there is none for all tenants together
{p00}:caps         hash     for each cap of a tenant, as <owner><cap>, what it is                no TTL
{p00}:meters       hash     of tenants with caps, how far they are used (`lua/_allowance.lua`)       no TTL
{p00}:held         zset     steps that wait for a cap of their tenant, by its owner and since when  no TTL
{p00}:<owner>passing zset   keys that are in no other list, without the hash tag, by when they are gone: those of
                            idempotency keys, copies and usage. The default tenant has none  TTL: as the last of them
{p00}:erased       zset     tags of tenants that are being erased, by since when; 0: all is gone  no TTL
{p00}:generation   string   a name for this store, given when it is empty; another one is another store    no TTL
{p00}:rewound      hash     the last time that a loss was noticed    TTL: a day
{p00}:promised     string   written before waiting for disk or replicas  TTL: a minute
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

from palaver.store.redis.reach import reach, reached
from palaver.vocabulary.ids import shard_of, tenant_of

Key = Annotated[str, "a key of Redis"]
Owner = Annotated[str, "part of a list's name"]
DEFAULT_TENANT: Final[Owner] = ""
OTHER_TENANTS: Final[Owner] = "@:"
"""The owner of the lists that have what all tenants but the default one have."""
ALL_TENANTS: Final[tuple[Owner, ...]] = (DEFAULT_TENANT, OTHER_TENANTS)
"""The owners of the lists that have all that there is."""


def run_prefix(shard: str) -> str:
    """The beginning of the keys of a shard's runs."""
    return f"{{p{shard}}}:run:"


def conversation_prefix(shard: str) -> str:
    """The beginning of the keys of a shard's conversations."""
    return f"{{p{shard}}}:conv:"


def shard_of_key(key: Key) -> str | None:
    """The shard that a key is of; None if it is of none."""
    return key[2:4] if key[4:5] == "}" else None


def within_shard(key: Key) -> str:
    """A key without its hash tag."""
    return key.partition(":")[2]


def run(run_id: str) -> str:
    """The run's hash."""
    return f"{{p{shard_of(run_id)}}}:run:{reached(run_id)}"


def steps(run_id: str) -> str:
    """The run's open steps."""
    return f"{{p{shard_of(run_id)}}}:steps:{reached(run_id)}"


def feed(run_id: str) -> str:
    """The run's feed, and the channel it is published on."""
    return f"{{p{shard_of(run_id)}}}:feed:{reached(run_id)}"


def conversation(conversation_id: str) -> str:
    """The conversation's hash."""
    return f"{{p{shard_of(conversation_id)}}}:conv:{reached(conversation_id)}"


def log(conversation_id: str) -> str:
    """The conversation's log."""
    return f"{{p{shard_of(conversation_id)}}}:log:{reached(conversation_id)}"


def left(conversation_id: str) -> str:
    """The position up to which watchers of the conversation had seen all of it when their process ended."""
    return f"{{p{shard_of(conversation_id)}}}:left:{reached(conversation_id)}"


def copy(shard: str, name: str) -> str:
    """The progress of the copy of a log that a fork is to begin with."""
    return f"{{p{shard}}}:copy:{name}"


def copied(shard: str, name: str) -> str:
    """Its entries."""
    return f"{{p{shard}}}:copied:{name}"


def idempotency(shard: str, digest: str) -> str:
    """The record of an idempotency key."""
    return f"{{p{shard}}}:idem:{digest}"


def promised(key: str) -> str:
    """The key beside ``key`` that is written before waiting for disk or replicas."""
    return f"{key.partition('}')[0]}}}:promised"


def due(shard: str) -> str:
    """The due index."""
    return f"{{p{shard}}}:due"


def lacking(shard: str) -> str:
    """Steps that wait for a worker that has what they need."""
    return f"{{p{shard}}}:lacking"


def ready(shard: str, queue: str) -> str:
    """Delivered and not yet claimed."""
    return f"{{p{shard}}}:ready:{queue}"


def in_flight(shard: str, of: Owner = DEFAULT_TENANT) -> str:
    """Steps of an owner that are delivered or leased."""
    return f"{{p{shard}}}:{of}in_flight"


def backlog(shard: str, queue: str, of: Owner = DEFAULT_TENANT) -> str:
    """Steps of an owner that are ready and not delivered."""
    return f"{{p{shard}}}:{of}backlog:{queue}"


def turns(shard: str, queue: str) -> str:
    """Owners with a backlog, by virtual time."""
    return f"{{p{shard}}}:turns:{queue}"


def capped(shard: str, queue: str) -> str:
    """Owners with a backlog that are at their cap, by virtual time."""
    return f"{{p{shard}}}:capped:{queue}"


def capped_in(shard: str, of: Owner = DEFAULT_TENANT) -> str:
    """The queues in which an owner is at its cap and has a backlog."""
    return f"{{p{shard}}}:{of}capped_in"


def ahead(shard: str, queue: str) -> str:
    """Owners without a backlog whose virtual time is ahead of the queue's."""
    return f"{{p{shard}}}:ahead:{queue}"


def fair(shard: str) -> str:
    """The virtual time of each queue, and the cost of a step of each owner."""
    return f"{{p{shard}}}:fair"


def undelivered(shard: str, queue: str) -> str:
    """The deliveries that steps in backlogs will have."""
    return f"{{p{shard}}}:undelivered:{queue}"


def held_back(shard: str, queue: str) -> str:
    """Steps in backlogs, by since when."""
    return f"{{p{shard}}}:held_back:{queue}"


def owner(tenant: str) -> Owner:
    """The owner of the lists of the tenant with this tag."""
    return f"@{tenant}:" if tenant else DEFAULT_TENANT


def owners_of(any_id: str) -> tuple[Owner, ...]:
    """The owners of the lists that the run or the conversation of this id is in."""
    tenant = tenant_of(any_id)
    return (owner(tenant), OTHER_TENANTS) if tenant else (DEFAULT_TENANT,)


def reached_owners() -> tuple[Owner, ...]:
    """The owners of the lists that, in the present context, have all that there is."""
    tenant, all_tenants = reach()
    return ALL_TENANTS if all_tenants else (owner(tenant),)


def runs(shard: str, status: str | None = None, of: Owner = DEFAULT_TENANT) -> str:
    """Runs by time of creation: all of them, or those that have ``status``."""
    return f"{{p{shard}}}:{of}runs" if status is None else f"{{p{shard}}}:{of}runs:{status}"


def conversations(shard: str, order: Literal["", ":updated"] = "", of: Owner = DEFAULT_TENANT) -> str:
    """Conversations by time of creation, or by when something last happened to them."""
    return f"{{p{shard}}}:{of}convs{order}"


def expiring(shard: str) -> str:
    """Conversations of all tenants, by when they expire."""
    return f"{{p{shard}}}:convs:expiring"


def ended(shard: str) -> str:
    """Runs that have ended, by the time at which their retention is over."""
    return f"{{p{shard}}}:ended"


def waiting(shard: str, reason: str) -> str:
    """Unfinished runs that wait for ``reason``, by since when."""
    return f"{{p{shard}}}:waiting:{reason}"


def pending(shard: str, action_type: str) -> str:
    """Actions of that type that are pending, by since when."""
    return f"{{p{shard}}}:pending:{action_type}"


def counts(shard: str) -> str:
    """The counts of everything that was ever counted."""
    return f"{{p{shard}}}:counts"


def usage(shard: str, day: int, tenant: str = "") -> str:
    """A tenant's ledger of a day, which is so many days after 1970-01-01."""
    return f"{{p{shard}}}:{owner(tenant)}usage:{day}"


def caps(shard: str) -> str:
    """The caps of all tenants."""
    return f"{{p{shard}}}:caps"


def meters(shard: str) -> str:
    """The use of the caps of tenants."""
    return f"{{p{shard}}}:meters"


def held(shard: str) -> str:
    """Steps that wait for a cap of their tenant."""
    return f"{{p{shard}}}:held"


def passing(shard: str, tenant: str) -> str:
    """Keys of a tenant that are in no other list, by when they are gone."""
    return f"{{p{shard}}}:{owner(tenant)}passing"


def erased(shard: str) -> str:
    """The tags of tenants that are erased, or are being."""
    return f"{{p{shard}}}:erased"


def generation() -> str:
    """The name of this store, in its first shard."""
    return "{p00}:generation"


def never_written() -> str:
    """A key that there never is, for a command that writes only if there is one."""
    return "{p00}:preflight"


def rewound() -> str:
    """The last loss that was noticed, in its first shard."""
    return "{p00}:rewound"


class RunKeys(NamedTuple):
    """The keys of every script about one run."""

    run: Key
    steps: Key
    conversation: Key
    log: Key
    feed: Key
    due: Key


def of_run(run_id: str, conversation_id: str) -> RunKeys:
    """Return the keys for a script about one run."""
    tag, run_id, conversation_id = f"{{p{run_id[4:6]}}}", reached(run_id), reached(conversation_id)
    return RunKeys(
        f"{tag}:run:{run_id}",
        f"{tag}:steps:{run_id}",
        f"{tag}:conv:{conversation_id}",
        f"{tag}:log:{conversation_id}",
        f"{tag}:feed:{run_id}",
        f"{tag}:due",
    )
