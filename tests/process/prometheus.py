"""A real Prometheus that scrapes the stack every other second, with our alerts in seconds instead of minutes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx

from features.stack.child import ChildCommand
from features.stack.ports import free_port
from features.stack.readiness import answers_ok

PROGRAM: Final = shutil.which("prometheus")
_CONFIG: Final = """
global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: palaver
    static_configs: [{{targets: {targets}}}]
"""
_MINUTES: Final = re.compile(r"(?<=\[)(\d+)m(?=\])|(?<=for: )(\d+)m")


class Prometheus:
    """Scrapes these addresses; on entry it has begun to."""

    def __init__(self, folder: Path, alerts: Path, *urls: str) -> None:
        folder.mkdir()
        targets = [urlsplit(url).netloc for url in urls]
        (folder / "prometheus.yaml").write_text(_CONFIG.format(targets=targets))
        (folder / "alerts.yaml").write_text(_MINUTES.sub(lambda found: f"{found[1] or found[2]}s", alerts.read_text()))
        url = f"http://127.0.0.1:{free_port()}"
        self._child = ChildCommand(
            "prometheus",
            [
                str(PROGRAM),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={urlsplit(url).netloc}",
                "--log.level=warn",
            ],
            environment={},
            log_path=folder / "log",
            ready=lambda _: answers_ok(f"{url}/-/ready"),
        )
        self._http = httpx.Client(base_url=f"{url}/api/v1", timeout=10, trust_env=False)
        self._begun = time.time()

    def __enter__(self) -> Self:
        self._child.start()
        self._child.wait_until_ready(time.monotonic() + 60)
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._child.terminate()
        self._child.reap(time.monotonic() + 10)

    def series(self, query: str) -> list[Mapping[str, Any]]:
        """What a query answers over all the time since the start, a point a second; without what is no number."""
        asked = {"query": query, "start": str(self._begun), "end": str(time.time()), "step": "1"}
        found: list[Mapping[str, Any]] = self._ask("/query_range", **asked)["result"]
        return [each for each in found if any(value != "NaN" for _, value in each["values"])]

    def fired(self) -> set[tuple[str, str]]:
        """Alerts that have fired, each with the queue, provider or class that it was of."""
        labels = [each["metric"] for each in self.series('ALERTS{alertstate="firing"}')]
        of = ("queue", "provider", "error_class")
        return {(each["alertname"], next((each[name] for name in of if name in each), "")) for each in labels}

    def rules(self) -> Mapping[str, tuple[str, str]]:
        """How it fares with each alert, `ok` or not, and what went wrong."""
        groups = self._ask("/rules")["groups"]
        return {
            rule["name"]: (rule["health"], rule.get("lastError", "")) for group in groups for rule in group["rules"]
        }

    def _ask(self, path: str, **parameters: str) -> Any:
        answer = self._http.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]
