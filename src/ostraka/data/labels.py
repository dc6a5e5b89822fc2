"""Labels: the one codec between labels as they come and codes of classes. No message shows a label."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

CLASSES_FROM_Y = (
    "The class list was taken from the private labels and is treated as public: name the classes "
    "yourself (classes=, on the command line --classes) to avoid it."
)
_AT_ONCE = 1 << 20  # labels that are read at a time


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The different classes, all of one type. Class k has code k.

    Attributes
    ----------
    classes : array of shape (n_classes,)
        Public.

    Examples
    --------
    >>> labels = Labels.of(["yes", "no", "no"])
    >>> labels.classes.tolist(), labels.encode(["no", "yes"]), labels.decode([1])
    (['no', 'yes'], array([0, 1]), array(['yes'], dtype='<U3'))
    """

    classes: np.ndarray

    @classmethod
    def of(cls, y: Any, declared: Any = None, *, n_rows: int | None = None, least: int = 1) -> Self:
        """The declared classes, sorted; else those of the labels, which are then treated as public.

        Parameters
        ----------
        y : array of shape (n_rows,)
            Whole numbers, truth values or text, all of one type and none missing. Private.
        declared : sequence, optional
            Every class there may be. Public.
        n_rows : int, optional
            How many labels there must be.
        least : int
            How many classes there must be.

        Raises
        ------
        ValueError
            Labels that are missing, soft or of several types, too many or too few, or too few classes.
        """
        values = one_type(y, n_rows=n_rows)
        if declared is not None:
            values = one_type(declared)
        labels = cls(values.values if isinstance(values, Coded) else np.unique(values))
        if len(labels.classes) < least:
            raise ValueError(
                f"y must hold two classes or more, got {len(labels.classes)} class: is it the right column?"
            )
        return labels

    def places(self, y: Any) -> np.ndarray:
        """The code of each label, int64; -1 where it is none of the classes."""
        values = one_type(y)
        if isinstance(values, Coded):
            return np.asarray(self.places(values.values)[values.codes])
        if not len(self.classes) or (values.dtype.kind == "U") != (self.classes.dtype.kind == "U"):
            return np.full(len(values), -1)  # text never equals a number
        order = np.argsort(self.classes)
        codes = order[np.searchsorted(self.classes, values, sorter=order).clip(max=len(order) - 1)]
        return np.where(self.classes[codes] == values, codes, -1)

    def encode(self, y: Any) -> np.ndarray:
        """The code of each label, int64; of :class:`Coded`, in as few bytes as hold it.

        Raises
        ------
        ValueError
            A label is none of the classes; or as for :meth:`of`.
        """
        if isinstance(y, Coded):
            places = self.encode(y.values)
            same = np.array_equal(places, np.arange(len(places)))
            return y.codes if same else looked_up(places, y.codes)
        codes = self.places(y)
        if (codes < 0).any():
            raise ValueError(
                f"y must hold the {len(self.classes)} declared classes only, but holds others: add them to "
                "classes="
            )
        return codes

    def decode(self, codes: Any) -> np.ndarray:
        """The label of each code."""
        return np.asarray(self.classes[np.asarray(codes)])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coded:
    """Labels of many rows as places of the different ones, in as few bytes as hold them. Private.

    Wherever labels are taken, they are what ``values[codes]`` is.

    Attributes
    ----------
    values : array of shape (n_values,)
        The different labels, each of which some row has.
    codes : unsigned integer array, shape (n_rows,)

    Examples
    --------
    >>> labels = Coded(np.array(["no", "yes"]), np.array([1, 0, 1], dtype=np.uint8))
    >>> labels, np.asarray(labels).tolist()
    (Coded(shape=(3,)), ['yes', 'no', 'yes'])
    """

    values: np.ndarray
    codes: np.ndarray

    @classmethod
    def joined(cls, values: np.ndarray, codes: np.ndarray) -> Self:
        """Labels ``values[codes]``; some values may be equal, and others may not occur."""
        counts = np.zeros(len(values), dtype=np.int64)
        for start in range(0, len(codes), _AT_ONCE):
            counts += np.bincount(codes[start : start + _AT_ONCE], minlength=len(values))
        different = np.unique(values[counts > 0])
        return cls(different, looked_up(np.searchsorted(different, values), codes))

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (len(self.codes),)

    @property
    def ndim(self) -> int:
        """One."""
        return 1

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.asarray(self.values[self.codes[rows]])

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values[self.codes], dtype=dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"


def looked_up(table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """``table[codes]`` in as few bytes as hold it."""
    narrow = table.astype(np.min_scalar_type(int(table.max(initial=0))))
    places = np.empty(len(codes), dtype=narrow.dtype)
    for start in range(0, len(codes), _AT_ONCE):
        places[start : start + _AT_ONCE] = narrow[codes[start : start + _AT_ONCE]]
    return places


def column(y: Any, *, n_rows: int | None = None) -> np.ndarray:
    """Labels in one dimension, each of its own type."""
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    array = np.array(y, dtype=object) if isinstance(y, list | tuple) and _mixed(y) else np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=4
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"y should be a 1d array of classes, got shape {array.shape}: no soft labels, votes or one-hot "
            "rows"
        )
    if n_rows is not None and len(array) != n_rows:
        raise ValueError(f"y must have one label for each of {n_rows} rows, got {len(array)}")
    return array


def one_type(y: Any, *, n_rows: int | None = None) -> Any:
    """Labels in one dimension: whole numbers, truth values or text, all of one type and none missing."""
    if isinstance(y, Coded) and n_rows in {None, len(y)}:
        one_type(y.values)
        return y
    array = column(y, n_rows=n_rows)
    if array.dtype == object:
        if _mixed(array.tolist()):
            _require_finite(array)
            raise ValueError("y must hold labels of one type, none missing, but holds several types")
        array = np.array(array.tolist())
    if array.dtype.kind == "f":
        _require_finite(array)
        if not (array == np.rint(array)).all():
            raise ValueError(
                "Unknown label type: continuous. y must hold classes: whole numbers or text; "
                "PATERegressor learns numbers"
            )
    if array.dtype.kind not in "biufU":
        raise ValueError(f"Unknown label type: {array.dtype.name}. y must hold whole numbers or text")
    return array


def _mixed(cells: Any) -> bool:
    """Whether cells are of several types, of which an array would make one; missing ones are of their own."""
    types = {type(cell) for cell in cells}
    text = [issubclass(kind, str) for kind in types]
    truth = [issubclass(kind, bool | np.bool_) for kind in types]
    return len({*text}) > 1 or len({*truth}) > 1 or type(None) in types


def _require_finite(array: np.ndarray) -> None:
    from sklearn.utils import assert_all_finite

    assert_all_finite(array, input_name="y")
