"""The options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="PALAVER_URL", help="Where the API is [default: http://127.0.0.1:8080]."),
]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="PALAVER_API_KEY", help="The key for the API; better in the environment."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output and nothing else.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The run, as `palaver list` shows it.")]
