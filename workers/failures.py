"""What follows from a step's failure: the verdict of its policy, and what it means for other steps."""

from __future__ import annotations

import logging

from palaver.errors import ErrorClass, Failure, classify
from palaver.leases import Lease
from palaver.retry import RetryPolicy
from palaver.verdicts import Continue, RetryAfter, ToolOutcome, Verdict
from workers.work import Work

log = logging.getLogger(__name__)


async def verdict_on(error: Exception, work: Work, policy: RetryPolicy) -> Verdict:
    """The verdict on what a step's function raised. A provider that asked for fewer requests cools down for all."""
    lease = work.lease
    failure = classify(error, source=work.source, provider=lease.agent.provider, model=lease.agent.model_name)
    if failure.error_class is ErrorClass.INTERNAL:
        log.exception("step %s/%s failed inside", lease.run_id, lease.step)
    return await work.runtime.limiter.apply(lease, _by_policy(failure, lease, policy))


def _by_policy(failure: Failure, lease: Lease, policy: RetryPolicy) -> Verdict:
    """What the policy says of a failure: the step's, with the run's own rules before it."""
    if lease.call is None and lease.agent.retry is not None:
        # The API has put the policy in the place of its name.
        policy = RetryPolicy.parse(lease.agent.retry).over(policy)
    judged = policy.decide(failure, lease.attempt, lease.elapsed)
    if isinstance(judged, RetryAfter):
        return judged
    if lease.call is not None:
        if failure.recoverable:
            return Continue(outcomes=(ToolOutcome.failed(lease.call, judged.failure),))
    elif lease.falls_back and policy.falls_back(failure):
        return RetryAfter(0.0, judged.failure, fallback=True)
    return judged
