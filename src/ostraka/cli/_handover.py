"""Files for the users of a model: a plain scikit-learn student, code that loads it, and a model card."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ostraka.cli import _encoding, _folder

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.cli._schema import Features
    from ostraka.cli._table import Table
    from ostraka.result import Result

__all__ = ["Shown", "write_card", "write_onnx", "write_student"]

_MOST_CHECKED = 2000  # public rows on which a model is compared with its copy


class Shown(NamedTuple):
    """How the public table was read, and some of its rows. Public.

    ``numbers`` are the columns of numbers without dates; ``missing`` are the texts, in lower case, that stand
    for no number, empty where that is refused; ``cells`` are the first public rows as the encoder reads them.
    """

    delimiter: str
    encoding: str
    numbers: tuple[str, ...]
    dates: tuple[tuple[str, str | None], ...]
    missing: tuple[str, ...]
    cells: np.ndarray

    @classmethod
    def of(cls, asked: Table, features: Features) -> Self:
        """Describe a public table."""
        dated = dict(features.dates)
        return cls(
            *asked.form,
            numbers=tuple(name for name in features.numbers if name not in dated),
            dates=features.dates,
            missing=asked.missing if features.fill else (),
            cells=_encoding.cells(asked, features, rows=slice(_MOST_CHECKED)),
        )


def write_student(
    student: Any,
    folder: Path,
    *,
    shown: Shown | None = None,
    array: str = "",
) -> str:
    """Write the student, and return the lines of Python that load it and predict. All of it is public."""
    from ostraka._imports import skops_io

    path, writer = folder / _folder.STUDENT, skops_io()
    _folder.write(path, lambda at: writer.dump(student, at))
    trusted = writer.get_untrusted_types(file=path)
    if array:
        return "\n".join(_array_lines(trusted, array))
    return "\n".join(_lines(trusted, shown))


def write_onnx(student: Any, folder: Path, *, original: Any, shown: Shown | None, rows: np.ndarray) -> str:
    """Write the student as ONNX if it predicts public rows as the original does; else return why not.

    Nothing is written, and nothing is said, where onnx is not installed.

    Parameters
    ----------
    student
        As it is written for scikit-learn.
    folder : Path
    original : classifier
        The student of the run.
    shown : Shown or None
        None: the student takes the features as they are.
    rows : array of shape (n_public, n_features)
        Public features.
    """
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        return ""
    from ostraka.cli import _onnx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the converter's own code
            if shown is None:
                made, feed = _onnx.array_model(student, rows)
            else:
                made, feed = _onnx.table_model(student), _onnx.columns_of(shown.cells, student)
            onnx.checker.check_model(made)
            outputs: Any = ReferenceEvaluator(made).run(None, feed)
            said = np.asarray(outputs[0])
    except Exception as error:  # noqa: BLE001  (the run is paid for, and whole without this file)
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "  # not one of our reasons
        first, *_ = f"{error}".splitlines() or [""]
        return f"{_folder.ONNX} is not written: {kind}{first}"
    expected = np.asarray(original.predict(rows[: len(said)]))
    wrong = int((said.astype(str) != expected.astype(str)).sum())
    if wrong:
        return (
            f"{_folder.ONNX} is not written: it predicts {wrong:,} of {len(said):,} public rows differently"
        )
    _folder.write(folder / _folder.ONNX, made.SerializeToString())
    return ""


def write_card(result: Result, lines: str, folder: Path, *, onnx: bool) -> None:
    """A model card in Hugging Face's format, from the public record."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from ostraka.report import privacy_label, summary_table

    environment = Environment(  # noqa: S701  (Markdown, not HTML)
        loader=PackageLoader("ostraka"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = result.public()
    card = environment.get_template("model-card.md.j2").render(
        label=privacy_label(shown), rows=summary_table(shown), result=shown, lines=lines, onnx=onnx
    )
    _folder.write(folder / _folder.CARD, card)


def _array_lines(trusted: list[str], array: str) -> list[str]:
    trust = f", trusted={trusted!r}" if trusted else ""
    return [
        "import numpy as np",
        "import skops.io",
        "",
        f'student = skops.io.load("student.skops"{trust})',
        f'rows = np.load("rows.npz")["{array}"]  # of a sparse matrix: scipy.sparse.load_npz("rows.npz")',
        "print(student.predict(rows.reshape(len(rows), -1) if rows.ndim > 2 else rows))",
    ]


def _lines(trusted: list[str], shown: Shown | None) -> list[str]:
    trust = f", trusted={trusted!r}" if trusted else ""
    lines = ["import pandas as pd", "import skops.io", ""]
    lines.append(f'student = skops.io.load("student.skops"{trust})')
    lines += ['rows = pd.read_csv("rows.csv")'] if shown is None else _reading(shown)
    return [*lines, "print(student.predict(rows))  # columns are found by name; others are ignored"]


def _reading(shown: Shown) -> list[str]:
    """Return lines that read text, numbers and dates as they were read here."""
    how = "" if shown.delimiter == "," else f", sep={shown.delimiter!r}"
    how += "" if shown.encoding == "utf8" else f", encoding={shown.encoding!r}"
    lines = [f'rows = pd.read_csv("rows.csv"{how}, dtype=str, keep_default_na=False)']
    lines.append("rows = rows.apply(lambda column: column.str.strip())")
    known = ""
    if shown.missing:
        lines.append(f"missing = {list(shown.missing)!r}")
        known = ".where(~column.str.lower().isin(missing))"
    if shown.numbers:
        comma = "" if shown.delimiter == "," else '.str.replace(",", ".")'
        lines.append(f"numbers = {list(shown.numbers)!r}")
        number = f"column{comma}{known}.astype(float)"
        lines.append(f"rows[numbers] = rows[numbers].apply(lambda column: {number})")
    if shown.dates:
        lines.append('start, day = pd.Timestamp("1970-01-01"), pd.Timedelta(days=1)')
    for name, form in shown.dates:
        lines.append(f"column = rows[{name!r}]")
        parsed = f"pd.to_datetime(column{known}{f', format={form!r}' if form else ''})"
        lines.append(f"rows[{name!r}] = ({parsed} - start) / day")
    return lines
