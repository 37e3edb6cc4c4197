"""``palaver tools check``: the sources of tools that the file of ``PALAVER_TOOL_SOURCES`` declares, and whether they
answer.

A program of its own, for where workers run: it reads the same file, secrets and addresses as a worker.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from palaver.cli.text import checked, document, one_line
from palaver.config.exits import EX_USAGE, refuse, refusing, run_program
from palaver.config.settings import Settings, settings
from palaver.errors import ConfigurationError
from palaver.vocabulary.names import did_you_mean

from ..sources.guests import VARIABLE, SourceFinding, SourceTables, declared_sources

_LONGEST: Final = 600


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code, which is 1 if a source does not answer."""
    options = _parser().parse_args(arguments)
    with refusing():
        here = settings()
        sources = declared_sources(here.tool_sources)
        if not sources:
            raise ConfigurationError(f"{VARIABLE}: no source: point it at a TOML file with [KIND.NAME]")
        return asyncio.run(_check(here, _chosen(sources, options.names), as_json=options.json))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="palaver tools check",
        description="Look at each source of tools that the file of PALAVER_TOOL_SOURCES declares: whether it answers, "
        "and which tools it has. Exits 1 if something is wrong, and 78 if the file is.",
    )
    parser.add_argument("names", nargs="*", metavar="KIND.NAME", help="only these sources")
    parser.add_argument("--json", action="store_true", help="JSON on standard output and nothing else")
    return parser


def _chosen(sources: Sequence[SourceTables[Any]], names: Sequence[str]) -> Sequence[SourceTables[Any]]:
    """Return the sources of these tables, or all."""
    known = [table for source in sources for table in source.tables]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
            refuse(f"there is no source {name!r}{hint}", EX_USAGE)
    return [source.only(names or known) for source in sources]


async def _check(here: Settings, sources: Sequence[SourceTables[Any]], *, as_json: bool) -> int:
    findings: list[SourceFinding] = []
    for source in sources:
        async for finding in source.guest.check(here, source.sections):
            findings.append(finding)
            if not as_json:
                print(_described(finding), flush=True)
    if as_json:
        print(document({"data": [asdict(finding) for finding in findings]}))
    return 0 if all(finding.ok for finding in findings) else 1


def _described(finding: SourceFinding) -> str:
    """``http.crm  ok     It answers.``, with its tools and what to do on lines of their own."""
    notes = {"tools": one_line(", ".join(finding.tools), _LONGEST), "what to do": one_line(finding.advice, _LONGEST)}
    return checked(finding.source, one_line(finding.found, _LONGEST), notes, ok=finding.ok)


if __name__ == "__main__":
    run_program(main)
