"""Data dictionaries: what the documentation of a table says of its columns, in the formats that there are.

Frictionless table schemas and data packages (JSON), CSV on the Web (JSON), DDI codebooks (XML), SDMX
structures (XML), and this project's own TOML. All of it is public.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WHOLE = {"integer", "int", "long", "short", "nonNegativeInteger", "positiveInteger", "year"}
_KNOWN = "a Frictionless or CSVW description (JSON), a DDI codebook or SDMX structure (XML), or TOML"


class Dictionary(NamedTuple):
    """What is documented of a table.

    Attributes
    ----------
    columns : dict of str to dict
        Of each column, the fields that :meth:`~ostraka.data.schema.Schema.from_public` takes: ``categories``,
        ``range``, ``missing``, ``whole``.
    missing : tuple of str
        What stands for no value, in any column.
    """

    columns: dict[str, dict[str, Any]]
    missing: tuple[str, ...]

    def kinds(self) -> tuple[str, ...]:
        """Columns whose values are listed, and so are kinds, even where they are written as numbers."""
        return tuple(name for name, fields in self.columns.items() if fields.get("categories"))


def read_dictionary(path: Path) -> Dictionary:
    """Read a data dictionary, by its content.

    Raises
    ------
    ValueError
        It is of no known format, or describes no column.
    """
    text = path.read_text(encoding="utf-8-sig")
    try:
        if text.lstrip().startswith("<"):
            # the user's own file; expat itself refuses entities that grow without bounds
            facts = _of_xml(ET.fromstring(text))  # noqa: S314
        elif text.lstrip().startswith("{"):
            facts = _of_json(json.loads(text))
        else:
            facts = Dictionary(tomllib.loads(text), ())
    except (ET.ParseError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no data dictionary that can be read ({error}): take {_KNOWN}") from error
    columns = {name: fields for name, fields in facts.columns.items() if name and isinstance(fields, dict)}
    if not columns:
        raise ValueError(f"{path} describes no columns: take {_KNOWN}")
    return Dictionary(columns, tuple(text for text in facts.missing if text))


def _of_json(record: dict[str, Any]) -> Dictionary:
    """Of a Frictionless schema or package, or of a table or a group of tables of CSV on the Web."""
    for key in ("resources", "tables"):
        if key in record:
            record = record[key][0]
            break
    if "tableSchema" in record:
        nulls = record.get("null", record["tableSchema"].get("null", []))
        described = [_of_csvw(column) for column in record["tableSchema"]["columns"]]
        return Dictionary(dict(described), tuple([nulls] if isinstance(nulls, str) else nulls))
    schema = record.get("schema", record)
    return Dictionary(
        {field["name"]: _of_frictionless(field) for field in schema["fields"]},
        tuple(
            value["value"] if isinstance(value, dict) else value
            for value in schema.get("missingValues", [""])
        ),
    )


def _of_frictionless(field: dict[str, Any]) -> dict[str, Any]:
    rules = field.get("constraints", {})
    listed = rules.get("enum") or field.get("categories") or []
    return _fields(
        categories=[value["value"] if isinstance(value, dict) else value for value in listed],
        low=rules.get("minimum"),
        high=rules.get("maximum"),
        missing=not rules.get("required", False),
        whole=field.get("type") in _WHOLE,
    )


def _of_csvw(column: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    titles = column.get("titles", "")
    if isinstance(titles, dict):
        titles = next(iter(titles.values()))
    title = titles[0] if isinstance(titles, list) else titles
    kind = column.get("datatype", "string")
    kind = {"base": kind} if isinstance(kind, str) else kind
    form = kind.get("format", "")
    listed = form.strip("^$()").split("|") if isinstance(form, str) and "|" in form else []
    return title or column.get("name", ""), _fields(
        categories=listed,
        low=kind.get("minimum", kind.get("minInclusive")),
        high=kind.get("maximum", kind.get("maxInclusive")),
        missing=not column.get("required", False),
        whole=kind.get("base") in _WHOLE,
    )


def _of_xml(root: ET.Element) -> Dictionary:
    """Of a DDI codebook, or of an SDMX structure."""
    variables = list(_named(root, "var"))
    if variables:
        gone = {value for node in variables for value in _values(node, missing=True)}
        return Dictionary({node.get("name", ""): _of_ddi(node) for node in variables}, tuple(sorted(gone)))
    lists = {
        node.get("id", ""): [code.get("id", "") for code in _named(node, "Code")]
        for node in _named(root, "Codelist")
    }
    dimensions = [*_named(root, "Dimension"), *_named(root, "Attribute")]
    enumerations = {node.get("id", ""): next(_named(node, "Enumeration"), None) for node in dimensions}
    columns = {
        name: lists.get(next((ref.get("id", "") for ref in _named(of, "Ref")), ""), [])
        for name, of in enumerations.items()
        if of is not None
    }
    if not columns:  # lists alone, which are named after what they are of
        columns = {name.removeprefix("CL_"): codes for name, codes in lists.items()}
    return Dictionary(
        {name: _fields(categories=codes, missing=True) for name, codes in columns.items() if codes}, ()
    )


def _of_ddi(variable: ET.Element) -> dict[str, Any]:
    bounds = next(_named(variable, "range"), None)
    form = next(_named(variable, "varFormat"), None)
    return _fields(
        categories=_values(variable, missing=False),
        low=None if bounds is None else bounds.get("min"),
        high=None if bounds is None else bounds.get("max"),
        missing=True,
        whole=variable.get("dcml") == "0" and form is not None and form.get("type") == "numeric",
    )


def _values(variable: ET.Element, *, missing: bool) -> list[str]:
    """The values of a DDI variable that stand for something, or for nothing."""
    kinds = [kind for kind in _named(variable, "catgry") if (kind.get("missing") == "Y") == missing]
    values = [next(_named(kind, "catValu"), None) for kind in kinds]
    return [(value.text or "").strip() for value in values if value is not None]


def _named(root: ET.Element, name: str) -> Iterator[ET.Element]:
    """All elements below of this name, of whatever namespace."""
    return (node for node in root.iter() if node is not root and node.tag.rpartition("}")[2] == name)


def _fields(
    *, categories: list[Any], low: Any = None, high: Any = None, missing: bool = False, whole: bool = False
) -> dict[str, Any]:
    """Fields of a column, without those that say nothing."""
    fields: dict[str, Any] = {"missing": True} if missing else {}
    if categories:
        return fields | {"categories": [str(value) for value in categories]}
    if low is not None and high is not None and _is_number(low) and _is_number(high):
        fields["range"] = [float(low), float(high)]
    return fields | ({"whole": True} if whole else {})


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False  # such as a date
    return True
