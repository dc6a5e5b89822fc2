"""The checks at the public border. Messages name public numbers; private arrays are shown by shape only.

Beside them is the error of a training whose loss is not finite: here because it does not need torch.
"""

from __future__ import annotations

import importlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_MOST_NOISE = 1e150
_MOST_CELLS = 1 << 27  # of an array of float64
# a type of a union is made anew at each check, which takes longer than the check
_INTEGERS = (int, np.integer)
_NUMBERS = (int, float, np.integer, np.floating)


class TrainingDiverged(FloatingPointError):  # noqa: N818  (as BudgetExceeded)
    """A loss was not finite. The modules and the checkpoint hold the state after the last good epoch."""

    __module__ = "ostraka.networks"


def positive(**named: float) -> None:
    """Raise unless every number is finite and > 0."""
    _each(named, lambda value: _is_finite(value) and value > 0, "finite and > 0")


def noise(**named: float) -> None:
    """Raise unless every scale of noise is > 0 and at most 1e150 votes: squares of more leave float64."""
    positive(**named)
    at_most(_MOST_NOISE, unit=" votes", **named)


def at_most(most: float, *, unit: str = "", **named: float) -> None:
    """Raise unless every number is at most so large."""
    # in Python's own type: that of a float32 does not hold every bound
    _each(
        named,
        lambda value: (value if isinstance(value, int) else float(value)) <= most,
        f"at most {most:,.10g}{unit}",
    )


def between(*, least: float, most: float, **named: float) -> None:
    """Raise unless every number is > 0, and from ``least`` to ``most``."""
    positive(**named)
    _each(named, lambda value: least <= value <= most, f"from {least:g} to {most:g}")


def nonnegative(**named: float) -> None:
    """Raise unless every number is >= 0 (infinity is allowed, NaN is not)."""
    _each(named, lambda value: _is_number(value) and value >= 0, ">= 0")


def integer(*, least: int = 0, **named: int) -> None:
    """Raise unless every value is an integer >= ``least``."""
    _each(
        named,
        lambda value: isinstance(value, _INTEGERS) and not isinstance(value, bool) and value >= least,
        f"an integer >= {least}",
    )


def room(**sizes: int) -> None:
    """Raise unless an array of these sizes, whole numbers > 0, has a gigabyte at most."""
    if math.prod(sizes.values()) > _MOST_CELLS:
        wanted = " × ".join(f"{size:,}" for size in sizes.values())
        raise ValueError(
            f"{' × '.join(sizes)} must be at most {_MOST_CELLS:,} numbers, a gigabyte, got {wanted}: "
            "take fewer"
        )


def finite(**named: float) -> None:
    """Raise unless every number is finite."""
    _each(named, _is_finite, "finite")


def one_of(*, allowed: tuple[str, ...], **named: str) -> None:
    """Raise unless every value is one of the allowed words."""
    _each(named, lambda value: value in allowed, f"one of {', '.join(allowed)}")


def share(*, zero: bool = False, one: bool = False, **named: float) -> None:
    """Raise unless every number is > 0 and < 1; with ``zero`` or ``one``, that number is allowed, too."""
    _each(
        named,
        lambda value: _is_number(value) and (0 < value < 1 or (zero and value == 0) or (one and value == 1)),
        f"{'>=' if zero else '>'} 0 and {'<=' if one else '<'} 1",
    )


def delta(value: float, *, n_units: int | None = None) -> None:
    """Raise unless 0 < delta < 1, and delta is below one in so many units, where their number is given."""
    share(delta=value)
    if n_units and value >= 1 / n_units:
        raise ValueError(
            f"delta must be below 1 / {n_units} units, got {value:g}: a mechanism that publishes one unit "
            f"outright would pass; use delta={0.1 / n_units:.0e} or less"
        )


