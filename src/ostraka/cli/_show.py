"""What a run shows: the plan before, one table after."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ostraka.cli._data import Task
    from ostraka.pate import Plan
    from ostraka.result import Result

__all__ = ["show_plan", "show_result"]

_NARROWEST = 60


def show_plan(task: Task, plan: Plan, *, teacher: str, out: Path) -> None:
    """What will be done and cost at most, on stderr."""
    from ostraka.report import at_most

    unit = "row" if task.groups is None else "person"
    a_teacher = task.n_units // plan.n_teachers
    rows = [
        ("private", f"{task.name}: {len(task.y_private):,} rows, {task.X_private.shape[1]:,} features"),
        ("protected", f"one {unit}, of {task.n_units:,}"),
        ("teachers", f"{plan.n_teachers:,} × {teacher}, about {a_teacher:,} {_many(unit, a_teacher)} each"),
        ("mechanism", repr(plan.mechanism)),
        ("answers", f"{plan.n_answers:,}, about {len(task.X_public):,} public rows"),
        ("expected", f"epsilon at most {at_most(plan.epsilon)} at delta {plan.delta:g}"),
        ("folder", str(out)),
    ]
    if plan.screen is not None:
        rows.insert(4, ("screen", repr(plan.screen)))
    if task.classes is None:
        rows.append(("note", "the list of classes is taken from the private labels and counts as public"))
    rows += [("not protected", text) for text in task.not_protected]
    _print("Plan", rows, on_stderr=True)


def show_result(result: Result) -> None:
    """The summary on stdout, owner-only lines marked, and what epsilon means."""
    from ostraka.report import privacy_label, summary_table

    table = summary_table(result)
    _print("Result", [(row.name, row.value + ("   [owner only]" if row.owner_only else "")) for row in table])
    _wrapped(privacy_label(result)["claim"])
    if any(row.owner_only for row in table):
        _wrapped("Lines marked [owner only] come from the private data without noise: do not pass them on.")


def _print(title: str, rows: list[tuple[str, str]], *, on_stderr: bool = False) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=on_stderr, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, _NARROWEST)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    console.print(title)
    console.print(table)


def _wrapped(text: str) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False).print("\n" + text)


def _many(unit: str, number: int) -> str:
    return unit if number == 1 else {"row": "rows", "person": "people"}[unit]
