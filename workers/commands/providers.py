"""``palaver providers``: the model providers as this process could call them, and whether they answer.

A program of its own, for where workers run: it reads the same table, keys and addresses as a worker.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import urlsplit

from palaver.cli.text import checked, clock, document, one_line, outage_of
from palaver.config.exits import EX_USAGE, refuse, refusing, run_program
from palaver.config.providers import Provider, load_providers
from palaver.config.settings import settings
from palaver.errors import ConfigurationError, classify
from palaver.store import Store
from palaver.store.fleet.provider_states import Outage, ProviderUsage
from palaver.vocabulary.limits import limit_of
from palaver.vocabulary.names import did_you_mean

from .provider_check import ProviderFinding, check_all

_PATIENCE: Final = 30.0
"""Seconds for one question, by default; a model that is to be loaded first may need more."""
_LONGEST: Final = 600.0
_STORE_WAIT: Final = 3.0
"""Seconds for what the store knows."""
_SAID: Final = limit_of("provider_message")
_MOST: Final = 600
"""Characters of a sentence."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code, which is 1 if a provider does not answer."""
    options = _parser().parse_args(arguments)
    with refusing():
        table = load_providers(settings().providers)
        if not table:
            raise ConfigurationError("PALAVER_PROVIDERS: no provider: point it at a TOML file with [providers.NAME]")
    if options.command is None:
        asyncio.run(_list(table, as_json=options.json))
        return 0
    return asyncio.run(_check(_chosen(table, options.names, options.model), options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="palaver providers",
        description="List the model providers of PALAVER_PROVIDERS: where they are, whether the variables with their "
        "keys are set, and whether they are left alone for a while.",
    )
    parser.add_argument("--json", action="store_true", help="JSON on standard output and nothing else")
    check = parser.add_subparsers(dest="command", title="commands").add_parser(
        "check",
        help="ask each of them for one token",
        description="Ask each provider for one token, as workers do, and say what is wrong. Exits 1 if something is.",
    )
    check.add_argument("names", nargs="*", metavar="NAME", help="only these providers")
    check.add_argument("--model", help="the model to ask for, with or without the provider's name before it")
    check.add_argument(
        "--timeout", type=_seconds, default=_PATIENCE, metavar="SECONDS", help=f"for one question [{_PATIENCE:g}]"
    )
    check.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as above")
    return parser


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) <= _LONGEST:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most {_LONGEST:g}")
    return seconds


def _chosen(table: Mapping[str, Provider], names: Sequence[str], model: str | None) -> Mapping[str, Provider]:
    """The providers to ask: those that are named, or the one that the model names, or all."""
    for name in names:
        if name not in table:
            refuse(
                f"there is no provider {name!r}{did_you_mean(name, table) or '; there are: ' + ', '.join(table)}",
                EX_USAGE,
            )
    named = (model or "").partition("/")[0]
    return {name: table[name] for name in names or ([named] if named in table else table)}


async def _list(table: Mapping[str, Provider], *, as_json: bool) -> None:
    used = await _usage(table)
    rows = [_row(name, provider, used.get(name)) for name, provider in table.items()]
    if as_json:
        print(document({"data": rows}))
        return
    cells = [("NAME", "PROTOCOL", "ADDRESS", "KEY", "LEFT ALONE UNTIL")]
    for row, state in zip(rows, map(used.get, table), strict=True):
        key = f"{row['api_key_env']} ({'set' if row['key_set'] else 'NOT SET'})" if row["api_key_env"] else "none"
        until = "?" if state is None else clock(state.cooling_until) if state.cooling_until else ""
        cells.append((row["name"], row["protocol"], row["base_url"], key, until))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for row in rows:
        for outage in row["outages"]:
            print(outage_of(row["name"], outage))


def _row(name: str, provider: Provider, used: ProviderUsage | None) -> dict[str, Any]:
    place = urlsplit(provider.base_url)
    shown = place._replace(netloc=place.netloc.rpartition("@")[2]).geturl()
    return {
        "name": name,
        "protocol": provider.protocol,
        "base_url": shown,
        "api_key_env": provider.api_key_env,
        "key_set": provider.has_key if provider.api_key_env else None,
        "cooling_until": used.cooling_until.isoformat() if used and used.cooling_until else None,
        "waiting": used.waiting if used else None,
        "outages": [_outage(outage) for outage in used.outages] if used else [],
        "max_in_flight": provider.max_in_flight,
        "requests_per_minute": provider.requests_per_minute,
        "tokens_per_minute": provider.tokens_per_minute,
        "models": [*provider.models],
    }


def _outage(outage: Outage) -> dict[str, Any]:
    return {
        "model": outage.model,
        "since": outage.since.isoformat(),
        "error_class": outage.failure.error_class,
        "code": outage.failure.code,
        "message": outage.failure.message,
        "next_probe": outage.next_probe.isoformat(),
        "waiting": outage.waiting,
    }


async def _usage(table: Mapping[str, Provider]) -> Mapping[str, ProviderUsage]:
    """Read the store's record of their usage; empty, with a sentence on standard error, if it does not answer."""
    try:
        store = Store.connect(settings())
        try:
            async with asyncio.timeout(_STORE_WAIT):
                return {usage.name: usage for usage in await store.providers.state(table)}
        finally:
            await store.close()
    except Exception as error:
        why = str(error) if isinstance(error, ConfigurationError) else classify(error, source="store").message
        print(f"palaver: whether they are left alone is not known: {one_line(why)}", file=sys.stderr)
        return {}


async def _check(chosen: Mapping[str, Provider], options: argparse.Namespace) -> int:
    model: str | None = options.model
    if model and model.partition("/")[0] in chosen:
        model = model.partition("/")[2]
    findings: list[ProviderFinding] = []
    width = max(map(len, chosen))
    async for finding in check_all(chosen, model, options.timeout):
        findings.append(finding)
        if not options.json:
            print(_described(finding, width), flush=True)
    if options.json:
        print(
            document({"data": [asdict(finding) for finding in sorted(findings, key=lambda finding: finding.provider)]})
        )
    return 0 if all(finding.ok for finding in findings) else 1


def _described(finding: ProviderFinding, width: int) -> str:
    """Format a line such as ``openai ok It answers.``, with the advice and the provider's message on lines of their
    own."""
    notes = {"it said": one_line(finding.provider_said, _SAID), "what to do": one_line(finding.advice, _MOST)}
    return checked(finding.provider, one_line(finding.said, _MOST), notes, ok=finding.ok, width=width)


if __name__ == "__main__":
    run_program(main)
