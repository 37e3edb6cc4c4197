"""Mutants of the death watch: each takes one condition of ADR 0016 away, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import Change, TestedMutant, by_name

_RULE: Final = "tests/contract/test_deaths.py"
_IDS: Final = "tests/unit/test_worker_ids.py"
_FLEET: Final = "palaver/store/fleet/fleet.py"
_WATCH: Final = "workers/loops/deaths.py"
_EXISTENCE: Final = "palaver/processes/existence.py"
_KEEPER: Final = "workers/loops/keeper.py"
_BLAME: Final = "tests/contract/test_poison.py"
_LOST: Final = "palaver/store/scripting/lua/_lost_together.lua"
_POISON: Final = "palaver/store/scripting/lua/_poison.lua"
_JUDGEMENT: Final = "palaver/store/scripting/lua/_judgement.lua"


def _mutant(name: str, file: str, old: str, new: str, test: str = _RULE) -> TestedMutant:
    return TestedMutant(name, test, Change(file, old, new))


MUTANTS: Final = by_name(
    _mutant(
        "a lease that is taken though it was renewed",
        "palaver/store/scripting/lua/sweep.lua",
        "(not args.unrenewed_before or at < args.unrenewed_before)",
        "true",
        "tests/contract/test_leases.py",
    ),
    _mutant(
        "a lease that is taken from another worker",
        "palaver/store/scripting/lua/sweep.lua",
        "args.dead_worker == step.worker and",
        "args.dead_worker and",
        "tests/contract/test_leases.py",
    ),
    _mutant("who hears nothing is dead", _FLEET, "if str(worker.connection) not in there)", ")"),
    _mutant("who lost a connection is dead, though it hears", _FLEET, "strict=True) if is_silent]", "strict=True)]"),
    _mutant("judged by another server", _FLEET, "if server and server == here and int(", "if server and int("),
    _mutant("a watcher that hears nothing itself", _FLEET, "if absent and not deaf else", "if absent else"),
    _mutant("one look is enough", _WATCH, "if now - suspect.since >= self._needed(gone) or", "if True or"),
    _mutant("a process that is named has ended", _WATCH, "or self._ended(gone.processes):", "or gone.processes:"),
    _mutant("a process of another machine", _EXISTENCE, "and kernel == _kernel() and", "and"),
    _mutant("a child that its parent has no time for", _EXISTENCE, "and all(_has_ended", "and any(_has_ended"),
    _mutant(
        "a first look at everybody",
        "palaver/store/fleet/first_look.py",
        "return self._suspects if lasted else ()",
        "return self._suspects",
    ),
    _mutant(
        "a first look that a cut does not end", _WATCH, "if self._clock() >= self._cut_until:", "if self._clock() > 0:"
    ),
    _mutant(
        "a watch that begins before it is heard",
        _WATCH,
        "if await self._store.fleet.is_heard(self._worker_id):",
        "if self._worker_id:",
    ),
    _mutant("a last look that waits for the next interval", _WATCH, "max(_SOONEST, ripe - self._clock())", "LOOK"),
    _mutant(
        "a word in between that nobody hears",
        _WATCH,
        "if suspect is None or suspect.first_seen.connection != gone.connection:",
        "if suspect is None:",
    ),
    _mutant(
        "suspects that stay suspects when they are back",
        _WATCH,
        "before, self._suspects = self._suspects, {}",
        "before, self._suspects = self._suspects, dict(self._suspects)",
    ),
    _mutant("no more patience where everything is slow", _WATCH, "PATIENCE + _SLOWER * (now - began)", "PATIENCE"),
    _mutant("a watcher that was cut off judges", _WATCH, "self._clock() + self._lease", "0.0"),
    _mutant(
        "a watcher that remembers what it suspected before it was cut off",
        _WATCH,
        "self._lease\n        self._suspects.clear()\n",
        "self._lease\n",
    ),
    _mutant(
        "a failed look that is no outage",
        _WATCH,
        "            self.was_cut()\n            raise",
        "            raise",
    ),
    _mutant("a keeper that does not speak when it was cut", _KEEPER, "        self._cut.set()\n", ""),
    _mutant("a keeper that does not tell the watch", _KEEPER, "        self._deaths.was_cut()\n", ""),
    _mutant(
        "a listener that does not notice that it was cut",
        _FLEET,
        "                    self._on_reconnect()\n",
        "                    pass\n",
    ),
    _mutant("a trial that another death does not end", _LOST, "      tried.on_trial = nil\n", "", _BLAME),
    _mutant(
        "an age that is always the same one", _JUDGEMENT, "math.abs(age - before) <= 1000 + before / 16", "true", _BLAME
    ),
    _mutant("a trial that tells no more than any loss", _POISON, "step.on_trial and step.row or 0", "0", _BLAME),
    _mutant("suspects that come back together", _JUDGEMENT, " + gap * slot", "", _BLAME),
    _mutant(
        "a suspect that does not stay away",
        _JUDGEMENT,
        "lost.judgement.delay = AWAY",
        "lost.judgement.delay = 0",
        _BLAME,
    ),
    _mutant(
        "neighbours on other shards that nobody compares",
        "palaver/store/steps/losses.py",
        "if len(self._shards) == 1:",
        "if self._shards:",
        _BLAME,
    ),
    _mutant(
        "a trial that a death in another shard does not end",
        "palaver/store/scripting/lua/sweep.lua",
        "if args.acquitted and step.on_trial then",
        "if false then",
        _BLAME,
    ),
    _mutant(
        "every life of a process has the same id", "workers/steps/runtime.py", "secrets.token_hex(4)", '"life"', _IDS
    ),
)
