"""OpenAI's JavaScript client in a page of another origin: ``make check-clients`` runs this, with the package from a
package index."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser import browser, needs_chromium, page
from tests.openai_clients.install import HERE
from tests.process.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.chaos, needs_chromium]

_PAGE = """<script type="module">
import OpenAI, { APIError } from "./node_modules/openai/index.mjs";
const client = new OpenAI({ baseURL: "%s/openai/v1", apiKey: "%s", dangerouslyAllowBrowser: true,
  organization: "org", project: "project", maxRetries: 1 });
const said = {};
const response = await client.responses.create({ model: "fake/echo", input: "hi" });
said.response = [response.output_text, typeof response._request_id];
said.stream = "";
const chat = { model: "fake/echo", messages: [{ role: "user", content: "ho" }], stream: true };
for await (const chunk of await client.chat.completions.create(chat))
  said.stream += chunk.choices[0]?.delta?.content ?? "";
said.refused = await client.responses.retrieve("resp_none").catch((error) =>
  [error instanceof APIError, error.status, typeof error.requestID]);
said.models = (await client.models.list()).data.length > 0;
window.said = said;
</script>"""
KEY = "a-page-0123456789abcdef"


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder with the package, and the origin that serves it."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("OPENAI'S CLIENT IS NOT CHECKED IN A PAGE: there is no npm; install Node.js 20 or newer")
    folder = tmp_path / "page"
    shutil.copytree(HERE / "node", folder)
    done = subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"OPENAI'S CLIENT IS NOT CHECKED IN A PAGE: {done.stderr.decode()[-300:]}")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_it_asks_and_reads(served: tuple[Path, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, origin = served
    environment = {"PALAVER_API_KEYS": f"page={KEY}", "PALAVER_CORS_ORIGINS": origin}
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), environment=environment)
    cluster.http.headers["Authorization"] = f"Bearer {KEY}"
    with cluster, browser(tmp_path) as address, page(address) as tab:
        (folder / "index.html").write_text(_PAGE % (cluster.stack.url, KEY))
        tab.open(f"{origin}/index.html")
        tab.until("window.said")
        assert tab.evaluate("window.said") == {
            "response": ["echo: hi", "string"],
            "stream": "echo: ho",
            "refused": [True, 404, "string"],
            "models": True,
        }
        assert tab.errors == []
