"""``palaver webhooks``: be told of what becomes of runs, and look at what was delivered."""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

import typer
from rich.console import Console
from rich.text import Text

from palaver.cli.commands import CommandGroup
from palaver.cli.connection import Api, say
from palaver.cli.layout import print_list
from palaver.cli.tables import console, since
from palaver.cli.text import document, moment, one_line
from palaver.schemas.webhooks import MadeWebhook, WebhookDelivery, WebhookInfo
from palaver.vocabulary.webhooks import DeliveryState, Format

from .terms import ALL_EVENT_TYPES

Webhook = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook's id.")]
_Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help=f"A type of its events, of {', '.join(ALL_EVENT_TYPES)} [all]."),
]


def create(
    address: Annotated[str, typer.Argument(metavar="URL", help="Where events are sent to.")],
    type: _Types = None,
    format: Annotated[str, typer.Option(help=f"The form of the bodies: {' or '.join(get_args(Format))}.")] = "palaver",
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    *,
    api: Api,
) -> None:
    """Make a webhook; its secret is shown this once."""
    form: Any = format
    with api.connected() as client:
        made = client.create_webhook(address, types=type or None, format=form, description=description)
    api.show(made, lambda: _show_made(made))


def list_webhooks(api: Api) -> None:
    """List the webhooks, and how they fare."""
    with api.connected() as client:
        webhooks = [*client.webhooks()]
    api.show(webhooks, lambda: _show_list(console(), webhooks) if webhooks else say("No webhooks."))


def show(webhook: Webhook, api: Api) -> None:
    """Show one webhook, whole."""
    with api.connected() as client:
        found = client.webhook(webhook)
    api.show(found, lambda: _show(console(), found))


def enable(webhook: Webhook, api: Api) -> None:
    """Turn a webhook on again."""
    with api.connected() as client:
        found = client.change_webhook(webhook, enabled=True)
    api.show(found, f"{found.id} is on")


def disable(webhook: Webhook, api: Api) -> None:
    """Send nothing more to a webhook; what is pending waits."""
    with api.connected() as client:
        found = client.change_webhook(webhook, enabled=False)
    api.show(found, f"{found.id} is off")


def rotate(
    webhook: Webhook,
    overlap: Annotated[
        int | None, typer.Option(min=0, metavar="SECONDS", help="How long the old one signs, too [a day].")
    ] = None,
    *,
    api: Api,
) -> None:
    """Make a new secret, and show it this once."""
    with api.connected() as client:
        made = client.rotate_webhook(webhook, overlap)
    api.show(made, lambda: _show_made(made))


def delete(
    webhook: Webhook,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    api: Api,
) -> None:
    """Remove a webhook and all of its deliveries."""
    with api.connected() as client:
        if not yes and not api.as_json:
            typer.confirm(f"Remove the webhook {webhook}?", abort=True, err=True)
        client.delete_webhook(webhook)
    api.show({"deleted": webhook}, f"deleted {webhook}")


def deliveries(
    webhook: Webhook,
    state: Annotated[
        str | None, typer.Option(help=f"Only those that are {', '.join(get_args(DeliveryState))}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, at most.")] = 20,
    *,
    api: Api,
) -> None:
    """List deliveries, the newest first, each with its last attempt."""
    of: Any = state
    found: list[WebhookDelivery] = []
    with api.connected() as client:
        for delivery in client.deliveries(webhook, state=of):
            found.append(delivery)
            if len(found) == limit:
                break
    api.show(found, lambda: _show_deliveries(console(), found) if found else say("No deliveries."))


def replay(
    webhook: Webhook,
    deliveries: Annotated[list[str], typer.Argument(metavar="DELIVERY...", help="Their ids.")],
    api: Api,
) -> None:
    """Make deliveries again that have ended."""
    with api.connected() as client:
        replayed = client.replay_deliveries(webhook, deliveries)
    api.show(replayed, f"{replayed.replayed} of {len(deliveries)} are made again")


def _show_made(made: MadeWebhook) -> None:
    say(f"{made.id}. The secret is shown this once:")
    print(made.secret)


def _show_list(to: Console, webhooks: list[WebhookInfo]) -> None:
    rows = [
        (
            each.id,
            "on" if each.enabled else f"off: {each.off_because}",
            str(each.pending),
            str(each.delivered),
            str(each.failed + each.dropped),
            one_line(each.url, 200),
        )
        for each in webhooks
    ]
    print_list(to, ("WEBHOOK", "STATE", "PENDING", "DELIVERED", "FAILED", "URL"), rows, texts=1)


def _show(to: Console, webhook: WebhookInfo) -> None:
    to.print(Text(document(webhook.model_dump(mode="json", exclude_none=True))), soft_wrap=True)


def _show_deliveries(to: Console, found: list[WebhookDelivery]) -> None:
    rows = []
    for each in found:
        last = each.attempts[-1] if each.attempts else None
        said = "" if last is None else str(last.error or last.status)
        coming = moment(each.next_attempt_at) if each.next_attempt_at else ""
        rows.append((each.id, each.type, since(to, each.created_at), each.state, str(len(each.attempts)), said, coming))
    print_list(to, ("DELIVERY", "TYPE", "CREATED", "STATE", "ATTEMPTS", "LAST", "NEXT"), rows, texts=1)


COMMANDS: Final = (
    CommandGroup(
        "webhooks",
        "Be told of what becomes of runs: make webhooks, and look at their deliveries.",
        {
            "create": create,
            "list": list_webhooks,
            "show": show,
            "enable": enable,
            "disable": disable,
            "rotate": rotate,
            "delete": delete,
            "deliveries": deliveries,
            "replay": replay,
        },
    ),
)
