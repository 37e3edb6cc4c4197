"""``palaver cancel``, ``retry`` and ``delete``: one run, or many."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from palaver.cli.bulk import ManyRuns, confirm
from palaver.cli.connection import Api
from palaver.cli.options import Budget, MaybeRunId, Mode, OtherAgent, Reason, text_or_stdin
from palaver.cli.pending import status_line


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
        said = None if text is None else text_or_stdin(text)
        made = client.retry(run_id, from_step, input=said, agent=agent, budget=dict(budget or ()))
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
