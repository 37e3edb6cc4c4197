"""``palaver steer``, ``pause`` and ``resume``: a run that goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from palaver.cli.connection import connected
from palaver.cli.options import ApiKey, Json, RunId, Url, words
from palaver.cli.pending import standing
from palaver.cli.words import document
from palaver.models import Run


def steer(
    run_id: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")],
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Say something into a run: its next model call sees it."""
    with connected(url, api_key) as client:
        _report(client.steer(run_id, words(text)), as_json)


def pause(
    run_id: RunId,
    now: Annotated[bool, typer.Option("--now", help="Abort a model call that is under way.")] = False,
    as_json: Json = False,
    url: Url = None,
    api_key: ApiKey = None,
) -> None:
    """Let a run begin nothing more until it is resumed; what is under way finishes."""
    with connected(url, api_key) as client:
        _report(client.pause(run_id, now), as_json)


def resume(run_id: RunId, as_json: Json = False, url: Url = None, api_key: ApiKey = None) -> None:
    """Let a paused run go on where it was."""
    with connected(url, api_key) as client:
        _report(client.resume(run_id), as_json)


def _report(run: Run, as_json: bool) -> None:
    typer.echo(document(run.model_dump(mode="json")) if as_json else standing(run))
