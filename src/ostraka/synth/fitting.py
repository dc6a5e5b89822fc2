"""What all generators share: private rows with their owners, one charge, one record, and a form to keep."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ostraka.core.accounting.calibration import calibrate
from ostraka.core.door import release
from ostraka.core.ledger.budget import Budget, BudgetExceeded
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.adaptive import ROWS, THETA, WEIGHTS
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import os_keyed
from ostraka.core.result import Result
from ostraka.data.fits import key_of
from ostraka.data.labels import Labels, one_type
from ostraka.data.units import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ostraka.core.mechanisms.law import Releasing

Arrays = dict[str, np.ndarray]
ROWS_OF_A_PERSON = 8
_FARTHEST = 1e15
_TOO_MUCH = re.compile(r"sigma\w* must be (at most|from)")
_FINENESS = 2**16 - 1  # of the weights of rows, as they are kept


def numbers(X: Any) -> np.ndarray:
    """Rows as a table of finite numbers, float32; numbers beyond 1e15 count as that.

    Raises
    ------
    ValueError
        No table, or numbers that are missing or infinite; no value is in the message.
    """
    try:
        with np.errstate(over="ignore"):
            rows = np.asarray(X, dtype=np.float32)
    except (TypeError, ValueError):  # which would quote a value
        rows = None
    if rows is None or rows.ndim != 2 or not rows.size:
        raise ValueError("X must be a table of numbers with a row and a column or more")
    if not np.isfinite(rows).all():
        wide = np.asarray(X, dtype=np.float64)  # where float32 overflows
        if not np.isfinite(wide).all():
            raise ValueError(f"X of shape {rows.shape} must be finite: some numbers are missing or infinite")
        rows = bounded(wide).astype(np.float32)
    return bounded(rows)


def bounded(rows: np.ndarray) -> np.ndarray:
    """The rows, with numbers cut at 1e15, so that neither a length nor an angle of a row overflows."""
    if rows.size and max(float(rows.max()), -float(rows.min())) > _FARTHEST:
        return np.asarray(np.clip(rows, -_FARTHEST, _FARTHEST))
    return rows


def labelled(X: Any, y: Any, classes: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Rows, the place of each label in the public ``classes``, and how many classes there are.

    Without ``y`` all rows are of one class.

    Raises
    ------
    ValueError
        Rows that are no numbers, labels without ``classes``, of another length, or a label that is none of
        them; no value is in the message.
    """
    rows = numbers(X)
    if y is None:
        return rows, np.zeros(len(rows), dtype=np.int64), 1
    if classes is None:
        raise ValueError("classes must be given with y: the list of all classes is public, not read off y")
    labels = Labels(one_type(classes))
    if len(np.unique(labels.classes)) != len(labels.classes) or not len(labels.classes):
        raise ValueError("classes must be a list of different classes")
    return rows, labels.encode(one_type(y, n_rows=len(rows))), len(classes)


