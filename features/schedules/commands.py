"""``palaver schedules``: runs that are submitted at times."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from palaver.cli import options
from palaver.cli.commands import CommandGroup
from palaver.cli.connection import Api, say
from palaver.cli.doing import lacked
from palaver.cli.layout import print_list
from palaver.cli.tables import console
from palaver.cli.text import document, moment, one_line
from palaver.schemas.schedules import Schedule, Timing

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Agent = Annotated[
    Any,
    typer.Option(
        "--agent",
        "-a",
        parser=options.agent,
        metavar="JSON|NAME",
        help="The whole agent, or @FILE, or the name of one on the server: support, support@7.",
    ),
]
_Version = Annotated[
    int | None,
    typer.Option("--if-version", min=0, metavar="N", help="Only if this is its version; 0: if there is none."),
]


def put(
    name: Name,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What you say to the agent at each tick; - reads it.")],
    agent: Agent,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="'M H D M W'", help="Five fields, as cron has them.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", "-z", metavar="ZONE", help="Of --cron [default: UTC].")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option("--every", parser=options.duration, metavar="TIME", help="15m, 12h: in the place of --cron."),
    ] = None,
    jitter: Annotated[
        float | None, typer.Option("--jitter", parser=options.duration, metavar="TIME", help="Be late by that at most.")
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap",
            parser=options.one_of(("skip", "queue", "cancel")),
            metavar="skip|queue|cancel",
            help="If the run before has not ended: leave the tick out, let it wait, or cancel that run.",
        ),
    ] = None,
    missed: Annotated[
        str | None,
        typer.Option(
            "--missed",
            parser=options.one_of(("once", "never")),
            metavar="once|never",
            help="Of ticks that no worker was there for: the newest, or none.",
        ),
    ] = None,
    if_version: _Version = None,
    *,
    api: Api,
) -> None:
    """Keep a schedule: at each tick a run of an agent begins."""
    body: dict[str, Any] = {
        "cron": cron,
        "timezone": timezone,
        "every": None if every is None else int(every),
        "jitter": None if jitter is None else int(jitter),
        "overlap": overlap,
        "missed": missed,
        "run": {"agent": agent, "input": options.text_or_stdin(text)},
    }
    with api.connected() as client:
        kept = client.put_schedule(
            name, {field: value for field, value in body.items() if value is not None}, version=if_version
        )
    api.show(kept, f"{kept.name}: next at {_time(kept.next_at)}")


def list_schedules(api: Api) -> None:
    """List the schedules, each with its next tick."""
    with api.connected() as client:
        schedules = [*client.schedules()]
    rows = [
        (each.name, _when(each), _time(each.next_at, paused=each.paused), each.last_run_id or "") for each in schedules
    ]
    columns = ("SCHEDULE", "TIMES", "NEXT", "LAST RUN")
    api.show(schedules, lambda: print_list(console(), columns, rows, texts=2) if rows else say("No schedules."))


def show(name: Name, api: Api) -> None:
    """Show one schedule: its run, its next ticks, and what became of the last ones."""
    with api.connected() as client:
        schedule = client.schedule(name)
    api.show(schedule, lambda: _show(console(), schedule))


def pause(name: Name, api: Api) -> None:
    """Let a schedule have no ticks until it is resumed."""
    with api.connected() as client:
        schedule = client.pause_schedule(name)
    api.show(schedule, f"{name} is paused")


def resume(name: Name, api: Api) -> None:
    """Let a schedule go on with the ticks from now on."""
    with api.connected() as client:
        schedule = client.resume_schedule(name)
    api.show(schedule, f"{name}: next at {_time(schedule.next_at)}")


def trigger(name: Name, api: Api) -> None:
    """Submit the run of a schedule now; its ticks stay as they are."""
    with api.connected() as client:
        run = client.trigger_schedule(name)
    api.show(run, run.id)


def delete(
    name: Name,
    if_version: _Version = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    api: Api,
) -> None:
    """Remove a schedule; its runs go on."""
    with api.connected() as client:
        if not yes and not api.as_json:
            typer.confirm(f"Remove the schedule {name}?", abort=True, err=True)
        client.delete_schedule(name, version=if_version)
    api.show({"deleted": name}, f"deleted {name}")


def _when(timing: Timing) -> str:
    return f"every {timing.every} s" if timing.every is not None else f"{timing.cron} {timing.timezone}"


def _time(at: datetime | None, *, paused: bool = False) -> str:
    return "paused" if paused else moment(at) if at is not None else "never"


def _show(to: Console, schedule: Schedule) -> None:
    facts = {
        "schedule": f"{schedule.name}, version {schedule.version}",
        "times": _when(schedule),
        "overlap": schedule.overlap,
        "missed": schedule.missed,
        "next": ", ".join(map(_time, schedule.next_times)) or _time(None, paused=schedule.paused),
        "waits": lacked(schedule.waiting.code or "") if schedule.waiting else None,
        "by": schedule.updated_by,
    }
    for name, text in facts.items():
        if text:
            to.print(Text(f"{name:13} {one_line(text, 500)}"), soft_wrap=True)
    to.print(Text(document(schedule.run.model_dump(mode="json", exclude_defaults=True))), soft_wrap=True)
    rows = [
        (_time(each.tick), each.outcome, one_line(each.run_id or each.message or each.code or "", 200))
        for each in schedule.ticks
    ]
    if rows:
        print_list(to, ("TICK", "OUTCOME", "RUN OR REASON"), rows, texts=1)


COMMANDS: Final = (
    CommandGroup(
        "schedules",
        "Let runs begin at times: put, list, show, pause, resume, trigger and delete schedules.",
        {
            "put": put,
            "list": list_schedules,
            "show": show,
            "pause": pause,
            "resume": resume,
            "trigger": trigger,
            "delete": delete,
        },
        after="agents",
    ),
)
