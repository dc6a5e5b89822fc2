"""Exceptions become a sentence and an exit code. Tracebacks may quote private values and are not shown."""

from __future__ import annotations

import contextlib
import dis
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ["BUDGET", "DONE", "FAILED", "INTERRUPTED", "NOTHING_LEARNED", "USAGE", "told", "usage"]

DONE, FAILED, USAGE, BUDGET, NOTHING_LEARNED, INTERRUPTED = 0, 1, 2, 3, 4, 130

_OPTIONS = {  # of Python's names in messages of the library
    "n_teachers=": "--teachers ",
    "n_teachers": "--teachers",
    "n_answers=": "--answers ",
    "n_answers": "--answers",
    "allow_overlap=True (--allow-overlap)": "--allow-overlap",
    "public rows (X_public)": "rows of --public",
}
_RAISE = dis.opmap["RAISE_VARARGS"]
_CLICK = typer.BadParameter.__mro__[
    1
]  # UsageError: Typer carries its own copy of click, which has no public name


def told(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an exception, and its message."""
    code, words = FAILED, ""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else FAILED
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        code = INTERRUPTED
        words = "interrupted. What was paid for is kept: type the same command again to go on"
    elif isinstance(error, _CLICK):
        context = getattr(error, "ctx", None)
        see = f" See '{context.command_path} --help'" if context else ""
        code, words = USAGE, f"{error.format_message()}{see}"  # type: ignore[attr-defined]
    elif _over_budget(error):
        code, words = BUDGET, str(error)
    elif isinstance(error, OSError) and error.strerror:
        words = ": ".join(str(part) for part in (error.filename, error.strerror) if part is not None)
    elif _raised_here(error.__traceback__):
        words = str(error)
    else:
        words = _defect(error)
    for name, option in _OPTIONS.items():
        words = words.replace(name, option)
    return code, words


def _over_budget(error: BaseException) -> bool:
    """Return whether the error is the ledger's BudgetExceeded, without importing the ledger."""
    ledger = sys.modules.get("ostraka.ledger")
    return ledger is not None and isinstance(error, ledger.BudgetExceeded)


@contextlib.contextmanager
def usage(option: str = "") -> Iterator[None]:
    """Turn a ValueError inside the block into a usage error of this option."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}" if option else str(error)) from error


def _raised_here(trace: TracebackType | None) -> bool:
    """Return whether this package raised the error; only such messages are known to quote no data."""
    # an exception of C code that was called from here (float("…")) ends in our frame, too, but not at a raise
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    is_ours = str(frame.f_globals.get("__name__", "")).split(".")[0] == "ostraka"
    return is_ours and frame.f_code.co_code[trace.tb_lasti] == _RAISE


def _defect(error: BaseException) -> str:
    """Describe an error by its type and place, without its message."""
    places = [
        f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    return (
        f"unexpected {type(error).__name__}, please report it with this line: {' > '.join(places[-6:])}. "
        "Its message is not shown, because it may quote private values"
    )
