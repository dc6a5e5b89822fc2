"""Exceptions become a sentence and an exit code. Tracebacks may quote private values and are not shown.

Commands with many options: a frozen dataclass defines them, and Typer reads its fields.

Progress on stderr: bars on a terminal, else one line for each stage.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import inspect
import json
import math
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from rich.progress import Progress, TaskID

DONE, FAILED, USAGE, BUDGET, NOTHING_LEARNED, INTERRUPTED = 0, 1, 2, 3, 4, 130

_OPTIONS = {  # of Python's names in messages of the library
    "n_teachers=": "--teachers ",
    "n_teachers": "--teachers",
    "n_answers=": "--answers ",
    "n_answers": "--answers",
    "allow_overlap=True (--allow-overlap)": "--allow-overlap",
    "public rows (X_public)": "rows of --public",
}
UNASKED = "there is no terminal to ask on"
_EXPONENT = re.compile(r"\d+(\.\d+)?[eE]\+?\d{1,2}", re.ASCII)
_LEAST_NOISE = 1e-3  # votes
_RAISE = dis.opmap["RAISE_VARARGS"]
_CLICK = typer.BadParameter.__mro__[
    1
]  # UsageError: Typer carries its own copy of click, which has no public name


def told(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an exception, and its message."""
    code, words = FAILED, ""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else FAILED
    elif isinstance(error, typer.Abort) and isinstance(error.__context__, EOFError):
        words = "a file ends too early, or an answer was expected where there is no terminal"
    elif isinstance(error, KeyboardInterrupt | typer.Abort):
        code = INTERRUPTED
        words = (
            "interrupted: type the same command again to go on. What was paid for, if anything was, is kept"
        )
    elif isinstance(error, _CLICK):
        context = getattr(error, "ctx", None)
        see = f" See '{context.command_path} --help'" if context else ""
        code, words = USAGE, f"{error.format_message().replace('Value error, ', '')}{see}"  # type: ignore[attr-defined]
    elif _over_budget(error):
        code, words = BUDGET, str(error)
    elif isinstance(error, MemoryError):
        words = "there is not enough memory for numbers as large as these, or noise as small: type others"
    elif isinstance(error, OSError) and error.strerror:
        words = ": ".join(str(part) for part in (error.filename, error.strerror) if part is not None)
    elif raised_here(error.__traceback__):
        words = str(error)
    else:
        words = _defect(error)
    for name, option in _OPTIONS.items():
        words = words.replace(name, option)
    return code, words


def _over_budget(error: BaseException) -> bool:
    """Return whether the error is the ledger's BudgetExceeded, without importing the ledger."""
    ledger = sys.modules.get("ostraka.core.ledger")
    return ledger is not None and isinstance(error, ledger.BudgetExceeded)


def require_consent(question: str, *, yes: bool) -> None:
    """Ask before anything is spent; where nobody can answer, refuse unless ``--yes`` was typed.

    Raises
    ------
    typer.BadParameter
        There is no terminal to ask on, and no ``--yes``.
    typer.Exit
        The answer is no. Nothing was spent, and the terminal says so.
    """
    if yes:
        return
    if not _is_terminal():
        raise typer.BadParameter(
            f"nothing was spent: {UNASKED}. Read the plan above, and add --yes to the same command to spend "
            "without being asked"
        )
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        typer.echo("ostraka: nothing was spent.", err=True)
        raise typer.Exit(FAILED)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextlib.contextmanager
def usage(option: str = "") -> Iterator[None]:
    """Turn a ValueError inside the block into a usage error of this option."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}" if option else str(error)) from error


def raised_here(trace: TracebackType | None) -> bool:
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


def say(record: dict[str, Any], words: str, *, as_json: bool) -> None:
    """Print what was done: the words, or with ``--json`` the record."""
    typer.echo(json.dumps(record) if as_json else words)


def serve(server: Any, *, as_json: bool) -> None:
    """Print the address of a server of parties, keepers or witnesses, and answer until an interrupt."""
    say({"url": server.url}, server.url, as_json=as_json)
    try:
        server.serve_forever()
    finally:
        server.close()


def with_numbers(command: Any, words: Sequence[str]) -> list[str]:
    """What was typed, with the digits of whole numbers that were typed as 1e6.

    Raises
    ------
    typer.BadParameter
        The value of an option for a number is infinite, or the word nan.
    """
    typed = list(words)
    for word in typed:
        command = getattr(command, "commands", {}).get(word, command)
    kinds = {
        name: getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        for parameter in command.params
        for name in parameter.opts
    }
    for place, word in enumerate(typed):
        name, sign, value = word.partition("=")
        if not sign and place:
            name, value = typed[place - 1], word
        if kinds.get(name) is int:
            typed[place] = f"{name}={_digits(value)}" if sign else _digits(value)
        elif kinds.get(name) is float and _is_infinite(value):
            raise typer.BadParameter(f"{name} must be a number that is finite, got {value}")
    return typed


def _is_infinite(text: str) -> bool:
    try:
        return not math.isfinite(float(text))
    except ValueError:
        return False  # and no number, as its option will say


def _digits(text: str) -> str:
    """The digits of a whole number with an exponent; anything else as it is."""
    is_whole = _EXPONENT.fullmatch(text) and float(text).is_integer()
    return str(int(float(text))) if is_whole else text


def require_audible(option: str, noise: float | None) -> None:
    """Refuse noise so small that it hides nothing, and that nothing can be computed with.

    Raises
    ------
    typer.BadParameter
        It is positive, and below a thousandth of a vote.
    """
    if noise is not None and 0 < noise < _LEAST_NOISE:
        raise typer.BadParameter(f"{option} must be at least {_LEAST_NOISE:g} votes, got {noise:g}")


def require_new(path: Path | None, *, option: str) -> None:
    """Refuse to write over a file.

    Raises
    ------
    typer.BadParameter
        It exists.
    """
    if path is not None and path.exists():
        raise typer.BadParameter(
            f"{path} exists, and is not overwritten: type another {option}, or move it away"
        )


Options = TypeVar("Options")


def option(default: Any, text: str | None = None, metavar: str | None = None, **settings: Any) -> Any:
    """A field that is an option, called as the field is, or ``name``; of default ``...`` it must be typed."""
    return _field(default, typer.Option, help=text, metavar=metavar, **settings)


def argument(default: Any, text: str, metavar: str, **settings: Any) -> Any:
    """A field that is an argument with this help."""
    return _field(default, typer.Argument, help=text, metavar=metavar, **settings)


def _field(default: Any, reader: Any, **settings: Any) -> Any:
    metadata = {"reader": reader, **settings}
    return dataclasses.field(default=dataclasses.MISSING if default is ... else default, metadata=metadata)


def options(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Turn a function of one ``kind`` into a command whose parameters are the fields of ``kind``."""

    def wrap(command: Callable[[Options], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            command(kind(**values))

        hints, parameters = get_type_hints(kind), []
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            settings = dict(field.metadata)
            if reader := settings.pop("reader", None):
                name = settings.pop("name", None)
                if field.default is False and name is None:  # a flag without an opposite
                    name = f"--{field.name.replace('_', '-')}"
                read = reader(**settings) if name is None else reader(name, **settings)
                hints[field.name] = Annotated[hints[field.name], read]
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            kwonly = inspect.Parameter.KEYWORD_ONLY
            parameter = inspect.Parameter(field.name, kwonly, default=default, annotation=hints[field.name])
            parameters.append(parameter)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = hints
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        return run

    return wrap


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
