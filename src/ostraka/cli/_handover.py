"""Files for the users of a model: a plain scikit-learn student, code that loads it, and a model card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ostraka.cli import _folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ostraka.result import Result

__all__ = ["write_card", "write_student"]


def write_student(
    student: Any,
    folder: Path,
    *,
    columns: Sequence[str],
    encoder: Any,
    dates: Sequence[tuple[str, str | None]],
    array: str = "",
) -> str:
    """Write the student, and return the lines of Python that load it and predict. All of it is public."""
    from ostraka._skops import skops_io

    path, writer = folder / _folder.STUDENT, skops_io()
    _folder.write(path, lambda at: writer.dump(student, at))
    trusted = writer.get_untrusted_types(file=path)
    if array:
        return "\n".join(_array_lines(trusted, array))
    return "\n".join(_lines(trusted, _kinds(columns, encoder), dates))


def write_card(result: Result, lines: str, folder: Path) -> None:
    """A model card in Hugging Face's format, from the public record."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from ostraka.report import privacy_label, summary_table

    environment = Environment(  # noqa: S701  (Markdown, not HTML)
        loader=PackageLoader("ostraka"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shown = result.public()
    card = environment.get_template("model-card.md.j2").render(
        label=privacy_label(shown), rows=summary_table(shown), result=shown, lines=lines
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


def _lines(trusted: list[str], kinds: list[str], dates: Sequence[tuple[str, str | None]]) -> list[str]:
    lines = ["import pandas as pd", "import skops.io", ""]
    trust = f", trusted={trusted!r}" if trusted else ""
    lines += [f'student = skops.io.load("student.skops"{trust})', 'rows = pd.read_csv("rows.csv")']
    if dates:
        lines.append('start, day = pd.Timestamp("1970-01-01"), pd.Timedelta(days=1)')
    for name, form in dates:
        parsed = f"pd.to_datetime(rows[{name!r}]{f', format={form!r}' if form else ''})"
        lines.append(f"rows[{name!r}] = ({parsed} - start) / day")
    if kinds:
        lines.append(f"rows[{kinds!r}] = rows[{kinds!r}].fillna('').astype(str)")
    return [*lines, "print(student.predict(rows))  # columns are found by name; others are ignored"]


def _kinds(columns: Sequence[str], encoder: Any) -> list[str]:
    """Return the columns that the student reads as text."""
    if not hasattr(encoder, "transformers_"):
        return []
    found: dict[int, str] = {}
    for name, _, places in encoder.transformers_:
        if name not in {"numbers", "remainder"}:
            found |= {place: columns[place] for place in (places if isinstance(places, list) else [places])}
    return [found[place] for place in sorted(found)]
