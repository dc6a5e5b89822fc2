"""Descriptions of the interface from the table of routes: OpenAPI 3.1 and an HTML page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ostraka
from ostraka.core.files import environment
from ostraka.serve.requests import KEY, MOST_TEXT, WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.serve.app import Route
    from ostraka.serve.requests import Rows

_INTEGER, _NUMBER, _TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
_HEX = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_LEFT = {
    "description": "Epsilon, at the ledger's delta, that the client has left: publishable, rounded down.",
    "schema": {"type": "string", "pattern": r"^\d+\.\d{6}$"},
}
_ANSWERS = {
    "description": "How many more answers the client can be given, at least.",
    "schema": {"type": "string", "pattern": r"^\d+$"},
}
_LASTS = {
    "description": "Seconds until the client has no answers left, at its own rate of the last day.",
    "schema": {"type": "string", "pattern": r"^\d+$"},
}
_PAID = {
    400: "The body or the Idempotency-Key is not as described. Nothing was charged.",
    402: "The budget does not pay for it. Nothing was answered.",
    409: WORDS["key_conflict"],
    413: WORDS["too_large"],
    415: WORDS["bad_content"],
    429: WORDS["too_fast"],
    500: WORDS["failed"],
    503: WORDS["busy"],
}
# Which refusals a route can give, beside 404 and 405 for what is no route.
_CODES = {
    "/v1/label": _PAID,
    "/v1/write": _PAID | {503: WORDS["unfinished"]},
    "/v1/ledger/receipt/{seq}": {404: "No such receipt, or it belongs to another client."},
    "/v1/grants": {
        400: "The body is not as described.",
        404: "There is no such client.",
        413: WORDS["too_large"],
        415: WORDS["bad_content"],
    },
    "/v1/grants/{seq}": {
        403: f"Only for the role owner. And {WORDS['same_owner']}.",
        404: "There is no such proposal.",
        409: WORDS["proposal_ended"],
        413: WORDS["too_large"],
        415: WORDS["bad_content"],
    },
}
# Every route can refuse what is no request, what comes too often without a key, and what it cannot do now.
_ALWAYS = {400: WORDS["bad_request"], 429: WORDS["too_many"], 500: WORDS["failed"], 503: WORDS["unavailable"]}


def _object(**members: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": members,
        "required": sorted(members),
        "additionalProperties": False,
    }


_RECEIPT = _object(seq=_INTEGER, head=_HEX)


def described(rows: Rows, classes: Sequence[Any], routes: Sequence[Route[Any]]) -> dict[str, Any]:
    """Return the OpenAPI document of a service that labels."""
    text = {**_TEXT, "maxLength": MOST_TEXT}
    row = {
        "type": "array",
        "description": "Cells: " + ", ".join(rows.columns),
        "prefixItems": [_NUMBER if is_number else text for is_number in rows.numeric],
        "items": False,
        "minItems": len(rows.columns),
    }
    answer = _object(label={"enum": [*classes, None]}, abstained={"type": "boolean"}, receipt=_RECEIPT)
    spent: dict[str, Any] = {"epsilon": _NUMBER, "spent": _NUMBER, "left": _NUMBER, "answers_left": _INTEGER}
    spent["seconds_to_empty"] = {"type": ["number", "null"]}
    account = {"client": _TEXT, **spent}
    many = {"type": "array", "items": row, "minItems": 1, "maxItems": rows.most}
    whole: dict[str, Any] = {"delta": _NUMBER, "unit": _TEXT}
    clients = {"type": "array", "items": _object(**account)}
    schemas = {
        "Question": {"oneOf": [_object(row=row), _object(rows=many)]},
        "Answer": answer,
        "Answers": _object(results={"type": "array", "items": answer, "minItems": 1}),
        "Budget": {"oneOf": [_object(**account, **whole), _object(**spent, **whole, clients=clients)]},
        "Receipt": _object(seq=_INTEGER, head=_HEX, client=_TEXT, key=_TEXT, digest=_HEX, mechanism=_TEXT),
        "Proposal": _object(client=_TEXT, epsilon={"type": "number", "exclusiveMinimum": 0}),
    }
    return _document("labels from private data", routes, schemas)


def answering(routes: Sequence[Route[Any]], *, longest: int) -> dict[str, Any]:
    """Return the OpenAPI document of a service that answers questions in words."""
    question = _object(question={**_TEXT, "minLength": 1, "maxLength": longest})
    mine = _object(client=_TEXT, epsilon=_NUMBER, spent=_NUMBER, left=_NUMBER)
    answer = _object(text=_TEXT, receipt=_RECEIPT)
    return _document(
        "answers from private documents", routes, {"Question": question, "Answer": answer, "Budget": mine}
    )


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


_HTML = {"description": "Text.", "content": {"text/html": {"schema": _TEXT}}}
# What a route returns that does what it was asked.
_DONE: dict[str, dict[str, Any]] = {
    "/": _HTML,
    "/docs": _HTML,
    "/metrics": {"description": "Text.", "content": {"text/plain": {"schema": _TEXT}}},
    "/v1/label": {
        "description": "Paid for.",
        "headers": {
            "Ostraka-Left": _LEFT,
            "Ostraka-Answers-Left": _ANSWERS,
            "Ostraka-Seconds-To-Empty": _LASTS,
        },
        "content": _json({"oneOf": [_ref("Answer"), _ref("Answers")]}),
    },
    "/v1/write": {
        "description": "Paid for.",
        "headers": {"Ostraka-Left": _LEFT},
        "content": _json(_ref("Answer")),
    },
    "/v1/budget": {"description": "Done.", "content": _json(_ref("Budget"))},
    "/v1/ledger/receipt/{seq}": {"description": "Done.", "content": _json(_ref("Receipt"))},
}
_ELSE = {"description": "Done.", "content": _json({"type": "object"})}


def _document(what: str, routes: Sequence[Route[Any]], schemas: dict[str, Any]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for route in routes:
        done = "202" if route.path == "/v1/grants" else "200"
        operation: dict[str, Any] = {
            "summary": route.summary,
            "description": (route.handler.__doc__ or "").strip(),
            "responses": {done: dict(_DONE.get(route.path, _ELSE))},
        }
        codes = _ALWAYS | _CODES.get(route.path, {})
        if route.roles:
            operation["security"] = [{"key": []}]
            roles = f"Only for the role {' or '.join(route.roles)}."
            codes = {401: WORDS["unauthorized"], 403: roles} | codes
        for status, words in sorted(codes.items()):
            operation["responses"][str(status)] = {"description": words, "content": _json(_ref("Error"))}
        if 402 in codes:
            operation["responses"]["402"]["headers"] = {"Ostraka-Left": _LEFT}
            operation["parameters"] = [
                {
                    "name": "Idempotency-Key",
                    "in": "header",
                    "required": True,
                    "description": "New for each request, the same for its retries: these pay once.",
                    "schema": {"type": "string", "pattern": f"^{KEY}$"},
                }
            ]
            operation["requestBody"] = {"required": True, "content": _json(_ref("Question"))}
        if route.path == "/v1/grants":
            operation["requestBody"] = {"required": True, "content": _json(_ref("Proposal"))}
        if "{seq}" in route.path:
            operation["parameters"] = [
                {"name": "seq", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}}
            ]
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    error = _object(ok={"const": False}, code={"enum": sorted(WORDS)}, error=_TEXT)
    return {
        "openapi": "3.1.0",
        "info": {"title": f"ostraka: {what}, each paid for before it leaves", "version": ostraka.__version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas, "Error": error},
        },
    }


def page(document: dict[str, Any]) -> str:
    """Return the document as one self-contained HTML page."""
    schemas = {
        name: json.dumps(schema, indent=1, ensure_ascii=False)
        for name, schema in document["components"]["schemas"].items()
    }
    return environment().get_template("interface.html.j2").render(document=document, schemas=schemas)
