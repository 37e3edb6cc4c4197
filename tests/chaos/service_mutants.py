"""Mutants of the retries of tools and of the limits of what they call: each breaks one promise of ADR 0105, and the
test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import by_name, tested

_FINDINGS: Final = "tests/unit/test_tool_findings.py"
_POLICY: Final = "tests/unit/test_tool_retry.py"
_CONTRACT: Final = "tests/contract/test_tool_retry.py"

MUTANTS: Final = by_name(
    tested(
        "a tool that says nothing and is asked again",
        _POLICY,
        "palaver/steps/tool_retry.py",
        "        return self.own is not None or self.idempotent\n",
        "        return True\n",
    ),
    tested(
        "a policy that sends again what may have been taken",
        _POLICY,
        "palaver/steps/tool_retry.py",
        '        return f"{error_class} of SERVICE_CALL: idempotent" if self.idempotent else None\n',
        '        return f"{error_class} of SERVICE_CALL: idempotent"\n',
    ),
    tested(
        "a second try of the tool's own that hides the first",
        _FINDINGS,
        "palaver/errors/services.py",
        "        return chain[0] in above and all(map(_says_unsent, decided))\n",
        "        return chain[0] in above and _says_unsent(decided[0])\n",
    ),
    tested(
        "an unknown library that is believed to have sent nothing",
        _FINDINGS,
        "palaver/errors/services.py",
        "        return chain[0] in above and all(map(_says_unsent, decided))\n",
        "        return all(map(_says_unsent, decided))\n",
    ),
    tested(
        "a refusal behind a redirect that counts as the only request",
        _FINDINGS,
        "palaver/errors/tool_findings.py",
        "status in _NOT_TAKEN and not redirected",
        "status in _NOT_TAKEN",
    ),
    tested(
        "an outage that sends again what may have been taken",
        _CONTRACT,
        "workers/steps/service_permit.py",
        "            if outage is not None and verdict.failure.retryable:\n",
        "            if outage is not None:\n",
    ),
    tested(
        "a call that met an outage and says it never began",
        _CONTRACT,
        "palaver/store/scripting/lua/postpone.lua",
        "if not args.begun then untried(step) end",
        "untried(step)",
    ),
    tested(
        "a service that asks one worker to wait and no other",
        _CONTRACT,
        "workers/steps/service_permit.py",
        "            return await self._limiter.leave_alone(self._lease, self._key, failure.retry_after, verdict)\n",
        "            return verdict\n",
    ),
    tested(
        "a service that has the limits of a provider of its name",
        _CONTRACT,
        "palaver/tools/service.py",
        '_GATE: Final = "tool:"',
        '_GATE: Final = ""',
    ),
    tested(
        "a customer's words for all that wait",
        _CONTRACT,
        "workers/steps/service_permit.py",
        "_for_all(failure), self._probes",
        "failure, self._probes",
    ),
)
