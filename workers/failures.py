"""The verdict on a step's failure, by its retry policy; a rate limit also affects other steps."""

from __future__ import annotations

import logging
from pathlib import Path
from traceback import extract_tb, format_list
from typing import Final

from palaver.errors import ErrorClass, Failure, ToolFailure, classify
from palaver.leases import Lease
from palaver.retry import RetryPolicy
from palaver.verdicts import Continue, RetryAfter, ToolOutcome, Verdict

from .work import Work

log = logging.getLogger("palaver.workers.failures")

_OURS: Final = Path(__file__).parent
_FRAMES: Final = 20
"""Of a traceback, the innermost."""


async def verdict_on(error: Exception, work: Work, policy: RetryPolicy) -> Verdict:
    """The verdict on an exception of a step's function. If the provider asked for fewer requests, all steps wait."""
    lease = work.lease
    if lease.call is not None:
        log_raised(error, lease.call.name, lease)
    failure = classify(error, source=work.source, provider=lease.agent.provider, model=lease.agent.model_name)
    if failure.error_class is ErrorClass.INTERNAL:
        log.exception("step %s/%s failed inside", lease.run_id, lease.step)
    return await work.runtime.limiter.apply(lease, _by_policy(failure, lease, policy))


def log_raised(error: Exception, tool: str, lease: Lease) -> None:
    """If a tool raised what it did not declare, log where; what the exception says may be content, so not that."""
    raised = error.__cause__
    if not isinstance(error, ToolFailure) or raised is None or isinstance(raised, ToolFailure):
        return
    # Above the tool's frames are our own.
    frames = [each for each in extract_tb(raised.__traceback__) if not Path(each.filename).is_relative_to(_OURS)]
    name, where = type(raised).__name__[:100], "".join(format_list(frames[-_FRAMES:]))
    log.warning(
        "tool %s raised %s in %s/%s, try %d:\n%s", tool, name, lease.run_id, lease.step, lease.try_number, where
    )


def _by_policy(failure: Failure, lease: Lease, policy: RetryPolicy) -> Verdict:
    """The verdict of the retry policy: the run's own rules first, then those of the step kind."""
    if lease.call is None and lease.agent.retry is not None:
        # The API has replaced the policy's name by the policy.
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
