"""Mutants of going on in place: each takes one condition of ADR 0027 away, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_STORE: Final = "tests/contract/test_in_place.py"
_CALLS: Final = "tests/contract/test_calls_in_place.py"
_WORKER: Final = "tests/unit/test_in_place.py"
_LUA: Final = "palaver/store/scripting/lua/"
_IN_PLACE: Final = f"{_LUA}_in_place.lua"
_LEASE: Final = f"{_LUA}_lease.lua"
_TAIL: Final = f"{_LUA}_tail.lua"
_OFFER: Final = "workers/steps/in_place.py"
_FOLLOWING: Final = "workers/broker/jobs.py"


def _mutant(name: str, file: str, old: str, new: str, test: str = _STORE) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant("a step in place under the fence before", _LEASE, "(facts[1] or 0) + 1, NOW)", "(facts[1] or 0), 0)"),
    _mutant(
        "a step in place that is nobody's",
        _IN_PLACE,
        "lease_step(name, step, facts, place.worker,",
        "lease_step(name, step, facts, '',",
    ),
    _mutant(
        "a step in place that is delivered as well",
        _IN_PLACE,
        "lease_here(name, step) }\n  return true",
        "lease_here(name, step) }\n  return false",
    ),
    _mutant(
        "a step in place that no due time ends", _LEASE, "redis.call('ZADD', DUE, NOW + lease_ms, member(name))", ""
    ),
    _mutant("who waits is passed by", _IN_PLACE, " and not others_wait()", ""),
    _mutant("who has room for all lets nobody go on", _IN_PLACE, "return waiting > room", "return waiting > 0"),
    _mutant(
        "who has room for one thinks it is for all", _IN_PLACE, "return waiting > room", "return waiting > 2 * room"
    ),
    _mutant(
        "a lost answer that hands out another's lease",
        _IN_PLACE,
        "not step or not is_leased_to(step, place.worker, place.nonce)",
        "not step",
    ),
    _mutant("a lost answer with the lease in it", f"{_LUA}settle.lua", "answer_before() or answer", "answer"),
    _mutant(
        "a step that is tried again in place",
        f"{_LUA}settle.lua",
        "  retry_step(name, step)\n",
        "  go_on = place and take_next\n  retry_step(name, step)\n",
    ),
    _mutant("a run whose time is up goes on", _IN_PLACE, "first_time_limit().at > NOW and ", ""),
    _mutant(
        "a log that is read anew in each place", _LEASE, "log_tail(known, known_at, follows) or", "log_tail(0, 0) or"
    ),
    _mutant("a step in place that is told nothing", _TAIL, "known_at, written, 1", "known_at, {}, 1"),
    _mutant("a log that others have written, too", _TAIL, "known == ENTRIES - #written", "true"),
    _mutant("a first claim that looks at nothing", _TAIL, "if follows and", "if", "tests/contract/test_rewinds.py"),
    _mutant(
        "a cancel that comes between two steps is lost",
        _OFFER,
        "        self._active.update(steps)\n",
        "",
        _WORKER,
    ),
    _mutant("an offer that was not taken stays", _OFFER, "set(steps).difference(taken)", "()", _WORKER),
    _mutant("a place that is offered twice", _OFFER, "steps[:1] + steps[1 + room :]", "steps", _WORKER),
    _mutant("a call that gives its place away", _OFFER, "taken[:1]", "taken", _WORKER),
    _mutant("no bound of steps", _OFFER, "active.in_place < self._most and", "", _WORKER),
    _mutant(
        "a bound of one more step", _OFFER, "active.in_place < self._most", "active.in_place <= self._most", _WORKER
    ),
    _mutant("no bound of time", _OFFER, "and soon and", "and", _WORKER),
    _mutant("a pool that stops goes on", _OFFER, " and pool.can_go_on()", "", _WORKER),
    _mutant("a task id that is given twice", _OFFER, "number=1", "number=0", _WORKER),
    _mutant(
        "a message that is acknowledged at the first step",
        _FOLLOWING,
        "before.acknowledged = before.acknowledged, True",
        "before.acknowledged = True, before.acknowledged",
        _WORKER,
    ),
    _mutant(
        "a step in place that Flower never sees begin",
        _FOLLOWING,
        "        request.on_accepted(os.getpid(), begun_at)\n",
        "",
        _WORKER,
    ),
    _mutant(
        "a step in place under the name of the one before",
        _FOLLOWING,
        "**request, **headers,",
        "**headers, **request,",
        _WORKER,
    ),
    _mutant("a call that vouches for the log", _IN_PLACE, "not string.find(args.step, '/', 1, true)", "true", _CALLS),
    _mutant(
        "a call under the fence before",
        _IN_PLACE,
        "{ name, step.fence }\n  return",
        "{ name, step.fence - 1 }\n  return",
        _CALLS,
    ),
    _mutant(
        "a call that is begun without its tool",
        _IN_PLACE,
        "not at_hand[name] or not may_begin",
        "not may_begin",
        _CALLS,
    ),
    _mutant(
        "a call that is begun and delivered",
        _IN_PLACE,
        "{ name, step.fence }\n  return true",
        "{ name, step.fence }\n  return false",
        _CALLS,
    ),
    _mutant("calls that take no places", _IN_PLACE, "  room = room - 1\n", "", _CALLS),
    _mutant("a call that passes others by", _IN_PLACE, " and not others_wait()", "", _CALLS),
    _mutant(
        "a call that passes steps of models by",
        _IN_PLACE,
        "in string.gmatch(place.queues, '%S+')",
        "in string.gmatch('tools', '%S+')",
        _CALLS,
    ),
    _mutant(
        "a model's step that passes calls by",
        _IN_PLACE,
        "in string.gmatch(place.queues, '%S+')",
        "in string.gmatch('model', '%S+')",
        _CALLS,
    ),
    _mutant(
        "one kind of step that comes first always",
        "workers/broker/reading.py",
        "        self._let_others_come(queue)\n",
        "",
        "tests/contract/test_reading.py",
    ),
    _mutant("a call beyond the cap of its tenant", _IN_PLACE, " and not is_at_cap(OWNER)", "", _CALLS),
    _mutant("a call that is not counted as in flight", _IN_PLACE, "  fly(OWNER, ID, name, 1)\n", "", _CALLS),
    _mutant(
        "a lost answer without the calls in it",
        _IN_PLACE,
        "  return #taken > 0 and calls_in_place()\nend",
        "  return nil\nend",
        _CALLS,
    ),
    _mutant(
        "a lost answer that hands out another's calls",
        _IN_PLACE,
        "not step or not is_leased_to(step, place.worker, place.nonce)",
        "not step",
        _CALLS,
    ),
    _mutant(
        "a lost answer with leases that are almost over",
        _IN_PLACE,
        "  redis.call('ZADD', DUE, NOW + place.lease_ms, member(name))\n",
        "",
        _CALLS,
    ),
    _mutant("a call in place that has no time left", _IN_PLACE, "first_time_limit().at - NOW,", "0,", _CALLS),
    _mutant(
        "a call in place that knows old secrets",
        _IN_PLACE,
        "secrets_at = SECRETS_AT",
        "secrets_at = ''",
        "tests/contract/test_vault.py",
    ),
    _mutant("a call in place that is a model's", "palaver/steps/leases.py", "            kind=TOOL,\n", "", _CALLS),
    _mutant(
        "a call in place that was claimed long ago", "palaver/steps/leases.py", "elapsed=0.0", "elapsed=9.0", _CALLS
    ),
    _mutant("a call in place that sees the log", "palaver/steps/leases.py", "            log=LogTail(),\n", "", _CALLS),
    _mutant(
        "a call that begins though its lease may be lost",
        "palaver/store/steps/steps.py",
        "self._settle_and_begin(lease, call) if begins else",
        "",
        "tests/contract/test_durability.py",
    ),
    _mutant(
        "a call that is handed back and sent to no worker",
        "palaver/store/steps/steps.py",
        "                deliveries += await self._hand_back",
        "                await self._hand_back",
        "tests/contract/test_durability.py",
    ),
    _mutant("calls that their worker has not the tools for", _OFFER, " if each.at_hand]", "]", _WORKER),
    _mutant(
        "a call that uses up the bound", "workers/steps/active_step.py", "+ (call_of(step) is None)", "+ 1", _WORKER
    ),
    _mutant(
        "a call under the task of the model",
        _FOLLOWING,
        "(delivery.task_name, delivery",
        "(job.args[0], delivery",
        _WORKER,
    ),
    _mutant(
        "a message for each that follows",
        _FOLLOWING,
        "request.acknowledged, before.acknowledged = before.acknowledged, True",
        "request.acknowledged = before.acknowledged",
        _WORKER,
    ),
)
"""Each breaks what is said of a step that nobody delivers."""
