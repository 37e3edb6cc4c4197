"""Keys of the fleet: what workers report, and what they share.

palaver:worker:<id> hash    what a worker reports        TTL: three heartbeats
palaver:workers    zset     workers by time of report    trimmed by age                        no TTL
palaver:worker-tools:<digest> string  declarations of a set of tools that workers have        TTL: an hour
palaver:worker-tools zset   digests of these sets, by time of report  trimmed by age           no TTL
palaver:worker-queues zset  queues that tools name or workers take from, besides those of step kinds, by time of
                            report  trimmed by age                                             no TTL
palaver:worker-providers zset  providers that workers can call, by time of report  trimmed by age   no TTL
{palaver:workers}:sweepers hash  those who share the shards of a store with many, each with a number that it increments
                            while it is there                                                  no TTL
{palaver:workers}:busy hash  for each of many shards a number that is incremented when something happens there; a hint
                                                                                               no TTL
{palaver:workers}:features hash  features that processes of this installation have, JSON by name   no TTL
{palaver:workers}:planning string  the rules that runs of schedules and batches are admitted by            no TTL
palaver:cancel:<worker>     pub/sub channel: runs that this worker must let go; that work was planned
"""

from __future__ import annotations

from typing import Final

WORKERS = "palaver:workers"
TOOL_SETS = "palaver:worker-tools"
WORKER_QUEUES = "palaver:worker-queues"
WORKER_PROVIDERS = "palaver:worker-providers"
SWEEPERS: Final = f"{{{WORKERS}}}:sweepers"
BUSY: Final = f"{{{WORKERS}}}:busy"
PLANNING_RULES: Final = f"{{{WORKERS}}}:planning"
FEATURES: Final = f"{{{WORKERS}}}:features"
PAUSE = "pause "
"""Before a run's id on a worker's channel: abort its model call, but keep the lease."""
PLANNED = "planned"
"""In the place of a run's id there: a schedule or a batch is to be looked at. Older workers know no run of this id."""


def worker(worker_id: str) -> str:
    """The report of a worker."""
    return f"palaver:worker:{worker_id}"


def tool_set(digest: str) -> str:
    """The declarations of a set of tools."""
    return f"{TOOL_SETS}:{digest}"


def cancel_channel(worker_id: str) -> str:
    """The channel on which a worker hears which runs to let go."""
    return f"palaver:cancel:{worker_id}"
