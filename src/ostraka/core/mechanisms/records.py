"""Convert ballot mechanisms to plain JSON and back; only registered types are created."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from ostraka.core.mechanisms.argmax import GNMax, LNMax
from ostraka.core.mechanisms.law import check_ballot
from ostraka.core.mechanisms.screen import Confident, Threshold
from ostraka.core.mechanisms.wrapped import Subsampled, Weighted

if TYPE_CHECKING:
    from ostraka.core.mechanisms.law import BallotMechanism

Kind = TypeVar("Kind", bound=type)
_KNOWN: dict[str, Any] = {
    kind.__name__: kind for kind in (Confident, GNMax, LNMax, Subsampled, Threshold, Weighted)
}
_DEEPEST = 4  # mechanisms inside one another


def register(kind: Kind) -> Kind:
    """Register a frozen dataclass, so that records can store it and restore it by its name.

    A program that reads records of a mechanism of yours imports the module that registers it. Fields must be
    numbers, text, True, False, None, or mechanisms that are registered.

    Parameters
    ----------
    kind : class
        A ballot mechanism.

    Returns
    -------
    class
        The same, so that this is a decorator.

    Raises
    ------
    TypeError
        Not a frozen dataclass.
    ValueError
        Another class is registered under this name.

    Examples
    --------
    >>> register(GNMax) is GNMax
    True
    """
    if not (dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        raise TypeError(f"mechanism must be a frozen dataclass, got {kind.__name__}")
    if _KNOWN.setdefault(kind.__name__, kind) is not kind:
        raise ValueError(f"another mechanism is registered as {kind.__name__}: give yours a name of its own")
    return kind


def to_record(mechanism: BallotMechanism) -> dict[str, Any]:
    """Kind and fields in plain JSON types.

    Raises
    ------
    ValueError
        A type that is not registered, or a field that JSON does not have.

    Examples
    --------
    >>> to_record(Confident(screen=Threshold(at=60.0, sigma=10.0), argmax=GNMax(sigma=4.0)))["argmax"]
    {'kind': 'GNMax', 'sigma': 4.0}
    """
    kind = type(mechanism)
    if _KNOWN.get(kind.__name__) is not kind:
        raise ValueError(
            f"mechanism must be of a registered type to be saved, got {kind.__name__}: decorate the class "
            "with ostraka.core.mechanisms.records.register, here and in the program that reads it"
        )
    record: dict[str, Any] = {"kind": kind.__name__}
    for item in dataclasses.fields(mechanism):  # type: ignore[arg-type]
        if item.init:
            value = getattr(mechanism, item.name)
            plain = value is None or isinstance(value, bool | int | float | str)
            record[item.name] = value if plain else to_record(value)
    return record


def from_record(record: Any) -> BallotMechanism:
    """The mechanism of :func:`to_record`. Its own checks of its parameters apply.

    Raises
    ------
    ValueError
        A record of another shape, of a type that is not registered, or with fields that it does not have.

    Examples
    --------
    >>> from_record({"kind": "GNMax", "sigma": 4.0})
    GNMax(sigma=4.0)
    """
    mechanism: BallotMechanism = _read(record, _DEEPEST)
    check_ballot(mechanism)
    return mechanism


def _read(record: Any, depth: int) -> Any:
    kind = record.get("kind") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in _KNOWN or not depth:
        raise ValueError(f"mechanism must be one of {', '.join(sorted(_KNOWN))}, got {kind!r}")
    fields = {name: value for name, value in record.items() if name != "kind"}
    names = {item.name for item in dataclasses.fields(_KNOWN[kind]) if item.init}
    if strange := sorted(set(fields) - names):
        raise ValueError(f"{kind} must have the fields {', '.join(sorted(names))}, got {', '.join(strange)}")
    try:
        return _KNOWN[kind](
            **{n: _read(v, depth - 1) if isinstance(v, dict) else v for n, v in fields.items()}
        )
    except TypeError as error:
        raise ValueError(f"{kind} cannot be made from the fields {', '.join(sorted(fields))}") from error
