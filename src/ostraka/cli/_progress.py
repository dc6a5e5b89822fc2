"""Progress on stderr: bars where somebody watches a terminal, else one line a stage."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress, TaskID

__all__ = ["Stages"]


class Stages:
    """A callable ``(stage, done, total)`` that shows how far each stage is. Use it as a context manager.

    Parameters
    ----------
    names : dict of str to str
        What to call each stage. Unknown stages are called by their key.
    quiet : bool
        Show nothing.
    """

    def __init__(self, names: dict[str, str], *, quiet: bool = False) -> None:
        self._names = names
        self._quiet = quiet
        self._finished: set[str] = set()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._quiet or stage in self._finished:
            return
        if done >= total:
            self._finished.add(stage)
        name = self._names.get(stage, stage)
        if self._bars is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bars.add_task(name, total=total)
            self._bars.update(self._tasks[stage], completed=done, total=total)
        elif done >= total:
            print(name if total == 1 else f"{name}: {total:,}", file=sys.stderr)  # noqa: T201  (its purpose)

    def __repr__(self) -> str:
        return "Stages()"  # without an address: estimators that hold one print the same in every process

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))
