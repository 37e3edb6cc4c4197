"""Mutants of webhooks: each breaks one promise of ADR 0118, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import by_name, tested

_OWN: Final = "features/webhooks/"
_CONTRACT: Final = "features/webhooks/tests/contract/test_webhooks.py"
_SENDING: Final = "features/webhooks/tests/unit/test_webhook_sending.py"

MUTANTS: Final = by_name(
    tested(
        "an outbox for who has no webhook",
        _CONTRACT,
        f"{_OWN}lua/_mark_run.lua",
        "not args.parent and caps('webhooks') then",
        "not args.parent then",
    ),
    tested(
        "events that leave the outbox before they are queued",
        _CONTRACT,
        f"{_OWN}deliveries.py",
        "        webhooks = await self._webhooks.configs(tenant)\n",
        "        webhooks = await self._webhooks.configs(tenant)\n"
        "        await self._redis.xdel(outbox, *([each for each, _ in entries] or [b'0-1']))\n",
    ),
    tested(
        "a delivery that is queued a second time",
        _CONTRACT,
        f"{_OWN}lua/queue_deliveries.lua",
        "  if known == args.again and",
        "  if (known == args.again or not args.again) and",
    ),
    tested(
        "two attempts at once",
        _CONTRACT,
        f"{_OWN}lua/claim_delivery.lua",
        "math.max(tonumber(kept[4] or 0), tonumber(kept[5] or 0))",
        "tonumber(kept[5] or 0)",
    ),
    tested(
        "whoever lost its lease and says what became of the attempt",
        _CONTRACT,
        f"{_OWN}lua/settle_attempt.lua",
        "if tonumber(kept[1] or 0) ~= args.fence or not kept[2] then",
        "if not kept[2] then",
    ),
    tested(
        "an old secret that signs no more",
        _CONTRACT,
        f"{_OWN}webhook_config.py",
        "return tuple(reversed(alive))",
        "return tuple(reversed(alive))[:1]",
    ),
    tested(
        "a redirect that is a success",
        _SENDING,
        f"{_OWN}outcomes.py",
        "answer.error is None and 200 <= status < 300",
        "200 <= status < 400",
    ),
)