def release_delta(typed: float | None, *, n_units: int) -> float:
    """The delta that was typed, checked; else 1e-5 or a tenth of one in so many units, the smaller."""
    value = min(1e-5, 0.1 / max(n_units, 1)) if typed is None else typed
    delta(value, n_units=n_units)
    return value


def is_hexadecimal(value: object, *, digits: int = 64) -> bool:
    """Whether it is a text of so many lower-case hexadecimal digits, such as a public key or a digest."""
    return isinstance(value, str) and len(value) == digits and set(value) <= set("0123456789abcdef")


def counts(values: Any) -> np.ndarray:
    """Vote counts as float64 of shape (n_queries, n_classes), finite, 2 to 1,000 classes."""
    try:
        array = None if np.iscomplexobj(values) else np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # which would quote a value
        array = None
    if array is None:
        kind, article = type(values).__name__, "a"
        if isinstance(values, np.ndarray):
            kind, article = values.dtype.type.__name__, "an array of"
        raise ValueError(f"counts must be numbers, got {article} {kind}")
    if array.ndim != 2:
        raise ValueError(f"counts must have shape (n_queries, n_classes), got {array.shape}")
    if array.shape[1] < 2:
        raise ValueError(f"counts must have two classes or more, got {array.shape[1]}")
    if array.shape[1] > 1000:
        raise ValueError(
            f"counts must have at most 1,000 classes (docs/record/floating-point.md), got {array.shape[1]}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"counts of shape {array.shape} must be finite")
    return array


def parsed(text: Any) -> Any:
    """The value in a JSON text; None where there is none, whatever was given instead of a text.

    Whoever reads says what it should have been: errors of the parser quote the content.
    """
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def path(**named: Any) -> Path:
    """The one path, or an error."""
    ((name, value),) = named.items()
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a path, got {_shown(value)}")
    if "\0" in str(value):
        raise ValueError(f"{name} must be a path, and no path has a null character")
    return Path(value)


def function(**named: Any) -> None:
    """Raise unless every value is None or a function."""
    for name, value in named.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be a function or None, got {_shown(value)}")


def mapping(what: str, value: Any) -> Mapping[str, Any]:
    """The value, if it is a dictionary whose keys are text; else ValueError says ``what`` is none."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{what} must be a dictionary of names, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """None, a number or a flag as it is; of anything else its type, since it may be private."""
    return repr(value) if value is None or isinstance(value, bool | int | float) else type(value).__name__


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional dependency, or say which install command brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} is not installed: {install(extra)}") from error


def install(extra: str) -> str:
    """What to type to have an extra: its packages, and the same in a checkout.

    Not ``ostraka[extra]``: as long as that name on PyPI is not this project's, it would install a stranger's.
    """
    import shlex  # noqa: PLC0415  (only where something is missing)
    from importlib import metadata  # noqa: PLC0415

    try:
        required = metadata.requires("ostraka") or []
    except metadata.PackageNotFoundError:
        required = []
    names = [
        line.partition(";")[0].strip() for line in required if f"extra == '{extra}'" in line.replace('"', "'")
    ]
    checkout = f"in the folder of a checkout, pip install '.[{extra}]'"
    return f"pip install {shlex.join(names)}, or, {checkout}" if names else checkout


def _each(named: Mapping[str, Any], holds: Callable[[Any], object], words: str) -> None:
    for name, value in named.items():
        if not holds(value):
            raise ValueError(f"{name} must be {words}, got {value!r}")


def _is_number(value: Any) -> bool:
    """Whether float64 holds it, infinity and NaN included."""
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        return False
    try:
        float(value)
    except OverflowError:  # an integer
        return False
    return True


def _is_finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def nats(epsilon: float, *, digits: int = 4) -> str:
    """An epsilon for a message: a number, or why there is none."""
    if math.isfinite(epsilon):
        return f"{epsilon:.{digits}g}"
    return (
        "more than can be claimed (too little noise, or so many answers that what is rounded outweighs "
        "delta: docs/record/floating-point.md)"
    )
