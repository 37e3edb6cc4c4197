"""Mutants that no checker of the store's final state can see: each tells clients what is not so, and the search for a
linear order of their histories alone must say it."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, Mutant, by_name

_LUA: Final = "palaver/store/scripting/lua/"


def _mutant(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, "linear_order", frozenset({"linear_order"}), Change(file, old, new))


HISTORY_MUTANTS: Final = by_name(
    _mutant(
        "a read that is a moment old",
        "palaver/operations/backend.py",
        "return await self.reads.read_now(\n"
        "                run_id, lambda: within_deadline(self.store.runs.get(run_id)), patience=_CROWDED\n"
        "            )\n",
        "now, seen = asyncio.get_running_loop().time(), self.reads.__dict__.setdefault('seen', {})\n"
        "            if now > seen.get(run_id, (0, None))[0]:\n"
        "                seen[run_id] = now + 0.3, await within_deadline(self.store.runs.get(run_id))\n"
        "            return seen[run_id][1]\n",
    ),
    _mutant(
        "a cancel that comes too late and is acknowledged",
        f"{_LUA}cancel.lua",
        "if has_ended() then return reply.ended { status = STATUS } end\n",
        "if has_ended() then return moved() end\n",
    ),
    _mutant(
        "a second decision that is taken and comes to nothing",
        f"{_LUA}act.lua",
        "return how and RefusalCode.ACTION_ALREADY_RESOLVED or RefusalCode.UNKNOWN_ACTION\n",
        "return not how and RefusalCode.UNKNOWN_ACTION\n",
    ),
    _mutant(
        "words that are taken and come to nothing",
        f"{_LUA}act.lua",
        "steer(messages)\nif stop then",
        "if stop then",
    ),
    _mutant(
        "an input whose repetition is judged anew",
        f"{_LUA}act.lua",
        "if earlier then return earlier.same and accepted(nil, true) or reply.mismatch() end\n",
        "",
    ),
)
"""Each keeps what the store has whole."""
