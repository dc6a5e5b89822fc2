"""Convert encodings to plain objects for the canonical JSON of a task, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ostraka.collect.encodings import Grid, Histogram, Pairs, Tree
from ostraka.collect.sketches import CountMin, CountSketch

if TYPE_CHECKING:
    from ostraka.collect._encoding import Encoding

__all__ = ["read", "written"]

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Histogram, Tree, Grid, Pairs, CountMin, CountSketch)
}


def written(encoding: Encoding) -> dict[str, Any]:
    """Return the encoding as a plain object for canonical JSON."""
    values = {field.name: getattr(encoding, field.name) for field in fields(encoding)}  # type: ignore[arg-type]
    plain = {
        name: list(value) if isinstance(value, tuple) else value.item() if hasattr(value, "item") else value
        for name, value in values.items()
    }
    return {"kind": type(encoding).__name__, **plain}


def read(found: Any) -> Encoding:
    """Return the encoding that :func:`written` wrote; ValueError for anything else."""
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str) or found["kind"] not in _KINDS:
        raise ValueError(f"the kind of an encoding must be one of {', '.join(_KINDS)}")
    kind = _KINDS[found["kind"]]
    values = {name: value for name, value in found.items() if name != "kind"}
    if set(values) != {field.name for field in fields(kind)}:
        raise ValueError(f"a {found['kind']} has the fields {', '.join(f.name for f in fields(kind))}")
    try:
        encoding: Encoding = kind(**values)
    except TypeError:
        raise ValueError(f"a field of the {found['kind']} is of the wrong kind") from None
    return encoding
