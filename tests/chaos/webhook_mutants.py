"""Mutants of webhooks: each breaks one promise of ADR 0118, and the test that is named must say so.

    python -m tests.chaos.webhook_mutants [NAME …]

Seconds for each.
"""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name, play_named

_OWN: Final = "features/webhooks/"
_CONTRACT: Final = "features/webhooks/tests/contract/test_webhooks.py"
_SENDING: Final = "features/webhooks/tests/unit/test_webhook_sending.py"


def _mutant(name: str, test: str, file: str, old: str, new: str) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


WEBHOOK_MUTANTS: Final = by_name(
    _mutant(
        "an outbox for who has no webhook",
        _CONTRACT,
        f"{_OWN}lua/_mark_run.lua",
        "not args.parent and caps('webhooks') then",
        "not args.parent then",
    ),
    _mutant(
        "events that leave the outbox before they are queued",
        _CONTRACT,
        f"{_OWN}deliveries.py",
        "        webhooks = await self._webhooks.configs(tenant)\n",
        "        webhooks = await self._webhooks.configs(tenant)\n"
        "        await self._redis.xdel(outbox, *([each for each, _ in entries] or [b'0-1']))\n",
    ),
    _mutant(
        "a delivery that is queued a second time",
        _CONTRACT,
        f"{_OWN}lua/queue_deliveries.lua",
        "  if known == args.again and",
        "  if (known == args.again or not args.again) and",
    ),
    _mutant(
        "two attempts at once",
        _CONTRACT,
        f"{_OWN}lua/claim_delivery.lua",
        "math.max(tonumber(kept[4] or 0), tonumber(kept[5] or 0))",
        "tonumber(kept[5] or 0)",
    ),
    _mutant(
        "whoever lost its lease and says what became of the attempt",
        _CONTRACT,
        f"{_OWN}lua/settle_attempt.lua",
        "if tonumber(kept[1] or 0) ~= args.fence or not kept[2] then",
        "if not kept[2] then",
    ),
    _mutant(
        "an old secret that signs no more",
        _CONTRACT,
        f"{_OWN}webhook_config.py",
        "return tuple(reversed(alive))",
        "return tuple(reversed(alive))[:1]",
    ),
    _mutant(
        "a redirect that is a success",
        _SENDING,
        f"{_OWN}outcomes.py",
        "answer.error is None and 200 <= status < 300",
        "200 <= status < 400",
    ),
)


if __name__ == "__main__":
    play_named(WEBHOOK_MUTANTS)