def rows_of_persons(
    groups: Any, n_rows: int, *, most: int = ROWS_OF_A_PERSON, rng: np.random.Generator | None
) -> np.ndarray:
    """For each row that is used, the number of used rows of the same person; 0 for the other rows.

    At most ``most`` rows of a person are used, chosen at random and for each person independently of all
    others, so that adding a person does not change whose other rows are used. Two spellings of one person
    are one person, and every row must name one.
    """
    owners = np.asarray(groups)
    if owners.shape != (n_rows,):
        raise ValueError(f"groups must be one a row, shape ({n_rows},), got {owners.shape}")
    person = numbered(owners)[0]
    shuffled = (os_keyed() if rng is None else rng).permutation(n_rows)
    order = shuffled[np.argsort(person[shuffled], kind="stable")]
    sizes = np.bincount(person)
    rank = np.arange(n_rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    n_used, chosen = np.zeros(n_rows, dtype=np.int64), order[rank < most]
    n_used[chosen] = np.minimum(sizes[person[chosen]], most)
    return n_used


def private_rows(
    X: np.ndarray,
    codes: np.ndarray,
    groups: Any,
    *,
    most: int = ROWS_OF_A_PERSON,
    rng: np.random.Generator | None,
) -> Private:
    """Rows, class and share: at most ``most`` rows of a person, chosen at random, share 1."""
    shares, unit = np.ones(len(X)), "row"
    if groups is not None:
        n_used, unit = rows_of_persons(groups, len(X), most=most, rng=rng), "person"
        shares = np.where(n_used > 0, 1 / np.maximum(n_used, 1), 0.0)
    inside = shares > 0
    rows = np.empty((int(inside.sum()), X.shape[1] + 2), dtype=np.float32)
    rows[:, :-2], rows[:, -2] = X[inside], codes[inside]
    rows[:, -1] = np.floor(shares[inside] * 2**20) / 2**20
    return Private(rows, Adjacency(unit=unit, moves="row", relation="add-or-remove"))


def check_whole(private: Private) -> None:
    """Raise ValueError unless the share of each row, its last number, is 1: one row of a person at most."""
    rows: np.ndarray = private.open()
    if rows.ndim != 2 or rows.shape[1] < 3:
        raise ValueError(f"rows must be numbers, a class and a share, got shape {rows.shape}")
    if not (rows[:, -1] == 1).all():
        raise ValueError("rows must end with a share of 1 each: give private_rows most=1")


def least_noise(
    made: Callable[[float], Releasing],
    *,
    epsilon: float,
    delta: float,
    times: int = 1,
    precision: float = 1e-6,
) -> float:
    """The least noise with which ``made`` keeps (epsilon, delta), ``times`` charges together.

    Raises
    ------
    ValueError
        Settings out of range, or an epsilon so small that no noise can be drawn for it.
    """
    try:
        return calibrate(made, n_answers=times, epsilon=epsilon, delta=delta, precision=precision)
    except ValueError as error:
        if not _TOO_MUCH.match(str(error)):
            raise
    raise ValueError(
        f"epsilon must be larger, got {epsilon!r}: it needs more noise than can be drawn, and than any table "
        "survives. Ask for fewer columns, clusters or rounds, or for a larger epsilon"
    )


def charged(
    generator: Any,
    mechanism: Releasing,
    private: Private,
    *,
    of: tuple[Any, ...],
    groups: Any,
    ledger: Ledger | None,
    rng: np.random.Generator | None,
) -> dict[str, np.ndarray]:
    """The release, after its charge, which gives the generator its ``mechanism_``.

    In a ledger the same settings and rows (``of``, in their order, with their ``groups``) are one release,
    which is charged once. The same fit again finds it there, and one that was interrupted goes on under its
    charge. A simulation is another release each time. Without a ledger the charge is to one in memory, with
    exactly the generator's budget.

    Raises
    ------
    BudgetExceeded
        The charges do not fit, all together; nothing was charged.
    """
    budget = Budget(epsilon=generator.epsilon, delta=generator.delta, adaptive=False)
    account, key = ledger or Ledger(":memory:", budget=budget), None
    if ledger is not None and rng is None:
        settings = {
            name: value
            for name, value in generator.get_params(deep=False).items()
            if name not in getattr(generator, "named", ())
        }
        persons = None if groups is None else numbered(groups)[0]
        parts = type(generator), settings, repr(mechanism), *of, persons
        key = key_of(*parts, secret=ledger.secret_of_fits(), ledger=ledger)
    try:
        part, times = getattr(mechanism, "turns", (mechanism, 1))
        begun = key is not None and account.entry_of(f"{key}/0") is not None
        if times > 1 and not begun and not account.affords(part, uses=times):
            raise BudgetExceeded(
                f"{account!r} has epsilon {account.left():.4g} left, which does not pay for {times} × "
                f"{part!r}: take a larger budget, or more noise; nothing was charged",
                asked=mechanism.curve().epsilon(account.budget.delta),
                left=account.left(),
            )
        released = release(mechanism, private, ledger=account, rng=rng, key=key)
    finally:
        if ledger is None:
            account.close()
    generator.mechanism_ = mechanism
    return cast("dict[str, np.ndarray]", released)


def record(
    generator: Any,
    private: Private,
    /,
    *,
    rng: np.random.Generator | None,
    public: tuple[str, ...] = ("the number of columns and the list of classes, which are public",),
    **settings: Any,
) -> Result:
    """The plain record of a fit. ``public``: what the guarantee does not protect."""
    mechanism, delta = generator.mechanism_, generator.delta
    return Result(
        kind="synth",
        settings={
            "unit": private.adjacency.unit,
            "relation": private.adjacency.relation,
            "mechanism": repr(mechanism),
            **settings,
        },
        upper={
            "epsilon": mechanism.curve().epsilon(delta=delta),
            "delta": delta,
            "curve": mechanism.curve().to_dict(),
            "simulation": rng is not None,
            "not_protected": list(public),
        },
        notes=("The lower bound is missing: no audit was run.",),
    )


@contextlib.contextmanager
def reading(kind: str) -> Iterator[None]:
    """Turn whatever a text that is not a whole record raises in the block into one sentence.

    Raises
    ------
    ValueError
        The text is not as ``to_json`` of this kind writes it.
    """
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
        zlib.error,
    ) as error:
        raise ValueError(
            f"a generator must be JSON as {kind}.to_json writes it, and this text is not "
            f"({type(error).__name__}): restore it from a copy"
        ) from error


