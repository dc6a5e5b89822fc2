"""Output of ``ostraka learn``: the plan before the run, the results after it."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.cli._data import Shape
    from ostraka.pate._counts import CountsPlan
    from ostraka.pate.plan import Plan
    from ostraka.result import Result

__all__ = ["show_plan", "show_result", "wrapped"]

_NARROWEST = 20


def show_plan(task: Shape, plan: Plan | CountsPlan, *, teacher: str, out: Path) -> None:
    """Print the plan and its largest possible cost on stderr."""
    from ostraka._phrases import at_most

    rows = [
        ("private", f"{task.name}: {task.n_rows:,} rows, {task.n_features:,} features"),
        ("protected", f"one {task.unit}, of {task.n_units:,}"),
        *_asked(task, plan, teacher=teacher),
        ("expected", f"epsilon at most {at_most(plan.epsilon)} at delta {plan.delta:g}"),
        ("folder", str(out)),
    ]
    if not task.classes_declared:
        rows.append(("note", "the list of classes is taken from the private labels and counts as public"))
    rows += [("read", text) for text in task.said]
    rows += [("not protected", text) for text in task.not_protected]
    margin = 2 + max(len(name) for name, _ in rows)
    wrapped("Plan", on_stderr=True)
    for name, value in rows:
        wrapped(f"{name:<{margin}}{value}", indent=margin, on_stderr=True)


def _asked(task: Shape, plan: Plan | CountsPlan, *, teacher: str) -> list[tuple[str, str]]:
    """Describe in words who answers which questions, and how."""
    from ostraka._phrases import neighbours
    from ostraka.mechanisms.protocols import parts
    from ostraka.pate._counts import CountsPlan

    if isinstance(plan, CountsPlan):
        way = f"counts: every {task.unit} casts one ballot in all, for {task.n_public:,} public rows"
        answers = f"one table of counts: {plan.n_cells:,} cells × classes"
        if plan.way == "rounds":
            way = f"rounds: in each, every {task.unit} votes for what the model so far gets wrong about it"
            answers = f"{plan.n_answers} tables, one a round: {plan.n_cells:,} features × classes"
        return [
            ("way", way),
            ("mechanism", repr(plan.mechanism)),
            ("neighbours", neighbours({"relation": plan.mechanism.relation, "unit": task.unit})),
            ("answers", answers),
        ]
    screen, argmax = parts(plan.mechanism)
    a_teacher = task.n_units // plan.n_teachers
    return [
        (
            "teachers",
            f"{plan.n_teachers:,} × {teacher}, about {a_teacher:,} {_many(task.unit, a_teacher)} each",
        ),
        ("mechanism", repr(argmax)),
        *([] if screen is None else [("screen", repr(screen))]),
        ("answers", f"{plan.n_answers:,} of {task.n_public:,} public rows"),
    ]


def show_result(result: Result) -> None:
    """Print the summary on stdout, with owner-only lines marked, and what epsilon means."""
    from ostraka.report import privacy_label, summary_table

    table = summary_table(result)
    margin = 2 + max(len(row.name) for row in table)
    for heading, rows in itertools.groupby(table, key=lambda row: row.heading):
        wrapped(f"\n{heading}")
        for row in rows:
            mark = "   [owner only]" if row.owner_only else ""
            wrapped(f"  {row.name:<{margin}}{row.value}{mark}", indent=margin + 2)
    wrapped("\n" + privacy_label(result)["claim"])
    if any(row.owner_only for row in table):
        wrapped("\nLines marked [owner only] come from the private data without noise: do not pass them on.")


def show_choice(result: Result) -> None:
    """Print which way was chosen and what each was expected to give, where there was a choice."""
    expected: dict[str, float] = result.settings.get("expected", {})
    if expected:
        said = ", ".join(f"{name} {value:.3f}" for name, value in expected.items())
        best = max(expected, key=lambda name: expected[name])
        wrapped(f"\nChosen: {best}. Expected accuracy on public rows with made-up labels: {said}.")


def wrapped(text: str, *, indent: int = 0, on_stderr: bool = False) -> None:
    """Print a line, folded to the width of a terminal; in a pipe or a file it stays one line."""
    stream = sys.stderr if on_stderr else sys.stdout
    if stream.isatty():
        width = max(shutil.get_terminal_size().columns, _NARROWEST)
        hang = " " * min(indent, width - _NARROWEST // 2)
        text = textwrap.fill(text, width, subsequent_indent=hang, replace_whitespace=False)
    typer.echo(text, err=on_stderr)


def _many(unit: str, number: int) -> str:
    return unit if number == 1 else {"row": "rows", "person": "people"}[unit]
