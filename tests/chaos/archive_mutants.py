"""Mutants of the archive: each breaks one promise of ADR 0147, and the test that is named must say so."""

from __future__ import annotations

from typing import Final

from tests.chaos.mutation import by_name, tested

_ROOM: Final = "features/archive/"
_ARCHIVING: Final = f"{_ROOM}tests/contract/test_archiving.py"
_LISTS: Final = f"{_ROOM}tests/contract/test_lists.py"
_LONG: Final = f"{_ROOM}tests/contract/test_long_runs.py"
_DATABASE: Final = f"{_ROOM}tests/unit/test_database.py"

MUTANTS: Final = by_name(
    tested(
        "an acknowledgement before the commit",
        _ARCHIVING,
        f"{_ROOM}archiver.py",
        "            await self._database.write(batch, since)\n",
        "            await self._backlog.acknowledge(batch)\n            await self._database.write(batch, since)\n",
    ),
    tested(
        "a position of the archive that is off by one",
        _ARCHIVING,
        f"{_ROOM}backlog.py",
        "position = archived.entries[-1].position if",
        "position = archived.entries[-1].position + 1 if",
    ),
    tested(
        "an acknowledgement without its fence",
        _ARCHIVING,
        f"{_ROOM}lua/acknowledge.lua",
        "if kept[2] ~= args.changes then",
        "if false then",
    ),
    tested(
        "a conversation that is archived while it goes on",
        _ARCHIVING,
        f"{_ROOM}lua/read_resting.lua",
        "if not kept[1] or (goes_on and not to_be_read) then",
        "if not kept[1] then",
    ),
    tested(
        "a change that goes before it is archived",
        _ARCHIVING,
        f"{_ROOM}lua/_unarchived.lua",
        "expire_conversation(prefix, id, Setting.HISTORY_RETENTION)",
        "expire_conversation(prefix, id, 5)",
    ),
    tested(
        "a deletion that is not known any more",
        _ARCHIVING,
        f"{_ROOM}lua/_unarchived.lua",
        ", tonumber(forgotten or -1))",
        ")",
    ),
    tested(
        "a deletion that is taken for one of another conversation of its id",
        _ARCHIVING,
        f"{_ROOM}lua/_unarchived.lua",
        ">= tonumber(began)",
        ">= 0",
    ),
    tested(
        "a list without what another client brings back meanwhile",
        _LISTS,
        f"{_ROOM}remembering.py",
        "there is None or (recalled is not None and not int(unfinished or 0))",
        "there is None",
    ),
    tested(
        "a list that has what goes on twice",
        _LISTS,
        f"{_ROOM}remembering.py",
        " and not int(unfinished or 0)",
        "",
    ),
    tested(
        "a deletion that is taken for one before it",
        _ARCHIVING,
        f"{_ROOM}lua/settle_deletion.lua",
        "if tonumber(redis.call('ZSCORE', keys.unarchived, args.mark)) == args.since then",
        "do",
    ),
    tested(
        "a conversation that is put back long after it was read",
        _ARCHIVING,
        f"{_ROOM}lua/bring_back.lua",
        "if NOW > args.too_late then",
        "if false then",
    ),
    tested(
        "a conversation that is put back over what it is by now",
        _ARCHIVING,
        f"{_ROOM}lua/bring_back.lua",
        "if redis.call('EXISTS', CONV) == 1 then",
        "if false then",
    ),
    tested(
        "a run that comes into another conversation of the id of its own",
        _ARCHIVING,
        f"{_ROOM}lua/bring_run_back.lua",
        "local another = not created or tonumber(created) > args.created_at",
        "local another = false",
    ),
    tested(
        "what is only read stays as long as what ends",
        _ARCHIVING,
        f"{_ROOM}remembering.py",
        "min(int(ground.settings.retention), _STAYS)",
        "int(ground.settings.retention)",
    ),
    tested(
        "one that takes too long is a database that is away",
        _ARCHIVING,
        f"{_ROOM}archiver.py",
        "if away.reason != SLOW or len(batch) == 1:",
        "if True:",
    ),
    tested(
        "an older writer of the archive that wins",
        _DATABASE,
        f"{_ROOM}writing.py",
        "    if changed:\n        raise ArchiveOvertaken(changed)\n",
        "",
    ),
    tested(
        "a row of another conversation of that id",
        _ARCHIVING,
        f"{_ROOM}writing.py",
        'raise ArchiveRefused("another conversation has that id")',
        "pass",
    ),
    tested(
        "a log with a hole in the archive",
        _ARCHIVING,
        f"{_ROOM}writing.py",
        "        raise ArchiveBehind(behind)\n",
        "        pass\n",
    ),
    tested(
        "an erasure of another tenant's archive",
        _DATABASE,
        f"{_ROOM}writing.py",
        "    tenant = tenant_column(tag)\n",
        '    tenant = tenant_column("")\n',
    ),
    tested(
        "an entry that comes back as others are",
        _DATABASE,
        f"{_ROOM}rows.py",
        "    if _canonical(row) != [*fields.items()]:\n",
        "    if False:\n",
    ),
    tested(
        "a list of the archive with other tenants in it",
        _LISTS,
        f"{_ROOM}searching.py",
        "        yield table.c.tenant == tenant_column(tenant)\n",
        "        yield table.c.tenant != ''\n",
    ),
    tested(
        "a list with what the store has beside the archive",
        _LISTS,
        f"{_ROOM}remembering.py",
        "        away = {*await absent(self._ground.redis, [each.id for each in found])}\n",
        "        away = {each.id for each in found}\n",
    ),
    tested(
        "a list that goes beyond the end of one of its pages",
        _LISTS,
        "palaver/store/reading/finding.py",
        "    end = first(ends) if ends else None\n    listed",
        "    end = None\n    listed",
    ),
    tested(
        "a cursor of the archive that is off by one",
        _LISTS,
        f"{_ROOM}searching.py",
        "self._here > _tuple(place) if self._ascending else self._here < _tuple(place)",
        "self._here >= _tuple(place) if self._ascending else self._here <= _tuple(place)",
    ),
    tested(
        "a long run that is acknowledged as what rests",
        _LONG,
        f"{_ROOM}lua/acknowledge.lua",
        "if not goes_on then expire_conversation",
        "if true then expire_conversation",
    ),
    tested(
        "a run that is let go before its end is archived",
        _LONG,
        f"{_ROOM}backlog.py",
        'ended = [run for run in archived.runs if "ended_at" in run.fields]',
        "ended = [*archived.runs]",
    ),
    tested(
        "a part of a log that is acknowledged though Redis has lost some of it",
        _LONG,
        f"{_ROOM}lua/read_resting.lua",
        "if goes_on then mark(CONV) end\n",
        "",
    ),
    tested(
        "a part of a log with a record of all of it",
        _LONG,
        f"{_ROOM}backlog.py",
        '            fields["entries"] = str(entries[-1].position)\n',
        "            pass\n",
    ),
    tested(
        "a part of a log with a run that has ended behind it",
        _LONG,
        f"{_ROOM}backlog.py",
        "if more and any(_ended(run) >= _marked(fields) for run in runs):",
        "if False:",
    ),
    tested(
        "a long run that is archived once",
        _LONG,
        f"{_ROOM}lua/acknowledge.lua",
        "if goes_on and passes(tonumber(kept[4]), kept[4] - args.position) then",
        "if false then",
    ),
    tested(
        "a run that goes on, counted in the store and in the archive",
        _LONG,
        f"{_ROOM}searching.py",
        "    within.append(RUNS.c.status.in_(_ENDED))\n",
        "",
    ),
    tested(
        "a run that goes on in the archive for ever",
        _LONG,
        f"{_ROOM}writing.py",
        "RUNS.c.conversation_id.in_(rest), *IS_UNFINISHED",
        "RUNS.c.conversation_id.in_([]), *IS_UNFINISHED",
    ),
    tested(
        "a call that a lost run leaves open",
        _LONG,
        f"{_ROOM}losses.py",
        "    said = [*_sealed(log), *_last_words(runs)]\n",
        "    said = [*_last_words(runs)]\n",
    ),
    tested(
        "a lost run that comes back as one that goes on",
        _LONG,
        f"{_ROOM}remembering.py",
        'if run is not None and "ended_at" in run.fields]',
        "if run is not None]",
    ),
)
