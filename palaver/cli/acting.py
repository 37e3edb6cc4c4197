"""Commands that change runs and conversations: ``steer``, ``pause``, ``fork``, ``cancel``, ``delete``, …"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from palaver.cli.bulk import ManyRuns, confirm
from palaver.cli.connection import Api
from palaver.cli.doing import status_line
from palaver.cli.options import Budget, MaybeRunId, Mode, OtherAgent, Reason, RunId, text_or_stdin


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
        conversation = client.withdraw(conversation_id, after)
    api.show(conversation, f"{conversation_id} goes on behind position {after}")


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


def cancel(run_id: MaybeRunId = None, mode: Mode = "now", reason: Reason = None, *, many: ManyRuns, api: Api) -> None:
    """Ask a run to stop, or every run that fits a filter. Asking twice is asking once."""
    many.check(run_id)
    with api.connected() as client:
        if run_id is None:
            many.act(client, "cancel", api, mode=mode, reason=reason)
            return
        run = client.cancel(run_id, reason, mode)
    api.show(run, status_line(run))


def retry(
    run_id: MaybeRunId = None,
    from_step: Annotated[
        int | None,
        typer.Option("--from-step", min=1, help="Fork: a new conversation with everything before this model step."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--input", metavar="TEXT", help="With --from-step: what to say then; - reads stdin.")
    ] = None,
    agent: OtherAgent = None,
    budget: Budget = None,
    *,
    many: ManyRuns,
    api: Api,
) -> None:
    """Go on with a run that has ended where it stopped, as a new run; or with every run that fits a filter."""
    many.check(run_id)
    if run_id is None and (from_step or text or agent or budget):
        raise typer.BadParameter("--from-step, --input, --agent and --budget are for one run")
    with api.connected() as client:
        if run_id is None:
            many.act(client, "retry", api)
            return
        new_input = None if text is None else text_or_stdin(text)
        made = client.retry(run_id, from_step, input=new_input, agent=agent, budget=dict(budget or ()))
    forked = f"forks {run_id} before step {from_step}, in conversation {made.conversation_id}"
    api.show(made, f"{made.id} {f'goes on with {run_id}' if from_step is None else forked}")


def delete(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN_ID|CONVERSATION_ID", help="What to forget; nothing with a filter or --all."),
    ] = None,
    *,
    many: ManyRuns,
    api: Api,
) -> None:
    """Forget a run that has ended, a conversation with all its runs, or every ended run that fits a filter."""
    many.check(run_id)
    with api.connected() as client:
        if run_id is None:
            many.act(client, "delete", api)
            return
        if run_id.startswith("conv_"):
            if not many.yes and sys.stdin.isatty() and len([*client.list(conversation_id=run_id, limit=2)]) > 1:
                confirm(f"Delete {run_id} with all its runs?")
            client.delete_conversation(run_id)
        else:
            client.delete(run_id)
    api.show({"deleted": run_id}, f"deleted {run_id}")
