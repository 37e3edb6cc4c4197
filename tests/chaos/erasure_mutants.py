"""Mutants of the erasure of tenants: each breaks one promise of ADR 0094, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_LUA: Final = "palaver/store/scripting/lua/"
_ROOM: Final = "features/offboarding/"
_CONTRACT: Final = "features/offboarding/tests/contract/test_erasure.py"
_API: Final = "features/offboarding/tests/unit/test_api_offboarding.py"


def _mutant(name: str, file: str, old: str, new: str, test: str = _CONTRACT) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "a list that is forgotten", f"{_ROOM}lua/erase_conversations.lua", "{ 'convs', 'convs:updated' }", "{ 'convs' }"
    ),
    _mutant("a shared list that is forgotten", f"{_ROOM}belongings.py", "        keys.lacking(shard),\n", ""),
    _mutant(
        "an idempotency key that nobody finds",
        f"{_LUA}_request.lua",
        "  if OTHERS then note_passing(",
        "  if false then note_passing(",
    ),
    _mutant("a wrong owner", f"{_ROOM}lua/_erasing.lua", "ipairs({ OWNER, OTHERS })", "ipairs({ OTHERS })"),
    _mutant(
        "a neighbour's step", f"{_ROOM}lua/erase_members.lua", "string.sub(PREFIX, 3, 4) .. args.tag .. '_'", "'00'"
    ),
    _mutant(
        "a mark that is not set",
        f"{_ROOM}erasures.py",
        'pipeline.execute_command("ZADD", keys.erased(shard), "NX", now, tag)',
        "pass",
    ),
    _mutant(
        "agents that are put meanwhile",
        f"{_LUA}keep_agent.lua",
        "if TENANT and redis.call('EXISTS', AGENTS .. 'erasure') == 1 then",
        "if false then",
    ),
    _mutant(
        "a receipt that counts twice",
        f"{_ROOM}lua/erase_keys.lua",
        "local there = redis.call('UNLINK', each.key) == 1",
        "local there = true; redis.call('UNLINK', each.key)",
    ),
    _mutant(
        "a receipt for each who asks",
        f"{_ROOM}lua/write_receipt.lua",
        "if earlier and cjson.decode(earlier).tag == args.tag then",
        "if false then",
    ),
    _mutant(
        "keys that other processes go on with",
        f"{_ROOM}removal.py",
        "            await self._scripts.write_durably([changed()])\n",
        "",
    ),
    _mutant(
        "old requests that are not waited for",
        f"{_ROOM}erasures.py",
        "if unfinished or not quiet or",
        "if unfinished or",
    ),
    _mutant("runs that workers still have", f"{_ROOM}erasures.py", "if unfinished or not quiet or", "if not quiet or"),
    _mutant(
        "a tag that is given again",
        f"{_ROOM}lua/end_erasure.lua",
        "  redis.call('HSET', keys.tenants, '@' .. args.tag, '')\n",
        "  redis.call('HDEL', keys.tenants, '@' .. args.tag)\n",
    ),
    _mutant(
        "an export that begins again",
        f"{_ROOM}exports.py",
        "if number < section:",
        "if number < 0:",
        _API,
    ),
    _mutant("anybody erases", f"{_ROOM}leaving.py", "    if not caller.operator:\n", "    if False:\n", _API),
)
