"""Result: the plain record of a run, from which reports, figures and labels are made."""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from ostraka.core import axes as _axes
from ostraka.core import check
from ostraka.core.private import Private

__all__: list[str] = []

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """The record of a run: settings, upper bound of its cost, lower bound from audits, and utility.

    Whatever goes in is copied into plain JSON types (arrays become lists, NumPy numbers Python
    ones, infinity ``"inf"``), so a record equals itself after a round trip through JSON.

    Attributes
    ----------
    kind : str
        What ran: ``"learn"``, ``"account"``, ``"attack"``, ``"audit"``.
    settings : dict
        Public. What was asked for: ``n_rows``, ``n_units``, ``unit``, ``relation``,
        ``n_teachers``, ``n_classes``, ``mechanism``, ``screen``, ``n_answers``, …
    upper : dict
        Public. The privacy bound: ``epsilon``, ``delta``, ``accountant``, ``curve``, ``noise``,
        ``horizon``, ``simulation``, ``not_protected``.
    lower : dict or None
        Public. What an audit found to leak at least; None when none was made.
    utility : dict
        Accuracies by name (None where the true labels are not known), ``answered``, ``abstained``.
    series : dict
        Public. Arrays for figures, such as epsilon after each answer (of many answers, after ``answers``).
    owner : dict
        **Not public.** Whatever was computed from the votes themselves: ``epsilon_these_votes``,
        consensus and cost of each query. It does not print; :meth:`public` drops it.
    notes : tuple of str
        Public. One sentence each: what a reader must know beside the numbers.

    Raises
    ------
    TypeError
        A :class:`~ostraka.Private`, or anything else JSON has no type for, is put in.
    ValueError
        NaN is put in: a number that is not known is None.

    Examples
    --------
    >>> result = Result(kind="learn", upper={"epsilon": np.float64(2.0)}, owner={"consensus": [99]})
    >>> result.upper
    {'epsilon': 2.0}
    >>> result == Result.from_json(result.to_json())
    True
    >>> result.public().owner
    {}
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    upper: dict[str, Any] = field(default_factory=dict)
    lower: dict[str, Any] | None = None
    utility: dict[str, Any] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)
    owner: dict[str, Any] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _plain(getattr(self, item.name), item.name)
            object.__setattr__(self, item.name, tuple(value) if item.name == "notes" else value)

    def __repr__(self) -> str:
        """One line of public facts; the fields hold the rest."""
        return f"Result({', '.join(f'{name}={text}' for name, text in self._facts())})"

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        rows = (
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in self._facts()
        )
        return f"<table>{''.join(rows)}</table>"

    def plot(self, axes: Any = None) -> Any:
        """Draw what is proved to leak at most, and what was seen at least; returns matplotlib's axes.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw. None: on new ones.

        Examples
        --------
        >>> result = Result(kind="learn", upper={"epsilon": 2.0, "delta": 1e-5}, lower={"epsilon": 1.1})
        >>> [round(float(bar.get_width()), 1) for bar in result.plot().patches]
        [2.0, 1.1]
        """
        return _axes.bounds(self, axes)

    def _facts(self) -> list[tuple[str, str]]:
        facts = {
            "kind": self.kind,
            "epsilon": self.upper.get("epsilon"),
            "delta": self.upper.get("delta"),
            "unit": self.settings.get("unit"),
            "lower": (self.lower or {}).get("epsilon"),
            "accuracy": self.utility.get("student"),
        }
        stated = [(name, value) for name, value in facts.items() if value is not None]
        return [(name, f"{value:.4g}" if isinstance(value, float) else repr(value)) for name, value in stated]

    def public(self) -> Result:
        """The same record without what only the owner of the data may see."""
        return replace(self, owner={})

    def to_json(self, *, indent: int | None = 2) -> str:
        """Everything, the owner's part included, as strict JSON; ``result.public().to_json()`` to share."""
        record = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps({"version": _VERSION, **record}, indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The inverse of :meth:`to_json`.

        Raises
        ------
        ValueError
            ``text`` is not JSON, or not a record this version of the library writes.
        """
        record = check.parsed(text)
        if record is None:
            raise ValueError("a Result must be JSON as Result.to_json writes it: this is not JSON")
        version = record.pop("version", None) if isinstance(record, dict) else None
        if version != _VERSION:
            raise ValueError(f"a Result must be JSON of version {_VERSION}, got version {version!r}")
        types: dict[str, Any] = {item.name: dict for item in fields(cls)}
        types |= {"kind": str, "lower": dict | None, "notes": list}
        unknown = sorted(set(record) - set(types))
        if unknown or "kind" not in record:
            raise ValueError(f"a Result must have a kind and known fields only, got unknown {unknown}")
        if wrong := [name for name, value in record.items() if not isinstance(value, types[name])]:
            raise ValueError(f"a Result must be as Result.to_json writes it: {', '.join(wrong)} is not")
        return cls(**record)


def _plain(value: Any, where: str) -> Any:
    """A copy in JSON's own types; messages name the place, never the value."""
    if isinstance(value, Private):
        raise TypeError(f"{where} holds a Private: release it, or record a number about it under owner")
    if isinstance(value, np.ndarray | np.generic):
        if isinstance(value, np.ndarray) and value.dtype == np.float64 and np.isfinite(value).all():
            return value.tolist()
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            raise ValueError(f"{where} must not hold NaN: a number that is not known is None")
        return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{where} must hold numbers, text, lists and dicts only, got {type(value).__name__}")