def loaded(text: str, *, kind: str, versions: range) -> dict[str, Any]:
    """The record in a text of one of these versions, whose content is still to be read."""
    with reading(kind):
        record: dict[str, Any] = json.loads(text)
        version = record.get("version")
    if version not in versions:
        raise ValueError(
            f"a generator must be JSON of version {versions[-1]}, as {kind}.to_json writes it, got version "
            f"{version!r}"
        )
    return record


def counts_and_model(released: Mapping[str, np.ndarray], grain: int) -> tuple[Arrays, Arrays]:
    """Noisy counts in rows, and the arrays of a model, if one was released, as they are kept in a file."""
    tables = {name: cells / grain for name, cells in released.items() if name not in {ROWS, WEIGHTS, THETA}}
    if WEIGHTS not in released:
        return tables, {}
    model = {
        ROWS: released[ROWS],
        WEIGHTS: fine(released[WEIGHTS]),
        THETA: released[THETA].astype(np.float32),
    }
    return tables, model


def fine(weights: np.ndarray) -> np.ndarray:
    """Weights of rows in two bytes each."""
    return np.asarray(np.rint(weights / weights.max() * _FINENESS).astype(np.uint16))


def counts_to_dict(counts: Arrays) -> dict[str, Any]:
    """Counts as lists."""
    return {name: table.ravel().tolist() for name, table in counts.items()}


def counts_of(record: Mapping[str, Any]) -> Arrays:
    """The inverse of :func:`counts_to_dict`, without shapes."""
    return {name: np.array(cells) for name, cells in record.items()}


def settings(mechanism: Any) -> dict[str, Any]:
    """Public fields of a mechanism but for the sizes and the target, which the schema has."""
    return {
        field.name: getattr(mechanism, field.name)
        for field in fields(mechanism)
        if field.name not in {"sizes", "target"}
    }


def packed(arrays: Arrays) -> dict[str, Any]:
    """Arrays as plain JSON types."""
    return {
        name: {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "data": base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), level=6)).decode(),
        }
        for name, array in arrays.items()
    }


def unpacked(record: Mapping[str, Any]) -> Arrays:
    """The inverse of :func:`packed`."""
    return {
        name: np.frombuffer(zlib.decompress(base64.b85decode(entry["data"])), dtype=np.dtype(entry["dtype"]))
        .reshape(entry["shape"])
        .copy()
        for name, entry in record.items()
    }
