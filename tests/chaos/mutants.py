"""Mutants of the product: each breaks one promise, and the checkers that are named must say so. Those of the modules
beside this one are noticed by tests.

    python -m tests.chaos.mutants [NAME …]

A checker that no mutant makes fail proves nothing. Each mutant lives in a copy of the tree that is thrown away.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

from tests.chaos.history_mutants import HISTORY_MUTANTS
from tests.chaos.mutation import Change, Mutant, TestedMutant, by_name, play, unnoticed

_LUA: Final = "palaver/store/scripting/lua/"


def _mutant(name: str, scenario: str, caught_by: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, scenario, frozenset(caught_by.split()), Change(file, old, new))


MUTANTS: Final = by_name(
    *HISTORY_MUTANTS.values(),
    _mutant(
        "a commit without its fence",
        "frozen",
        "newest_try_commits",
        f"{_LUA}_verdict.lua",
        "leased_to(STEPS, args.step, args.fence)",
        "leased_to(STEPS, args.step, (step_of(args.step) or {}).fence)",
    ),
    _mutant(
        "no sweeper",
        "lost_deliveries",
        "all_end",
        "workers/loops/keeper.py",
        "    if sweeps:\n",
        "    if False:\n",
    ),
    _mutant(
        "a tools worker without children",
        "ordinary_day",
        "all_end",
        "workers/children/prefork.py",
        "if len(calls) > self._processes < self._most:",
        "if False:",
    ),
    _mutant(
        "a verdict that is taken in twice",
        "ordinary_day",
        "messages_once calls_have_one_result",
        f"{_LUA}settle.lua",
        "record_outcome(name, step)\n",
        "record_outcome(name, step) record_outcome(name, step)\n",
    ),
    _mutant(
        "a lease of a tool that is no record of intent",
        "killed_in_tool",
        "no_tool_twice",
        f"{_LUA}_overdue.lua",
        "if step.call and not step.idempotent and not step.resumes then",
        "if false then",
    ),
    _mutant(
        "an interrupted tool that is said to be denied",
        "killed_in_tool",
        "results_are_true",
        f"{_LUA}_turn.lua",
        "step, Facts.TOOL_INTERRUPTED, why)",
        "step, Facts.TOOL_DENIED, why)",
    ),
    _mutant(
        "tools under a key that nobody knows",
        "ordinary_day",
        "starts_have_calls",
        "palaver/steps/leases.py",
        "{self.step.replace('/', ':')}",
        "{self.step.replace('/', '-')}",
    ),
    _mutant(
        "a sweeper that does not look at the broker's depth",
        "backlog",
        "backlog_not_multiplied",
        "workers/loops/sweeper.py",
        "unclaimed[: max(0, lost)]",
        "unclaimed[: lost + waiting]",
    ),
    _mutant(
        "text of a dead try that is not withdrawn",
        "killed_mid_stream",
        "text_adds_up",
        f"{_LUA}_overdue.lua",
        "worker = step.worker }))\n  discard_text(name, step)\n",
        "worker = step.worker }))\n",
    ),
    _mutant(
        "open calls that are not sealed",
        "cancelled",
        "calls_have_one_result",
        f"{_LUA}_finish.lua",
        "  seal(reason)\n",
        "",
    ),
    _mutant(
        "calls that are sealed from the last one to the first",
        "cancelled",
        "sealed_in_call_order",
        f"{_LUA}_calls.lua",
        "  for _, call in ipairs(calls) do\n    local step = step_of(",
        "  for i = #calls, 1, -1 do\n    local call = calls[i]\n    local step = step_of(",
    ),
    _mutant(
        "a cancel that stops no call",
        "cancelled",
        "calls_stop_with_the_run",
        "workers/steps/active_step.py",
        "                cancel(self._task)\n",
        "                pass\n",
    ),
    _mutant(
        "a cancel that the next step does not know of",
        "cancelled",
        "cancel_wins inputs_hold",
        f"{_LUA}_stop.lua",
        "  if STATUS ~= RunStatus.CANCELLING then set_status(RunStatus.CANCELLING) end\n",
        "",
    ),
    _mutant(
        "leases that never end",
        "killed_mid_stream",
        "all_end",
        f"{_LUA}sweep.lua",
        "if due or dead then",
        "if false then",
    ),
    _mutant(
        "a claim without a lease",
        "killed_at_claim",
        "all_end",
        f"{_LUA}_lease.lua",
        "redis.call('ZADD', DUE, NOW + lease_ms, member(name))\n",
        "",
    ),
    _mutant(
        "leases that are not renewed",
        "ordinary_day",
        "losses_follow_deaths",
        "workers/loops/keeper.py",
        "await runtime.store.steps.renew([*leased.values()], progress)",
        "[Renewal.PROLONGED] * len(leased)",
    ),
    _mutant(
        "an end that is written twice",
        "ordinary_day",
        "one_end",
        f"{_LUA}_finish.lua",
        "  redis.call('HSET', CONV, 'last_outcome'",
        '  emit(EventKind.RUN_FINISHED, \'{"status":"\' .. status .. \'","error":null}\')\n'
        "  redis.call('HSET', CONV, 'last_outcome'",
    ),
    _mutant(
        "a feed with holes",
        "ordinary_day",
        "numbers_have_no_gap watchers_saw_everything",
        f"{_LUA}write_deltas.lua",
        "local seq = at[1] + 1",
        "local seq = at[1] + 2",
    ),
    _mutant(
        "watchers that miss events",
        "ordinary_day",
        "watchers_saw_everything",
        "api/native/frames.py",
        '            yield b"".join(map(_shared.of, events)) or _KEEP_ALIVE\n',
        '            yield b"".join(map(_shared.of, events[1:])) or _KEEP_ALIVE\n',
    ),
    _mutant(
        "an idempotency key that is not kept",
        "ordinary_day",
        "one_run_for_a_key",
        f"{_LUA}submit.lua",
        "if args.fingerprint then remember('run', ID) end\n",
        "",
    ),
    _mutant(
        "an input that is lost when others wait behind it",
        "ordinary_day",
        "accepted_input_is_there",
        f"{_LUA}_turn.lua",
        "cjson.decode(run[1])",
        "cjson.decode(place[2] and '[]' or run[1])",
    ),
    _mutant(
        "a log whose entries are counted twice",
        "ordinary_day",
        "positions_have_no_gap",
        f"{_LUA}_emit.lua",
        "ENTRIES, BYTES = ENTRIES + entries,",
        "ENTRIES, BYTES = ENTRIES + 2 * entries,",
    ),
    _mutant(
        "an answer that is lost when others wait behind its run",
        "ordinary_day",
        "every_step_has_its_message",
        f"{_LUA}_verdict.lua",
        "  emit_all(args.entries, seq)\n",
        "  if not redis.call('HGET', CONV, 'queued') then emit_all(args.entries, seq) end\n",
    ),
    _mutant(
        "a result that the model is not told",
        "ordinary_day",
        "nothing_refused asked_from_own_log",
        "workers/steps/conversations.py",
        "[self._answers[call.id] for call in calls]\n",
        "[self._answers[call.id] for call in calls[1:]]\n",
    ),
    _mutant(
        "a step that two may claim",
        "doubled_deliveries",
        "overlaps_follow_losses",
        f"{_LUA}claim.lua",
        "step and is_leased_to(step, worker, args.nonce)",
        "step and step.state == StepState.LEASED",
    ),
    _mutant(
        "a rollback that leaves something",
        "cancelled",
        "withdrawn_as_a_whole",
        f"{_LUA}_finish.lua",
        "withdraw_from(ENTERED + 1, ID)",
        "withdraw_from(ENTERED + 2, ID)",
    ),
    _mutant(
        "results in another order than their calls",
        "ordinary_day",
        "asked_from_own_log",
        "workers/steps/conversations.py",
        "[self._answers[call.id] for call in calls]\n",
        "[self._answers[call.id] for call in reversed(calls)]\n",
    ),
    _mutant(
        "a worker that mixes up its conversations",
        "ordinary_day",
        "asked_from_own_log",
        "workers/steps/conversation_cache.py",
        "kept, protocol, *_ = self._entries.get(conversation_id, _NOTHING)\n",
        "kept, protocol, *_ = self._entries.get(conversation_id, _NOTHING)\n"
        "        if isinstance(kept, CachedConversation):\n"
        "            kept._messages[:] = next(iter(self._entries.values()))[0]._messages\n",
    ),
    _mutant(
        "a retry without its delay",
        "ordinary_day",
        "retries_wait",
        f"{_LUA}_verdict.lua",
        "deliver_later(name, step, NOW + args.delay_ms)",
        "deliver_later(name, step, NOW + 1)",
    ),
    _mutant(
        "a run that starts with each step",
        "ordinary_day",
        "statuses_follow_the_table",
        f"{_LUA}_lease.lua",
        "  local started = ",
        "  emit(EventKind.RUN_STARTED, '{}')\n  local started = ",
    ),
    _mutant(
        "a failed run without an error",
        "ordinary_day",
        "ends_truthfully",
        f"{_LUA}_finish.lua",
        "unpack(failure and { failed and 'error' or 'incomplete_details', failure } or {}))",
        "unpack({}))",
    ),
    _mutant(
        "an error of another class",
        "ordinary_day",
        "error_names_the_fault",
        "palaver/errors/response.py",
        "    401: _C.AUTHENTICATION,\n",
        "    401: _C.PERMISSION,\n",
    ),
    _mutant(
        "a run that is kept for ever",
        "ordinary_day",
        "keys_expire",
        f"{_LUA}_finish.lua",
        "  redis.call('EXPIRE', RUN, Setting.HISTORY_RETENTION)\n",
        "",
    ),
    _mutant(
        "a deadline that outlives its run",
        "ordinary_day",
        "nothing_left",
        f"{_LUA}_finish.lua",
        "redis.call('ZREM', DUE, member(RunDue.START), member(RunDue.END), member(RunDue.PARENT))",
        "redis.call('ZREM', DUE, member(RunDue.START))",
    ),
    _mutant(
        "a model that is asked twice for each answer",
        "ordinary_day",
        "calls_within_need calls_within_tries",
        "workers/steps/model_calls.py",
        "            reply = await port.complete(\n",
        "            await port.complete(\n"
        "                agent,\n"
        "                body,\n"
        "                on_begin=lambda: None,\n"
        "                show=lambda text, thoughts: None,\n"
        "                time_left=lease.time_left,\n"
        "                request_id=request_id,\n"
        "                reader=protocol.reader(max_calls=port.max_tool_calls(agent)),\n"
        "                progress=progress,\n"
        "            )\n"
        "            reply = await port.complete(\n",
    ),
)


def mutants_of_tests() -> Iterator[TestedMutant]:
    """Those that tests notice, of all modules here."""
    for module in sorted(Path(__file__).parent.glob("*_mutants.py")):
        if module.stem != "test_mutants":
            found: dict[str, TestedMutant] = getattr(import_module(f"tests.chaos.{module.stem}"), "MUTANTS", {})
            yield from found.values()


def main() -> None:
    """Play the mutants that are named, or all, and say which was caught by what. Exits with 1 if one survives."""
    tested = by_name(*mutants_of_tests())
    survived = 0
    for name in sys.argv[1:] or [*MUTANTS, *tested]:
        if name in tested:
            said = unnoticed(tested[name])
            caught, by = not said, said or tested[name].test
        else:
            found = {violation["checker"] for violation in play(MUTANTS[name], MUTANTS[name].scenario)}
            caught, by = MUTANTS[name].caught_by <= found, ", ".join(sorted(found)) or "none"
        survived += not caught
        print(f"{'caught' if caught else 'SURVIVED'}: {name}; failed: {by}", flush=True)
    sys.exit(min(survived, 1))


if __name__ == "__main__":
    main()
