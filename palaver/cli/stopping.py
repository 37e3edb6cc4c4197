"""``palaver cancel``, ``retry`` and ``delete``: one run, or many."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from palaver.cli.connection import connected
from palaver.cli.many import Filter, act, confirm, one_or_many
from palaver.cli.options import (
    AgentName,
    ApiKey,
    Budget,
    DryRun,
    Everything,
    FailedWith,
    Json,
    MaybeRunId,
    Mode,
    OfConversation,
    OlderThan,
    OtherAgent,
    Reason,
    Statuses,
    Tagged,
    Url,
    Yes,
    words,
)
from palaver.cli.pending import standing
from palaver.cli.words import document


def cancel(
    run_id: MaybeRunId = None,
    mode: Mode = "now",
    reason: Reason = None,
    everything: Everything = False,
    status: Statuses = None,
    conversation: OfConversation = None,
    tag: Tagged = None,
    agent_name: AgentName = None,
    error_class: FailedWith = None,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Ask a run to stop, or every run that fits a filter. Asking twice is asking once."""
    admitted = Filter(status, conversation, tag, agent_name, error_class, older_than)
    one = one_or_many(run_id, admitted, everything=everything, dry_run=dry_run)
    with connected(url, api_key) as client:
        if one is None:
            act(client, "cancel", admitted, dry_run=dry_run, yes=yes, as_json=as_json, mode=mode, reason=reason)
            return
        asked = client.cancel(one, reason, mode)
    typer.echo(document(asked.model_dump(mode="json")) if as_json else standing(asked))


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
    everything: Everything = False,
    status: Statuses = None,
    conversation: OfConversation = None,
    tag: Tagged = None,
    agent_name: AgentName = None,
    error_class: FailedWith = None,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Go on with a run that has ended where it stopped, as a new run; or with every run that fits a filter."""
    admitted = Filter(status, conversation, tag, agent_name, error_class, older_than)
    one = one_or_many(run_id, admitted, everything=everything, dry_run=dry_run)
    if one is None and (from_step or text or agent or budget):
        raise typer.BadParameter("--from-step, --input, --agent and --budget are for one run")
    with connected(url, api_key) as client:
        if one is None:
            act(client, "retry", admitted, dry_run=dry_run, yes=yes, as_json=as_json)
            return
        made = client.retry(
            one,
            from_step,
            input=None if text is None else words(text),
            agent=agent,
            budget=dict(budget or ()),
        )
    if as_json:
        typer.echo(document(made.model_dump(mode="json")))
    elif from_step is None:
        typer.echo(f"{made.id} goes on with {one}")
    else:
        typer.echo(f"{made.id} forks {one} before step {from_step}, in conversation {made.conversation_id}")


def delete(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN_ID|CONVERSATION_ID", help="What to forget; nothing with a filter or --all."),
    ] = None,
    everything: Everything = False,
    status: Statuses = None,
    conversation: OfConversation = None,
    tag: Tagged = None,
    agent_name: AgentName = None,
    error_class: FailedWith = None,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Forget a run that has ended, a conversation with all its runs, or every ended run that fits a filter."""
    admitted = Filter(status, conversation, tag, agent_name, error_class, older_than)
    one = one_or_many(run_id, admitted, everything=everything, dry_run=dry_run)
    with connected(url, api_key) as client:
        if one is None:
            act(client, "delete", admitted, dry_run=dry_run, yes=yes, as_json=as_json)
            return
        if one.startswith("conv_"):
            if not yes and sys.stdin.isatty() and len(list(client.list(conversation_id=one, limit=2))) > 1:
                confirm(f"Delete {one} with all its runs?")
            client.delete_conversation(one)
        else:
            client.delete(one)
    typer.echo(document({"deleted": one}) if as_json else f"deleted {one}")
