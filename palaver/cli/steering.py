"""``palaver steer``, ``say``, ``pause`` and ``resume``: a run or a conversation that goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from palaver.cli.connection import Api
from palaver.cli.options import RunId, text_or_stdin
from palaver.cli.pending import status_line


def steer(
    run_id: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")],
    api: Api,
) -> None:
    """Say something into a run: its next model call sees it."""
    with api.connected() as client:
        run = client.steer(run_id, text_or_stdin(text))
    api.show(run, status_line(run))


def say(
    conversation_id: Annotated[str, typer.Argument(metavar="CONVERSATION_ID", help="Where to say it.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")],
    api: Api,
) -> None:
    """Say something in a conversation without a run: the next one is told, or the one that goes on."""
    with api.connected() as client:
        appended = client.append(conversation_id, text_or_stdin(text))
    where = f"told run {appended.run_id}" if appended.run_id else f"said; `palaver run -c {conversation_id}` answers it"
    api.show(appended, where)


def withdraw(
    conversation_id: Annotated[str, typer.Argument(metavar="CONVERSATION_ID", help="Where to go back.")],
    after: Annotated[int, typer.Option("--after", min=0, help="The last position that models are still told of.")],
    api: Api,
) -> None:
    """Go back to an earlier place of a conversation: models are not told of what follows any more."""
    with api.connected() as client:
        found = client.withdraw(conversation_id, after)
    api.show(found, f"{conversation_id} goes on behind position {after}")


def fork(
    conversation_id: Annotated[str, typer.Argument(metavar="CONVERSATION_ID", help="Which to begin with.")],
    through: Annotated[int | None, typer.Option("--through", min=0, help="The last position to take over.")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the new conversation.")] = None,
    *,
    api: Api,
) -> None:
    """Begin another conversation with what was said in this one. Prints its id."""
    with api.connected() as client:
        made = client.fork(conversation_id, through, title=title)
    api.show(made, made.id)


def pause(
    run_id: RunId,
    now: Annotated[bool, typer.Option("--now", help="Abort a model call that is under way.")] = False,
    *,
    api: Api,
) -> None:
    """Let a run begin nothing more until it is resumed; what is under way finishes."""
    with api.connected() as client:
        run = client.pause(run_id, now)
    api.show(run, status_line(run))


def resume(run_id: RunId, api: Api) -> None:
    """Let a paused run go on where it was."""
    with api.connected() as client:
        run = client.resume(run_id)
    api.show(run, status_line(run))
