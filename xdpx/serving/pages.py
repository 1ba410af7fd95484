"""The page to try a model, and the page that documents the API. Neither loads anything from another host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any


def file_text(name: str) -> str:
    """Return the text of a file of the page, '' if there is no such file."""
    try:
        return resources.files("xdpx.serving").joinpath("page", name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def docs_page(schema: Mapping[str, Any]) -> str:
    """Return a page that lists every address of an OpenAPI schema, its bodies with examples, and its answers."""
    parts = "".join(
        section for path, verbs in schema["paths"].items() for verb, told in verbs.items()
        for section in _section(path, verb, told, schema)
    )  # fmt: skip
    return (
        file_text("docs.html").replace("{{sections}}", parts).replace("{{version}}", escape(schema["info"]["version"]))
    )


def _section(path: str, verb: str, told: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<section><h2><b class="{verb}">{verb.upper()}</b> <code>{escape(path)}</code></h2>'
    yield f"<p>{escape(told.get('description', ''))}</p>"
    body = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for each in [_followed(part, schema) for part in body.get("oneOf", body.get("anyOf", []))]:
        example = json.dumps({name: about["examples"][0] for name, about in each["properties"].items()})
        asked = f"curl -s http://HOST:PORT{path} -H 'Content-Type: application/json' \\\n  -d '{example}'"
        yield f"<p>{escape(each.get('description', ''))}</p><pre>{escape(asked)}</pre>"
    rows = [
        f"<tr><th>{escape(code)}</th><td>{escape(answer.get('description', ''))}</td></tr>"
        for code, answer in told.get("responses", {}).items()
    ]
    yield f"<table>{''.join(rows)}</table></section>"


def _followed(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = part.get("$ref", "").rpartition("/")[2]
    found: Mapping[str, Any] = schema["components"]["schemas"].get(name, part)
    return found
