"""``palaver conversations``: list, show and change them, and watch all of their runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Annotated, Any, Final, Literal, get_args

import typer
from rich.console import Console
from rich.text import Text

from palaver.cli import options
from palaver.cli.connection import Api, say
from palaver.cli.layout import print_list
from palaver.cli.options import entry
from palaver.cli.tables import console, since
from palaver.cli.text import document, moment, one_line, usage
from palaver.cli.transcript import Transcript
from palaver.client import Palaver
from palaver.events import ConversationDeleted, RunCreated, RunFinished
from palaver.schemas.conversation import Conversation, ConversationOrder

ConversationId = Annotated[str, typer.Argument(metavar="CONVERSATION_ID", help="The conversation's id.")]
_Pairs = Annotated[
    list[Any] | None,
    typer.Option("--metadata", parser=entry, metavar="KEY=VALUE", help="Repeatable."),
]
_Tags = Annotated[list[str] | None, typer.Option("--tag", help="Repeatable.")]
_ORDERS: Final = get_args(ConversationOrder)


def _order(text: str) -> str:
    if text not in _ORDERS:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(_ORDERS)}")
    return text


def list_conversations(
    title: Annotated[str | None, typer.Option("--title", help="Only with this in their title.")] = None,
    status: Annotated[list[str] | None, typer.Option("--status", "-s", help="Only these; `idle` without runs.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only with this tag.")] = None,
    metadata: _Pairs = None,
    news: Annotated[
        Any, typer.Option("--since", parser=options.since, metavar="TIME", help="Only with news since: 12h, or a date.")
    ] = None,
    order: Annotated[
        Any, typer.Option("--order", parser=_order, metavar="ORDER", help=", ".join(_ORDERS))
    ] = "-updated",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    *,
    api: Api,
) -> None:
    """List conversations, those with news first."""
    with api.connected() as client:
        conversations = [
            *client.conversations(
                limit=limit,
                order=order,
                title=title,
                status=status,
                tag=tag,
                metadata=dict(metadata or ()) or None,
                updated_after=news,
            )
        ]
    api.show(conversations, lambda: show_list(console(), conversations) if conversations else say("No conversations."))


def show_conversation(conversation_id: ConversationId, api: Api) -> None:
    """Show one conversation: what it is about, what is active in it, what waits."""
    with api.connected() as client:
        conversation = client.conversation(conversation_id)
    api.show(conversation, lambda: _show(console(), conversation))


def rename(
    conversation_id: ConversationId,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="Empty for none.")],
    api: Api,
) -> None:
    """Give a conversation another title."""
    with api.connected() as client:
        conversation = client.change_conversation(conversation_id, title=title or None)
    has = f"is {conversation.title!r}" if conversation.title else "has no title"
    api.show(conversation, f"{conversation.id} {has}")


def tag(conversation_id: ConversationId, tag: _Tags = None, metadata: _Pairs = None, *, api: Api) -> None:
    """Give a conversation these tags, or this metadata, in the place of those that it has; what is not given stays."""
    if not tag and not metadata:
        raise typer.BadParameter("what is it to have? Give --tag or --metadata")
    changes: dict[str, Any] = {}
    if tag:
        changes["tags"] = tag
    if metadata:
        changes["metadata"] = dict(metadata)
    with api.connected() as client:
        conversation = client.change_conversation(conversation_id, **changes)
    api.show(conversation, lambda: _show(console(), conversation))


def delete_conversation(
    conversation_id: ConversationId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    api: Api,
) -> None:
    """Forget a conversation with all its runs."""
    with api.connected() as client:
        if not yes and not api.as_json:
            typer.confirm(f"Delete {conversation_id} with all its runs?", abort=True, err=True)
        client.delete_conversation(conversation_id)
    api.show({"deleted": conversation_id}, f"deleted {conversation_id}")


def watch_conversation(
    client: Palaver, conversation_id: str, after: str, *, as_json: bool, reasoning: bool = False
) -> None:
    """Write what happens in a conversation, run after run, until it is deleted or the user leaves."""
    transcript = Transcript(console(), show_input=True)
    include: Literal["reasoning"] | None = "reasoning" if reasoning else None
    with closing(client.conversation_events(conversation_id, after, include=include)) as events:
        for event in events:
            if as_json:
                typer.echo(document(event.model_dump(mode="json")))
                continue
            transcript.show(event)
            match event:
                case RunCreated():
                    transcript.note(f"run {event.run_id}")
                case RunFinished():
                    style = "green" if event.status == "completed" else "yellow"
                    transcript.note(f"{event.status} ({event.stop_reason}) · {event.run_id}", style)
                case ConversationDeleted():
                    say(f"{conversation_id} is gone.")


def show_list(to: Console, conversations: Iterable[Conversation]) -> None:
    """One line a conversation, or on a terminal as many as it needs there."""
    rows = [
        (
            conversation.id,
            str(conversation.status),
            since(to, conversation.updated_at),
            one_line(conversation.title or "", 80),
            ", ".join(conversation.tags),
        )
        for conversation in conversations
    ]
    print_list(to, ("CONVERSATION", "STATUS", "UPDATED", "TITLE", "TAGS"), rows, texts=2)


def _show(to: Console, conversation: Conversation) -> None:
    last = conversation.last_outcome
    facts = {
        "conversation": conversation.id,
        "title": conversation.title,
        "status": str(conversation.status),
        "agent": conversation.agent and conversation.agent.name,
        "model": conversation.agent and conversation.agent.model,
        "created": moment(conversation.created_at),
        "updated": moment(conversation.updated_at),
        "entries": str(conversation.entries),
        "archived": "it had left Redis" if conversation.archived else None,
        "active run": conversation.active_run,
        "queued runs": ", ".join(conversation.queued_runs),
        "last run": last and f"{last.run_id}: {last.status}",
        "used": usage(conversation.usage) if conversation.usage.model_calls else None,
        "tags": ", ".join(conversation.tags),
        "metadata": ", ".join(f"{name}={text}" for name, text in conversation.metadata.items()),
    }
    for name, text in facts.items():
        if text:
            to.print(Text(f"{name:13} {one_line(text, 500)}"), soft_wrap=True)
