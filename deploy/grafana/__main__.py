"""`python -m deploy.grafana` makes the dashboard, palaver.json, of the panels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from .panels import ROWS, Panel

FILE: Final = Path(__file__).with_name("palaver.json")
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_WIDTH: Final = 24
_HEIGHT: Final = 8


def dashboard() -> dict[str, Any]:
    """What Grafana imports."""
    shown: list[dict[str, Any]] = []
    top = 0
    for title, panels in ROWS.items():
        shown.append(
            {
                "type": "row",
                "id": len(shown) + 1,
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": top},
            }
        )
        top += 1
        across = 3 if len(panels) % 3 == 0 else 4
        for number, panel in enumerate(panels):
            line, column = divmod(number, across)
            width = _WIDTH // across
            place = {"h": _HEIGHT, "w": width, "x": column * width, "y": top + line * _HEIGHT}
            shown.append(_graph(panel, len(shown) + 1, place))
        top += _HEIGHT * -(-len(panels) // across)
    return {
        "uid": "palaver",
        "title": "Palaver",
        "tags": ["palaver"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {
            "list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]
        },
        "panels": shown,
    }


def _graph(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 20 if panel.stacked else 0}
    if panel.stacked:
        custom["stacking"] = {"mode": "normal"}
    return {
        "type": "timeseries",
        "id": number,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
