"""Consistent answers: one question, one answer, however it is spelled and however often it is put."""

from __future__ import annotations

import hashlib
import math
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ostraka.core import check, files
from ostraka.core.mechanisms.law import law
from ostraka.core.randomness import Keyed, KeyedNoise, KeyedRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ostraka.core.curve import Curve
    from ostraka.core.mechanisms.law import BallotMechanism, OutcomeLaw
    from ostraka.core.private import Adjacency, Private

__all__ = ["Consistent"]

_KEY_BYTES = 32
_CELLS = 1_000  # a column's public range is divided into so many
_FINEST = 2.0**-21  # of the largest number: float32 tells half of that apart
_EXACT = 2.0**22  # grid steps from zero up to which float32 still tells half a step apart
_MISSING, _NUMBER, _TEXT = 0, 1, 2
_CELL = np.dtype([("tag", "u1"), ("steps", "<i8")])


class _Layout(NamedTuple):
    """Columns of plain rows: steps, order by name, the steps in that order, and a digest that names them."""

    steps: np.ndarray
    order: list[int]
    sorted_steps: np.ndarray
    head: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Consistent:
    """The rule by which two questions are the same, and the secret from which their noise is drawn.

    A question is a row. Its numbers are rounded to ``grid``; text is taken as it is (Unicode NFC).
    The rest, whether a number came as float32 or float64, as -0.0 or 0, in which order columns
    with names came, makes no difference.

    Parameters
    ----------
    secret : bytes, 32 or more, or None
        From the operating system, kept as long as answers shall stay the same; never published. It is
        left out when the object is pickled. None: a copy without it, which answers nothing.
    grid : float > 0, or mapping of column name to float > 0
        The step numbers are rounded to. Public. A coarser grid gives fewer questions to repeat.
    teachers : str
        Which teachers vote, such as their manifest's hash. Public. **Must change with the
        teachers:** the same noise on other votes would tell how they differ.
    columns : tuple of str, optional
        Names of the columns of rows that come as a plain array.
    kept : bool, default False
        True: the secret lies in a file that only its owner may read, as :meth:`kept_at` makes it.
        Answers drawn from any other secret, which somebody may know, are a simulation.
    grid_in_teachers : bool, default False
        True: ``teachers`` differs wherever ``grid`` does, as the digest of saved teachers does. Then digests
        are those of earlier versions, under which ledgers keep answers.

    Raises
    ------
    ValueError
        A short secret, a step that is not positive, rows of other columns, infinite numbers, or
        numbers more than 4 million steps from zero, where float32 no longer tells steps apart.

    Guarantees
    ----------
    Rows with the same canonical form under the same steps have the same digest; others do not, up to
    collisions of HMAC-SHA256. Without the secret, a digest reveals nothing about its row. A number
    whose float32 rounding lies on the border between two cells counts as that rounding.

    Noise from :meth:`noise` looks like real noise, unless HMAC-SHA256 or ChaCha20 under an unknown
    key can be distinguished from a random function. So answers are computationally
    differentially private (Mironov, Pandey, Reingold and Vadhan 2009, doi:10.1007/978-3-642-03356-8_8),
    as long as the secret is kept. A leaked secret reveals the noise of all its answers.
    Near-duplicates in another cell are other questions: each is charged, and each reveals more.

    Examples
    --------
    >>> rows = Consistent(secret=bytes(32), grid=0.5, teachers="demo", columns=("age", "hours"))
    >>> one, two = rows.digests([[39.9, 40.0], [np.float32(40.1), 40.2]])
    >>> one == two
    True
    """

    secret: bytes | None
    grid: float | Mapping[str, float]
    teachers: str
    columns: tuple[str, ...] | None = None
    kept: bool = False
    grid_in_teachers: bool = False
    _keyed: Keyed | None = field(init=False)
    _layouts: dict[int, _Layout] = field(init=False, default_factory=dict)  # by number of columns

    def __post_init__(self) -> None:
        long_enough = isinstance(self.secret, bytes) and len(self.secret) >= _KEY_BYTES
        if self.secret is not None and not long_enough:
            raise ValueError(f"secret must be {_KEY_BYTES} bytes or more from the operating system")
        object.__setattr__(self, "_keyed", None if self.secret is None else Keyed(self.secret))
        steps = self.grid.values() if isinstance(self.grid, Mapping) else (self.grid,)
        for step in steps:
            check.positive(grid=step)
        if not (isinstance(self.teachers, str) and self.teachers):
            raise ValueError("teachers must be text that changes whenever the teachers do")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ValueError("columns must have different names")

    def __repr__(self) -> str:
        return f"Consistent(grid={self.grid!r}, teachers={self.teachers!r}, columns={self.columns!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_secret, (self.grid, self.teachers, self.columns, self.grid_in_teachers)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # nothing of it can change

    @staticmethod
    def grid_of(public: Any) -> dict[str, float]:
        """A step for every column, from public rows alone: a thousandth of its range, if float32 can hold it.

        Parameters
        ----------
        public : array or data frame, shape (n_rows, n_columns)
            Public. Columns of an array are named "0", "1", …

        Returns
        -------
        dict of column name to float > 0
            For :class:`Consistent`. A column of text, of zeros or without a number has the step 1.

        Examples
        --------
        >>> Consistent.grid_of(np.array([[0.0, 0.0], [16.0, 0.0]]))
        {'0': 0.016, '1': 1.0}
        """
        named = hasattr(public, "columns")
        names = [str(name) for name in public.columns] if named else [str(j) for j in range(public.shape[1])]
        columns = [np.asarray(public[name]) for name in public.columns] if named else list(public.T)
        steps = {}
        for name, column in zip(names, columns, strict=True):
            steps[name] = 1.0
            if column.dtype.kind in "biuf":
                numbers = column[np.isfinite(column)].astype(float)
                largest = float(np.abs(numbers).max(initial=0.0))
                spread = float(np.ptp(numbers)) if numbers.size else 0.0
                steps[name] = max(spread / _CELLS, largest * _FINEST) or 1.0
        return steps

    @classmethod
    def kept_at(
        cls,
        path: str | os.PathLike[str] | Path,
        *,
        grid: float | Mapping[str, float],
        teachers: str,
        columns: tuple[str, ...] | None = None,
    ) -> Self:
        """The secret of a file that only its owner may read; one is made if there is none."""
        secret = files.create(path, os.urandom(_KEY_BYTES))
        return cls(secret=secret, grid=grid, teachers=teachers, columns=columns, kept=True)

    @property
    def name(self) -> str:
        """A name of the secret and the teachers, in hexadecimal. It reveals nothing of the secret. Public."""
        return self._known()(f"ostraka/name/1\x00{self.teachers}".encode()).hex()

    def digests(self, rows: Any) -> list[str]:
        """One hexadecimal name a row: equal for equal questions."""
        # cells as tags and whole numbers of steps, texts of each row, and names, in the order of names
        columns: dict[str, np.ndarray] | None = None
        if hasattr(rows, "columns"):
            columns = {str(name): np.asarray(rows[name]) for name in rows.columns}
            if len(columns) < len(rows.columns):
                raise ValueError("rows must have columns of different names, also where a name is a number")
            if self.columns is not None and set(columns) != set(self.columns):
                raise ValueError(f"rows must have the columns {', '.join(sorted(self.columns))}")
        else:
            values = np.asarray(rows)
            if values.dtype.kind not in "biuf":
                if not isinstance(rows, np.ndarray):
                    values = np.asarray(rows, dtype=object)  # mixed cells keep their kinds
                columns = dict(zip(self._names(values), values.T, strict=True))
        if columns is None:  # numbers, all columns at once
            layout, texts = self._layout(values), [b""] * len(values)
            cells, head = _numbered(values[:, layout.order], layout.sorted_steps), layout.head
        else:
            names = sorted(columns)
            head = self._head(names)
            n = len(rows)
            cells, texts = np.zeros((n, len(names)), dtype=_CELL), [b""] * n
            for j, (name, step) in enumerate(zip(names, self._steps_of(names).tolist(), strict=True)):
                if columns[name].dtype.kind in "biuf":
                    cells[:, j] = _numbered(columns[name], step)
                    continue
                for row, value in enumerate(columns[name].tolist()):
                    if isinstance(value, str):
                        written = unicodedata.normalize("NFC", value).encode()
                        cells[row, j] = (_TEXT, len(written))
                        texts[row] += written
                    elif value is not None and value == value:  # noqa: PLR0124  (NaN differs from itself)
                        cells[row, j] = (_NUMBER, _steps(_number(value), step)[0])
        keyed = self._known()
        rows_of, size = cells.tobytes(), cells.shape[1] * _CELL.itemsize
        return [
            keyed(head + rows_of[row * size : (row + 1) * size] + text).hex()
            for row, text in enumerate(texts)
        ]

    def noise(self, digest: str, *, purpose: str) -> KeyedNoise:
        """The noise of one question: always the same for one purpose, of its own for any other."""
        message = f"ostraka/noise/1\x00{self.teachers}\x00{purpose}\x00{digest}".encode()
        return KeyedNoise(self._known()(message), kept=self.kept)

    def noises(self, digests: Sequence[str], *, purpose: str) -> KeyedRows:
        """The noise of many questions at once: row k is that of ``noise(digests[k], purpose=purpose)``."""
        start = f"ostraka/noise/1\x00{self.teachers}\x00{purpose}\x00"
        keyed = self._known()
        return KeyedRows([keyed((start + question).encode()) for question in digests], kept=self.kept)

    def once(self, mechanism: BallotMechanism, queries: Any) -> Once:
        """The question that answers each of these rows once: a value for :func:`ostraka.release`.

        Parameters
        ----------
        mechanism : BallotMechanism
            Public.
        queries : array or data frame, shape (n_queries, n_features)
            Public. What was asked, to tell repeats by.
        """
        return Once(mechanism=mechanism, digests=tuple(self.digests(queries)), consistent=self)

    def snap(self, rows: Any) -> Any:
        """Numbers moved to the middle of their cells: what teachers should be shown. A plain array only."""
        values = np.asarray(rows)
        if values.ndim != 2 or values.dtype.kind not in "biuf":
            raise ValueError(f"rows must be numbers of shape (n_rows, n_columns), got {values.dtype}")
        steps = self._layout(values).steps
        return _steps(values, steps) * steps

    def _known(self) -> Keyed:
        if self._keyed is None:
            raise ValueError(
                "this copy has no secret, which is left out of pickles: type "
                "Consistent.kept_at(path, grid=..., teachers=...) with the file that keeps it"
            )
        return self._keyed

    def _layout(self, values: np.ndarray) -> _Layout:
        names = self._names(values)
        if len(names) not in self._layouts:
            order = sorted(range(len(names)), key=names.__getitem__)
            steps, head = self._steps_of(names), self._head([names[j] for j in order])
            self._layouts[len(names)] = _Layout(steps, order, steps[order], head)
        return self._layouts[len(names)]

    def _head(self, names: Sequence[str]) -> bytes:
        """What stands before the cells of each question: the teachers, and the columns in this order."""
        facts = ["ostraka/query/1", self.teachers, *names]
        if not self.grid_in_teachers:  # four steps of 0.5 and of 1.0 are two questions
            facts = ["ostraka/query/2", self.teachers, *names, *map(float.hex, self._steps_of(names))]
        return hashlib.sha256("\x00".join(facts).encode()).digest()

    def _names(self, values: np.ndarray) -> list[str]:
        if values.ndim != 2:
            raise ValueError(f"rows must have shape (n_rows, n_columns), got {values.shape}")
        names = list(self.columns) if self.columns is not None else [str(j) for j in range(values.shape[1])]
        if len(names) != values.shape[1]:
            raise ValueError(f"rows must have {len(names)} columns, got {values.shape[1]}")
        return names

    def _steps_of(self, names: Sequence[str]) -> np.ndarray:
        grid = self.grid
        if not isinstance(grid, Mapping):
            return np.full(len(names), float(grid))
        return np.array([grid.get(name, math.nan) for name in names], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Once:
    """A question of which every row is answered once: repeats get the same answer, at no cost.

    :func:`ostraka.release` takes it. Entries of the ledger are shared between calls with the same key,
    which is ``"once"`` by default. Of rows with one canonical form, the first one's votes decide, and a
    question that a screen stopped stays stopped. Made by :meth:`Consistent.once`.

    Attributes
    ----------
    mechanism : BallotMechanism
        What is asked of each row. Public.
    digests : tuple of str
        One name a row, as :meth:`Consistent.digests` gives them.
    consistent : Consistent
        Its secret keys the noise of each payment.
    """

    mechanism: BallotMechanism
    digests: tuple[str, ...]
    consistent: Consistent

    @property
    def promise(self) -> Adjacency:
        """The one of the mechanism."""
        return self.mechanism.promise

    def law(self) -> OutcomeLaw:
        """The one of the mechanism."""
        return law(self.mechanism)

    def curve(self) -> Curve:
        """Cost of one new question."""
        return self.mechanism.curve()

    def uses(self, private: Private) -> int:
        """One use a question."""
        del private
        return len(set(self.digests))

    def release(self, private: Private, *, rng: np.random.Generator) -> np.ndarray:
        """The answers, int64 of shape (n_queries,), with noise from ``rng``."""
        return self.in_turn(private, lambda part, entries, *_: part.release(entries, rng=rng), None)

    def in_turn(self, private: Private, pay: Callable[..., np.ndarray], key: str | None) -> np.ndarray:
        """The answers: each question pays for itself, with its own noise, in the order in which they come."""
        if len(self.digests) != len(private):
            raise ValueError(
                f"queries must have one row for each of {len(private)} votes, got {len(self.digests)}"
            )
        answers: dict[str, int] = {}
        for row, digest in enumerate(self.digests):
            if digest not in answers:
                ask = partial(self._ask, pay, digest)
                [answer] = self.law().in_turn(private[row : row + 1], ask, f"{key or 'once'}/{digest}")
                answers[digest] = int(answer)
        return np.array([answers[digest] for digest in self.digests], dtype=np.int64)

    def _ask(
        self, pay: Callable[..., np.ndarray], digest: str, part: BallotMechanism, entry: Private, key: str
    ) -> np.ndarray:
        noise = self.consistent.noise(digest, purpose=repr(part))
        return pay(part, entry, key.removesuffix("/argmax"), noise)

    def __repr__(self) -> str:
        return f"Once({self.mechanism!r}, {len(self.digests)} rows)"


def _without_secret(
    grid: float | Mapping[str, float],
    teachers: str,
    columns: tuple[str, ...] | None,
    grid_in_teachers: bool = False,  # noqa: FBT001, FBT002  (of a pickle)
) -> Consistent:
    return Consistent(
        secret=None, grid=grid, teachers=teachers, columns=columns, grid_in_teachers=grid_in_teachers
    )


def _number(value: Any) -> np.ndarray:
    try:
        return np.array([value], dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        kind = type(value).__name__
        raise ValueError(f"rows must hold numbers of float64, text or nothing, got {kind}") from None


def _numbered(values: np.ndarray, step: float | np.ndarray) -> np.ndarray:
    """The cells of an array of numbers."""
    cells = np.empty(values.shape, dtype=_CELL)
    cells["tag"] = np.where(np.isnan(values), _MISSING, _NUMBER) if values.dtype.kind == "f" else _NUMBER
    cells["steps"] = _steps(values, step)
    return cells


def _steps(values: np.ndarray, step: float | np.ndarray) -> np.ndarray:
    """Whole numbers of steps, as both float32 and float64 have it; a missing number is 0."""
    numbers: np.ndarray = np.asarray(values, dtype=np.float32).astype(np.float64)
    numbers = np.where(np.isnan(numbers), 0.0, numbers)
    if not np.isfinite(step).all():
        raise ValueError("grid must name a step for every column of numbers")
    steps = np.rint(numbers / step)
    if not (np.abs(steps) <= _EXACT).all():
        raise ValueError(
            f"rows must be finite and within {_EXACT:.0f} grid steps of zero: "
            f"declare a coarser step than {np.min(step):g}"
        )
    return np.asarray(steps, dtype=np.int64)
