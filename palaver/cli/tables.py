"""Runs and queues as tables and lists."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from palaver.cli.advice import advise
from palaver.cli.doing import (
    action_lines,
    doing,
    doing_lines,
    lacked,
    lacks,
    refused_of,
    waiting,
)
from palaver.cli.layout import print_list
from palaver.cli.text import (
    age,
    amount,
    clock,
    cool_down_of,
    moment,
    one_line,
    outage_of,
    plain,
    seconds,
    turn_of,
    usage,
)
from palaver.schemas.listed_model import ListedModel
from palaver.schemas.models import Cancellation, Run
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.step_kinds import USUAL_PRIORITY

_PIPE_WIDTH: Final = 240
"""Columns when the output is no terminal: enough that no id is cut."""

_QUESTION: Final = 40
"""Characters of what the user said, in a list."""
_LONGEST: Final = limit_of("provider_message")
"""Characters of a fact about a run."""


def console() -> Console:
    """Standard output, as it is now; wide when it is no terminal."""
    return Console(
        file=sys.stdout,
        width=None if sys.stdout.isatty() else _PIPE_WIDTH,
        force_terminal=sys.stdout.isatty(),
        highlight=False,
        markup=False,
        emoji=False,
    )


def show_runs(to: Console, runs: Iterable[Run]) -> None:
    """One line a run, or on a terminal as many as it needs there."""
    rows = []
    for run in runs:
        tools = ", ".join(action.tool for action in run.all_pending)
        waits = f"{waiting(run)}: {one_line(tools)}" if tools else waiting(run)
        what = advise(run).why or waits or doing(run) or one_line(run.output, 80)
        question = one_line(run.input_preview, _QUESTION)
        rows.append((run.id, run.status.value, run.agent.model, since(to, run.times.created_at), question, what))
    print_list(to, ("RUN", "STATUS", "MODEL", "CREATED", "QUESTION", "WHAT"), rows, texts=2)


def since(to: Console, when: datetime) -> str:
    """A time in a list: how long ago it was if a person looks."""
    return f"{age(when)} ago" if to.is_terminal else moment(when)


def show_run(to: Console, run: Run, refused: Iterable[str] = ()) -> None:
    """Everything a person asks about one run; empty facts are left out. ``refused`` is why workers do not take it."""
    advice = advise(run)
    facts = {
        "run": run.id,
        "conversation": run.conversation_id,
        "question": run.input_preview,
        "status": _status(run),
        "waiting": waiting(run),
        "agent": run.agent.name and f"{run.agent.name}@{run.agent.version}" if run.agent.version else run.agent.name,
        "model": run.agent.model,
        "tools": ", ".join(run.agent.tools),
        "client tools": ", ".join(tool.name for tool in run.agent.client_tools),
        "step": f"{run.step}, attempt {run.attempt}" if run.step else "",
        "created": moment(run.times.created_at),
        "started": moment(run.times.started_at),
        "ended": moment(run.times.ended_at),
        "archived": "it had left Redis" if run.archived else "",
        "deadline": "" if run.status.terminal else moment(run.times.deadline),
        "usage": usage(run.usage),
        "submitted by": run.submitted_by,
        "called by": run.parent and f"{run.parent.run_id} step {run.parent.step}",
        "retry of": run.retried_from,
        "retried as": run.retried_as,
        "cancel": _cancel(run.cancel),
        "priority": "" if run.priority == USUAL_PRIORITY else str(run.priority),
        "tags": ", ".join(run.tags),
        "metadata": ", ".join(f"{name}={text}" for name, text in run.metadata.items()),
        "error" if run.error else "why": advice.why,
        "provider said": advice.provider_message,
        "what to do": advice.what_to_do or (f"palaver resume {run.id}" if run.status == "paused" else ""),
    }
    for name, text in facts.items():
        if text:
            to.print(Text(f"{name:13} {one_line(text, _LONGEST)}"), soft_wrap=True)
    for child in run.children:
        what = f"{child.run_id} {one_line(child.agent, _LONGEST)}: {child.status or 'goes on'}"
        to.print(Text(f"{'runs below':13} {what}"), soft_wrap=True)
    for line in doing_lines(run):
        to.print(Text(f"{'now':13} {line}"), soft_wrap=True)
    for line in refused:
        to.print(Text(f"{'':13} {plain(line)}", "yellow"), soft_wrap=True)
    for line in action_lines(run.id, run.all_pending):
        to.print(Text(plain(line)), soft_wrap=True)
    if run.output:
        to.print()
        to.out(plain(run.output), highlight=False)


_CALLABLE: Final = {True: "yes", False: "NO", None: "?"}


def show_models(to: Console, models: Iterable[ListedModel]) -> None:
    """One line a model."""
    rows = []
    for model in models:
        until = clock(model.cooling_until) if model.cooling_until else ""
        price = ("", "") if model.price is None else (amount(model.price.input), amount(model.price.output))
        rows.append((model.id, _CALLABLE[model.callable], until, *price))
    print_list(to, ("MODEL", "WORKERS CAN ASK", "LEFT ALONE UNTIL", "$ A MILLION TOKENS IN", "OUT"), rows)


def show_queues(to: Console, queues: Mapping[str, Any]) -> None:
    """Print what the API says of its queues: each list as a table, everything else as a line, without what is null.

    A list within a table is only counted; of a queue's workers those that were started, and not their processes.
    """
    for name, value in queues.items():
        if name == "no_worker" and isinstance(value, list):
            for wait in value:
                one = f", one of {run_id}" if (run_id := wait.get("run_id")) else ""
                line = f"{lacked(str(wait.get('code')))}: {wait.get('steps')} steps wait{one}"
                to.print(Text(plain(line), "yellow"), soft_wrap=True)
        elif isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            columns = [
                key
                for key in dict.fromkeys(key for entry in value for key in entry)
                if key not in ("cooling", "tenants")
            ]
            shown = _for_people if to.is_terminal else _as_it_is
            rows = [[shown(column, _counted(column, entry.get(column))) for column in columns] for entry in value]
            print_list(to, [column.upper().replace("_", " ") for column in columns], rows)
            for entry in value:
                for worker in entry.get("workers") or ():
                    for code in worker.get("lacks") or ():
                        to.print(Text(plain(f"worker {worker.get('id')} {lacks(str(code))}"), "yellow"), soft_wrap=True)
                for tenant in entry.get("tenants") or ():
                    to.print(Text(plain(turn_of(str(entry.get("name")), tenant))), soft_wrap=True)
                for cools in entry.get("cooling") or ():
                    if cools.get("model"):
                        to.print(Text(plain(cool_down_of(str(entry.get("name")), cools)), "yellow"), soft_wrap=True)
                for worker in entry.get("refused") or ():
                    to.print(Text(plain(refused_of(str(entry.get("name")), worker)), "yellow"), soft_wrap=True)
                for outage in entry.get("outages") or ():
                    to.print(Text(plain(outage_of(str(entry.get("name")), outage)), "yellow"), soft_wrap=True)
        elif name == "room" and isinstance(value, dict):
            to.print(Text(plain(f"room: {_room(value)}")), soft_wrap=True)
        elif isinstance(value, dict):
            facts = ", ".join(
                f"{key.replace('_', ' ')} {_cell(fact)}" for key, fact in value.items() if fact is not None
            )
            to.print(Text(plain(f"{name}: {facts}")), soft_wrap=True)
        else:
            to.print(Text(f"{name}: {one_line(value)}"), soft_wrap=True)


def show_usage(to: Console, report: Mapping[str, Any]) -> None:
    """Print the rows of usage and their sum; of names those that were asked for."""
    groups, total = [str(name) for name in report.get("group_by") or ()], report.get("total") or {}
    columns = [name.upper().replace("_", " ") for name in (*groups, *total)]
    rows = [
        [*(str(row.get(name) or "-") for name in groups), *(_used(name, row.get(name)) for name in total)]
        for row in report.get("data") or ()
    ]
    in_all = ["in all", *("" for _ in groups)][: len(groups)]
    print_list(to, columns, [*rows, [*in_all, *(_used(name, total[name]) for name in total)]])


def _used(name: str, number: Any) -> str:
    return f"{number:.6f}" if name == "cost_usd" and isinstance(number, int | float) else str(number)


def _counted(column: str, value: Any) -> Any:
    if column != "workers" or not isinstance(value, list):
        return value
    # Processes of one worker have its name and its life, and a number of their own.
    ids = [str(worker.get("id") or n) for n, worker in enumerate(value) if isinstance(worker, dict)]
    return len({worker_id.rpartition("/")[0] or worker_id for worker_id in ids})


def _room(room: Mapping[str, Any]) -> str:
    """Describe how much of the room is taken. A run that is worked on, or waits for a time, takes two places."""
    runs = f"{_cell(room.get('runs'))} of {_cell(room.get('max_runs'))} places for runs (a run at work takes two)"
    memory, most = room.get("memory_bytes"), room.get("max_memory_bytes")
    if not isinstance(memory, int):
        return runs
    return f"{runs}, {_size(memory)}{f' of {_size(most)}' if isinstance(most, int) else ''} of memory"


def _size(number: int) -> str:
    return f"{number / 1024**2:.1f} MiB"


def _status(run: Run) -> str:
    if run.stop_reason:
        return f"{run.status} ({run.stop_reason}{', withdrawn' if run.withdrawn else ''})"
    return f"{run.status}, pausing" if run.pausing else run.status


def _cancel(cancel: Cancellation | None) -> str:
    if cancel is None:
        return ""
    parts = (moment(cancel.requested_at), cancel.mode, cancel.by and f"by {cancel.by}", cancel.reason)
    return " ".join(filter(None, parts))


def _cell(value: object) -> str:
    return str(len(value)) if isinstance(value, list) else one_line(value)


def _as_it_is(_name: str, value: object) -> str:
    return _cell(value)


def _for_people(name: str, value: object) -> str:
    if name.endswith("_seconds") and isinstance(value, int | float):
        return seconds(value)
    if name.endswith("_until") and isinstance(value, str):
        return clock(datetime.fromisoformat(value))
    return _cell(value)
