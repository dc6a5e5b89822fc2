"""Progress on stderr: bars on a terminal, else one line for each stage."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress, TaskID

__all__ = ["STAGES", "Stages"]

_LAST = {"student": "student trained", "audit": "adversary simulated", "record": "cost and accuracy"}
STAGES = {  # of ostraka learn, by way
    "argmax": {
        "shards": "rows dealt to teachers",
        "teachers": "teachers trained",
        "votes": "teachers voted",
        "answers": "questions answered",
        **_LAST,
    },
    "counts": {"votes": "rows voted", **_LAST},
    "rounds": {"votes": "features of rows", "answers": "rounds of votes", **_LAST},
}


class Stages:
    """A callable ``(stage, done, total)`` that shows the progress of each stage. Use it as a context manager.

    Parameters
    ----------
    names : dict of str to str
        What to call each stage, in the order in which they come: when one ends, the next is seen to
        begin.

    Examples
    --------
    >>> with Stages({"teachers": "teachers trained"}) as tell:
    ...     tell("teachers", 250, 250)  # says "teachers trained: 250" on stderr
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._finished: set[str] = set()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage; a finished stage stays finished."""
        if stage in self._finished:
            return
        self._begin(stage)
        if self._bars is not None:
            self._bars.update(self._tasks[stage], completed=done, total=total)
        if done >= total:
            self._finish(stage, total)

    def _begin(self, stage: str) -> None:
        if self._bars is not None and stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(self._names.get(stage, stage), total=None)

    def _finish(self, stage: str, total: int) -> None:
        self._finished.add(stage)
        later = [name for name in self._names if name not in self._finished]
        if later:
            self._begin(later[0])
        if self._bars is None:
            name = self._names.get(stage, stage)
            print(name if total == 1 else f"{name}: {total:,}", file=sys.stderr)  # noqa: T201  (its purpose)

    def __repr__(self) -> str:
        return "Stages()"  # without an address: an estimator that holds one prints the same in every process

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bars = _bars()
            self._bars.start()
            self._begin(next(iter(self._names)))
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

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True))
