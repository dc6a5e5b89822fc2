"""Protected units: which rows belong to one person, however the person's identifier is written."""

from __future__ import annotations

import unicodedata
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from math import isnan
from typing import Any

import numpy as np

from ostraka import _check

__all__ = ["LATEST", "are_rows", "named", "numbered"]

LATEST = 2  # version of the spelling of identifiers
_DIGITS = 400  # of an identifier that is written out; a larger number is written with an exponent


def numbered(units: Any) -> tuple[np.ndarray, int, str]:
    """The number of each row's unit, how many units there are, and what a unit is. Private."""
    if are_rows(units):
        return np.arange(units), int(units), "row"
    codes, names = named(units, version=LATEST)
    return codes, len(names), "person"


def are_rows(units: Any) -> bool:
    """Whether each row is a unit, and ``units`` their number."""
    if not isinstance(units, int | np.integer) or isinstance(units, bool):
        return False
    _check.integer(n_rows=int(units), least=1)
    return True


def named(units: Any, *, version: int) -> tuple[np.ndarray, list[str]]:
    """The number of each row's person, and the names of the persons in this order."""
    array = np.asarray(units)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"units must name the person of each row, in one dimension, got shape {array.shape}")
    # two spellings of one person must not be two units: joining two people is safe, splitting one is not
    spelled = str if array.dtype.kind in "iu" else _spelled if version == 1 else _canonical
    if array.dtype.kind in "iufSU":
        values, places = np.unique(array, return_inverse=True)
    else:
        values, places = array, np.arange(len(array))
    names, codes = np.unique([spelled(value) for value in values.tolist()], return_inverse=True)
    if (names == "").any():
        raise ValueError("every row must name its person, but some do not: drop these rows or fill them in")
    return codes[places], names.tolist()


def _canonical(value: Any) -> str:
    """Return one spelling per identifier: text in Unicode form NFC, numbers in their shortest form."""
    text = unicodedata.normalize("NFC", _spelled(value))
    if text[:1].isalpha():  # not a number; "nan" and "inf" in text are names
        return text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite():
        return text
    shortest = number.normalize(Context(prec=max(28, len(text)), Emax=MAX_EMAX, Emin=MIN_EMIN))
    plain = abs(shortest.adjusted()) < _DIGITS
    return f"{shortest or abs(shortest):f}" if plain else str(shortest)


def _spelled(value: Any) -> str:
    """Return an identifier as text without surrounding blanks; empty for None, NaN and blanks."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if (
        value is None
        or type(value).__name__ in {"NAType", "NaTType"}
        or (isinstance(value, float) and isnan(value))
    ):
        return ""
    return (value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)).strip()
