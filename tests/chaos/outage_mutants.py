"""Mutants of the circuit breaker: each breaks one promise of ADR 0009, and the test that is named must say so.

They are played against the contract of the store and the tests of workers, without processes: seconds for each."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import by_name, tested

_LUA: Final = "palaver/store/scripting/lua/"
_CONTRACT: Final = "tests/contract/test_provider_outages.py"
_LIMITER: Final = "tests/unit/test_provider_limiter.py"

MUTANTS: Final = by_name(
    tested(
        "an outage that opens with the first failure",
        _CONTRACT,
        f"{_LUA}_circuit.lua",
        "local FAILURES = 5",
        "local FAILURES = 1",
    ),
    tested(
        "an outage that never opens",
        _CONTRACT,
        f"{_LUA}report_failure.lua",
        "if not was_out and redis.call('ZCARD', STREAK) < NEEDED then",
        "if not was_out then",
    ),
    tested(
        "two probes at once",
        _CONTRACT,
        f"{_LUA}_ramp.lua",
        "math.max(UNTIL, gate.probing or 0)",
        "UNTIL",
    ),
    tested(
        "everybody probes",
        _CONTRACT,
        f"{_LUA}_breaker.lua",
        "  set_until((NOW - UNTIL < gate.every / 2 and UNTIL or NOW) + gate.every)\n",
        "",
    ),
    tested(
        "a probe whose place is not freed when its worker dies",
        _CONTRACT,
        f"{_LUA}_breaker.lua",
        "save_field('probing', NOW + lasts)",
        "save_field('probing', NOW + PATIENCE)",
    ),
    tested(
        "a probe that goes on and is not held",
        _CONTRACT,
        f"{_LUA}renew_places.lua",
        "if call == prober then",
        "if false then",
    ),
    tested(
        "a probe that was broken off and is not given back",
        _CONTRACT,
        f"{_LUA}release.lua",
        "local probed = end_probe(args.call)",
        "local probed = false",
    ),
    tested(
        "an outage that never closes",
        _CONTRACT,
        f"{_LUA}report_answer.lua",
        "if is_out() and redis",
        "if false and redis",
    ),
    tested(
        "an outage that an answer from before it closes",
        _CONTRACT,
        f"{_LUA}report_answer.lua",
        "note_answer(NOW - args.answered_ms)",
        "redis.call('DEL', STREAK)",
    ),
    tested(
        "waiters who are not woken",
        _CONTRACT,
        f"{_LUA}_circuit.lua",
        "save_field('woken', wake_sleepers(0))",
        "save_field('woken', 0)",
    ),
    tested(
        "a return without a ramp",
        _CONTRACT,
        f"{_LUA}_circuit.lua",
        "save_field('opens', NOW + RAMP)",
        "save_field('opens', NOW)",
    ),
    tested(
        "a return that is over for whoever is not among the first",
        _CONTRACT,
        f"{_LUA}_ramp.lua",
        "if gate.woken and not is_out() then",
        "if false then",
    ),
    tested(
        "an outage that was none and leaves a ramp behind",
        _CONTRACT,
        f"{_LUA}_circuit.lua",
        "if was_away then begin_ramp() else take_back() end",
        "begin_ramp()",
    ),
    tested(
        "a model that is out for all of its provider",
        _LIMITER,
        "workers/models/provider_limiter.py",
        "limit_keys.model if sign.of_model else limit_keys.provider",
        "limit_keys.provider",
    ),
    tested(
        "a crowd that waits for a model in the line of its provider",
        _LIMITER,
        "workers/models/provider_limiter.py",
        "not self.limits(provider) or",
        "True or",
    ),
    tested(
        "a request that fails again and again and opens it",
        _LIMITER,
        "workers/models/provider_limiter.py",
        "counts_as=call if of_request else",
        "counts_as=call if False else",
    ),
    tested(
        "a lone step that waits though others are answered",
        _LIMITER,
        f"{_LUA}_alone.lua",
        "return gate.answered and gate.answered > at",
        "return false and gate.answered",
    ),
    tested(
        "a worker that keeps to itself that it was answered",
        _LIMITER,
        "workers/models/provider_limiter.py",
        "if self._answered_at.get(news.limit_key, since) > since:",
        "if False:",
    ),
    tested(
        "a worker that does not hear of an outage",
        _LIMITER,
        "workers/models/provider_limiter.py",
        "            self._cooling_until[news.limit_key] = now + news.seconds\n",
        "            pass\n",
    ),
    tested(
        "patience that never ends",
        "tests/unit/test_retry.py",
        "palaver/steps/retry.py",
        "if waited >= patience:",
        "if False:",
    ),
    tested(
        "patience that does not hurry with another model at hand",
        "tests/unit/test_retry.py",
        "palaver/steps/retry.py",
        "(FALLBACK_AFTER if other_model else 1)",
        "1",
    ),
)
