"""The dashboard and the alerts: what they name is declared, and Prometheus understands them."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from deploy.grafana.__main__ import text
from deploy.grafana.panels import queries
from palaver.telemetry.metrics import all_metrics

from .kit import Kit, Skipped, Wrong, documents, lines, run

_NAME: Final = re.compile(r"\b(?:palaver|gen_ai)_\w+")
_SUFFIX: Final = re.compile(r"_(?:bucket|sum|count)$")
_AGGREGATED: Final = re.compile(r"\b(max|sum|min|avg|count|absent)(?:\s+by\s*\(([^)]*)\))?\s*$")
_PINNED: Final = re.compile(r"(\w+)=\"")
_SELECTED: Final = re.compile(r"(\w+)(?:=~|!~|!=|=)\"")
_GROUPED: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_TEXT: Final = re.compile(r"\"[^\"]*\"")
_OF_PROMETHEUS: Final = frozenset({"job", "instance", "le"})
"""Labels that it adds."""
_SUMMED: Final = (
    "palaver_api_",
    *(metric.name for metric in all_metrics().values() if metric.source == "worker" and metric.type != "gauge"),
)
"""What begins so was seen by one process alone; other metrics of an API are its settings, and a worker's gauge says the
longest of something."""
_NO_PANEL: Final = frozenset({"palaver_build_info"})
_SEVERITIES: Final = ("page", "ticket")
_PAGE: Final = "docs/how-to/alerts.md"
_ANCHOR: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


def dashboard(kit: Kit) -> list[str]:
    """It is what the panels say, and each panel asks for what there is."""
    faults = (
        [] if kit.dashboard.read_text() == text() else ["palaver.json is not what `python -m deploy.grafana` makes"]
    )
    asked = [
        (panel["title"], target["expr"])
        for panel in json.loads(kit.dashboard.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    for title, query in asked:
        faults += [f"panel {title!r}: {fault}" for fault in (*undeclared(query), *miscounted(query))]
    unseen = {name for name in all_metrics() if not any(name in query for _, query in asked)} - _NO_PANEL
    return [*faults, *(f"no panel shows {name}" for name in sorted(unseen))]


def alerts(kit: Kit) -> list[str]:
    """Each asks for what there is, says what it means and where to read on, and has a test that sets it off."""
    faults: list[str] = []
    for rule in rules(kit):
        faults += [f"alert {rule['alert']}: {fault}" for fault in _of_rule(kit, rule)]
    return faults


def promtool(kit: Kit) -> list[str]:
    """Prometheus reads the alerts, their tests hold, and it understands the queries of the dashboard.

    Raises:
        Skipped: there is no promtool.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "dashboard.yaml"
        records = [{"record": f"panel:{number}", "expr": ask(query)} for number, query in enumerate(queries().values())]
        asked.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": records}]}))
        faults: list[str] = []
        for arguments in (
            ("check", "rules", str(kit.alerts)),
            ("check", "rules", str(asked)),
            ("test", "rules", str(kit.alert_tests)),
            ("check", "config", "--syntax-only", str(kit.scraping)),
        ):
            try:
                run("promtool", *arguments)
            except Skipped:
                raise Skipped("there is no promtool; apt-get install prometheus") from None
            except Wrong as wrong:
                faults += lines(str(wrong))
    return faults


def ask(query: str, window: str = "1m") -> str:
    """A query of the dashboard as Prometheus is asked it, once Grafana has put a time in."""
    return query.replace("$__rate_interval", window)


def rules(kit: Kit) -> list[Mapping[str, Any]]:
    """The alerts."""
    (file,) = documents(kit.alerts.read_text())
    return [rule for group in file["groups"] for rule in group["rules"]]


def undeclared(query: str) -> Iterator[str]:
    """What a query names that no metric is, or that no metric of the query has as a label."""
    labels = set(_OF_PROMETHEUS)
    for name in _NAME.findall(_TEXT.sub('""', query)):
        metric = all_metrics().get(name) or all_metrics().get(_SUFFIX.sub("", name))
        if metric is None or (name != metric.name) != (metric.type == "histogram"):
            yield f"there is no metric {name}"
        else:
            labels.update(metric.labels)
    named = {*_SELECTED.findall(query)}
    for group in _GROUPED.findall(query):
        named.update(filter(None, map(str.strip, group.split(","))))
    yield from (f"none of its metrics has a label {label}" for label in sorted(named - labels))


def miscounted(query: str) -> Iterator[str]:
    """What of a query counts wrongly where there are several processes.

    Each API tells of the whole store, so `max` has to take one answer of many, with every label of the metric kept: it
    would take one status for all of them. What a process saw itself is summed up.
    """
    for found in _NAME.finditer(_TEXT.sub(lambda text: '"' + "_" * (len(text[0]) - 2) + '"', query)):
        name = found[0]
        metric = all_metrics().get(name) or all_metrics().get(_SUFFIX.sub("", name))
        if metric is None:
            continue
        how, kept = _taken(query[: found.start()])
        if metric.source in ("scripts", "store"):
            selected = query[found.end() :].partition("}")[0] if query[found.end() :].startswith("{") else ""
            labels = {*metric.labels, *(("le",) if name.endswith("_bucket") else ())} - {*_PINNED.findall(selected)}
            if how != "max":
                yield f"{name} is the same at every API: take `max` of it first, not `{how}`"
            elif labels - kept:
                yield f"`max` of {name} takes one {', '.join(sorted(labels - kept))} for all: sum them up after it"
        elif how == "max" and name.startswith(_SUMMED):
            yield f"{name} is of one process: `max` leaves out the others"


def _taken(before: str) -> tuple[str, set[str]]:
    """How the series are aggregated that are named behind ``before``, and the labels that are kept."""
    closed = 0
    for place in range(len(before) - 1, -1, -1):
        if before[place] == ")":
            closed += 1
        elif before[place] == "(" and closed:
            closed -= 1
        elif before[place] == "(" and (found := _AGGREGATED.search(before[:place])):
            return found[1], {*filter(None, map(str.strip, (found[2] or "").split(",")))}
    return "nothing", set()


def _of_rule(kit: Kit, rule: Mapping[str, Any]) -> Iterator[str]:
    yield from undeclared(rule["expr"])
    yield from miscounted(rule["expr"])
    said = rule.get("annotations", {})
    if not said.get("summary"):
        yield "no summary"
    if "for" not in rule:
        yield "no `for`: say 0m if it is to fire at once"
    if rule.get("labels", {}).get("severity") not in _SEVERITIES:
        yield f"the severity is none of {', '.join(_SEVERITIES)}"
    page, _, anchor = said.get("runbook", "").partition("#")
    if not page or not (kit.root / page).is_file() or anchor not in _anchors((kit.root / page).read_text()):
        yield f"the runbook {page}#{anchor} is not there"
    if f"alertname: {rule['alert']}\n        exp_alerts" not in kit.alert_tests.read_text():
        yield f"no test in {kit.alert_tests.name} sets it off"
    if f"| `{rule['alert']}` | {rule['labels'].get('severity')} |" not in (kit.root / _PAGE).read_text():
        yield f"{_PAGE} has no row of it with its severity"


def _anchors(page: str) -> set[str]:
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _ANCHOR.findall(page)}
