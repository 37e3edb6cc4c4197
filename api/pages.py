"""The OpenAPI document as a page to read: made here, without a script, a font or a style from anywhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

_METHODS: Final = ("get", "post", "put", "patch", "delete")
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_CODE: Final = re.compile(r"`([^`]+)`")
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
code, pre { font: 13px/1.45 ui-monospace, monospace; background: #f3f3f3; border-radius: 3px }
code { padding: 1px 4px } pre { padding: .7rem; overflow-x: auto }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc } h3 { margin: 2rem 0 .3rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .25rem .6rem }
tr { border-top: 1px solid #e5e5e5 } nav li { list-style: none } .method { font-weight: 700; text-transform: uppercase }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #ddd } code, pre { background: #2a2a2a } a { color: #8ab4f8 }
  tr { border-color: #333 }
}
"""


async def docs(request: Request) -> Response:
    """The page. Nothing on it can run, and nothing is fetched."""
    app: FastAPI = request.app
    return HTMLResponse(
        page(app.openapi()), headers={"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff"}
    )


def page(document: Mapping[str, Any]) -> str:
    """The whole document as HTML."""
    title = escape(document["info"]["title"])
    return "".join(
        (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}: API</title><style>{_STYLE}</style>",
            "<meta name=viewport content='width=device-width'>",
            f"<h1>{title}</h1><p>{_text(document['info'].get('summary', ''))} ",
            "This page shows <a href=openapi.json>openapi.json</a>.</p>",
            "<h2>Routes</h2><nav><ul>",
            *(
                f"<li><a href='#{_anchor(method, path)}'><code>{method.upper()} {escape(path)}</code></a> "
                f"{_text(found.get('summary', ''))}"
                for method, path, found in _operations(document)
            ),
            "</ul></nav>",
            *(part for method, path, found in _operations(document) for part in _operation(method, path, found)),
            "<h2>Schemas</h2>",
            *(part for name, schema in document["components"]["schemas"].items() for part in _schema(name, schema)),
            "</html>",
        )
    )


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield method, path, methods[method]


def _operation(method: str, path: str, found: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3 id='{_anchor(method, path)}'><span class=method>{method}</span> <code>{escape(path)}</code></h3>"
    key = "" if found.get("security") else " Wants no key."
    yield f"<p><b>{_text(found.get('summary', ''))}.</b> {_text(found.get('description', ''))}{key}</p>"
    if rows := [_parameter(each) for each in found.get("parameters", ())]:
        yield f"<table><tr><th>parameter<th>in<th>type<th>{''.join(rows)}</table>"
    if body := found.get("requestBody"):
        content = body["content"]["application/json"]
        needed = "required" if body.get("required") else "may be left out"
        yield f"<p>Body ({needed}): {_type(content['schema'])}</p>"
        for name, example in content.get("examples", {}).items():
            yield f"<details><summary>{escape(name)}</summary><pre>{_json(example['value'])}</pre></details>"
    yield "<table><tr><th>answer<th><th>"
    for status, answer in found["responses"].items():
        shown = answer.get("content", {}) if int(status) < 400 else {}
        kinds = [f"{_type(each['schema'])} <code>{escape(kind)}</code>" for kind, each in shown.items()]
        yield f"<tr><td>{escape(status)}<td>{_text(answer.get('description', ''))}<td>{'<br>'.join(kinds)}"
    yield "</table>"


def _parameter(found: Mapping[str, Any]) -> str:
    schema = found["schema"]
    rest = {name: value for name, value in schema.items() if name in {"default", "minimum", "maximum", "pattern"}}
    facts = " ".join(f"{name} <code>{escape(json.dumps(value))}</code>" for name, value in rest.items())
    told = f"{_text(found.get('description', ''))} {facts}"
    return f"<tr><td><code>{escape(found['name'])}</code><td>{found['in']}<td>{_type(schema)}<td>{told}"


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3 id='schema-{escape(name)}'>{escape(name)}</h3><p>{_text(schema.get('description', ''))}</p>"
    if "properties" not in schema:
        yield f"<pre>{_json(schema)}</pre>"
        return
    yield "<table>"
    required = schema.get("required", ())
    for field, facts in schema["properties"].items():
        default = f" Default <code>{escape(json.dumps(facts['default']))}</code>." if "default" in facts else ""
        told = _text(facts.get("description", "")) + (" Required." if field in required else "") + default
        yield f"<tr><td><code>{escape(field)}</code><td>{_type(facts)}<td>{told}"
    yield "</table>"


def _type(schema: Mapping[str, Any]) -> str:
    """What a value is, in few words, with links to what is described elsewhere."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#schema-{name}'>{name}</a>"
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[several])))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"<code>{escape(str(each))}</code>" for each in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else escape(kind)


def _anchor(method: str, path: str) -> str:
    return escape(f"{method}{path}".replace("/", "-").replace("{", "").replace("}", ""))


def _json(value: object) -> str:
    return escape(json.dumps(value, indent=2, ensure_ascii=False))


def _text(written: str) -> str:
    """Prose, with what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(written))
