"""``palaver agents``: keep agents on the server, and look at them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from palaver.cli.connection import Api, say
from palaver.cli.layout import print_list
from palaver.cli.options import json_object
from palaver.cli.tables import console, since
from palaver.cli.text import document, moment, one_line
from palaver.schemas.agents import ServerAgent

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent's name.")]
_Newest = Annotated[
    int | None,
    typer.Option("--if-version", min=0, metavar="N", help="Only if this is its newest version; 0: if there is none."),
]


def put(
    name: Name,
    agent: Annotated[
        Any, typer.Argument(parser=json_object("an agent is"), metavar="JSON|@FILE", help="The whole agent.")
    ],
    if_version: _Newest = None,
    *,
    api: Api,
) -> None:
    """Keep an agent on the server; one that differs from its newest version becomes a new one."""
    with api.connected() as client:
        kept = client.put_agent(name, agent, version=if_version)
    api.show(kept, f"{kept.name}@{kept.version}")


def list_agents(api: Api) -> None:
    """List the agents on the server, each in its newest version."""
    with api.connected() as client:
        agents = [*client.agents()]
    api.show(agents, lambda: _show_list(console(), agents) if agents else say("No agents."))


def show(
    reference: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The agent, or one of its versions.")],
    api: Api,
) -> None:
    """Show one agent, whole."""
    with api.connected() as client:
        agent = client.agent(reference)
    api.show(agent, lambda: _show(console(), agent))


def delete(
    name: Name,
    if_version: _Newest = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    api: Api,
) -> None:
    """Remove an agent from the server; what runs with it goes on."""
    with api.connected() as client:
        if not yes and not api.as_json:
            typer.confirm(f"Remove the agent {name}?", abort=True, err=True)
        client.delete_agent(name, version=if_version)
    api.show({"deleted": name}, f"deleted {name}")


def _show_list(to: Console, agents: list[ServerAgent]) -> None:
    rows = [
        (
            kept.name,
            str(kept.version),
            since(to, kept.created_at),
            one_line(kept.agent.model, 80),
            ", ".join(kept.agent.tools),
        )
        for kept in agents
    ]
    print_list(to, ("AGENT", "VERSION", "CREATED", "MODEL", "TOOLS"), rows, texts=2)


def _show(to: Console, kept: ServerAgent) -> None:
    facts = {
        "agent": f"{kept.name}@{kept.version}",
        "versions": f"{kept.oldest} to {kept.newest}",
        "created": moment(kept.created_at),
        "by": kept.created_by,
    }
    for name, text in facts.items():
        if text:
            to.print(Text(f"{name:13} {one_line(text, 500)}"), soft_wrap=True)
    to.print(Text(document(kept.agent.model_dump(mode="json", exclude_defaults=True))), soft_wrap=True)
