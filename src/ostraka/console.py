"""What every verb of the command line is made of.

Options: a verb is a function; its parameters, or the fields of the frozen dataclass that it takes, say what
can be typed. Exceptions become a sentence and an exit code: tracebacks may quote private values, and are not
shown. Progress on stderr: bars on a terminal, else one line for each stage.
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
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args, get_origin, get_type_hints

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

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


def verb(
    group: click.Group | None = None, *, name: str = ""
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function, in a group or alone.

    The parameters of the function have an :func:`option` or an :func:`argument` as default, and their types
    say what can be typed; or it takes a frozen dataclass whose fields do.
    """

    def command_of(run: Callable[..., None]) -> click.Command:
        hints, call = get_type_hints(run), run
        fields = {item.name: item.default for item in inspect.signature(run).parameters.values()}
        kind: Any = hints.get(next(iter(fields), ""))
        takes_fields = dataclasses.is_dataclass(kind)  # not asked below: mypy would call no kind any more
        if takes_fields:
            hints, fields = get_type_hints(kind), {field.name: field for field in dataclasses.fields(kind)}

            def call(**typed: Any) -> None:
                run(kind(**typed))

        parameters = [_parameter(key, hints[key], field) for key, field in fields.items()]
        command = click.Command(name or run.__name__, callback=call, params=parameters, help=run.__doc__)
        if group is not None:
            group.add_command(command)
        return command

    return command_of


def option(default: Any, text: str | None = None, metavar: str | None = None, **settings: Any) -> Any:
    """What can be typed as an option, called as the parameter or field is, or ``name``.

    One of default ``...`` must be typed. ``min`` and ``max`` are the ends of a number; a path may have to
    exist (``exists``).
    """
    return _field(default, help=text, metavar=metavar, **settings)


def argument(default: Any, text: str, metavar: str) -> Any:
    """What can be typed as an argument; one of default ``...`` must be."""
    return _field(default, help=text, metavar=metavar, name="")


def _field(default: Any, **settings: Any) -> Any:
    return dataclasses.field(default=dataclasses.MISSING if default is ... else default, metadata=settings)


JSON: Any = option(False, "Print JSON on stdout.", name="--json")


def _parameter(name: str, hint: Any, field: Any) -> click.Parameter:
    """What click reads for a parameter of this type."""
    settings = dict(field.metadata)
    typed = settings.pop("name", f"--{name.replace('_', '-')}")
    least, most = settings.pop("min", -math.inf), settings.pop("max", math.inf)
    exists = settings.pop("exists", False)
    if type(None) in get_args(hint):
        (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
    several, parts = get_origin(hint) is list, get_args(hint)
    plain = parts[0] if parts else hint
    if plain in {int, float}:
        settings["type"] = number = Number(plain, least, most)
        if number.ends:
            settings["help"] = f"{settings['help'] or ''} {number.ends.capitalize()}.".lstrip()
    elif plain is Path:
        settings["type"] = click.Path(exists=exists, path_type=Path)
    elif issubclass(plain, StrEnum):
        settings["type"] = Word(plain)
    if several:
        settings["callback"] = lambda _, __, values: list(values) or None
    elif parts:
        settings["nargs"] = len(parts)
    settings["required"] = field.default is dataclasses.MISSING
    if not settings["required"] and field.default is not None:
        settings["default"] = getattr(field.default, "value", field.default)  # of an enumeration
    if not typed:
        if not settings["required"]:
            settings["metavar"] = f"[{settings['metavar']}]"
        return click.Argument([name], nargs=-1 if several else 1, **settings)
    settings |= {"multiple": several, "show_default": field.default != ""}
    settings |= {"is_flag": True} if plain is bool else {}  # False says that the value may be left out
    return click.Option([name, typed], **settings)


class Number(click.ParamType[float]):
    """A number as people type it: a whole one as 1e6, too; never an infinite one, and within its ends."""

    name = "number"

    def __init__(self, kind: type, least: float = -math.inf, most: float = math.inf) -> None:
        self.kind, self.least, self.most = kind, least, most

    @property
    def ends(self) -> str:
        """Its ends in words; empty where it has none."""
        if self.most < math.inf:
            return f"from {self.least:g} to {self.most:g}"
        return f"at least {self.least:g}" if self.least > -math.inf else ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number in a word that was typed, unless it is none, or beyond the ends."""
        if not isinstance(value, str):
            return value
        with contextlib.suppress(ValueError, OverflowError):
            number = _whole(value) if self.kind is int else float(value)
            if math.isfinite(number) and self.least <= number <= self.most:
                return number
        kind = "a whole number" if self.kind is int else "a finite number"
        what = f"{kind}, {self.ends}" if self.ends else kind
        raise click.UsageError(f"{param.opts[0] if param else 'this'} must be {what}, got {value!r}", ctx)


def _whole(text: str) -> int:
    """A whole number, which may be typed with an exponent.

    >>> _whole("1e6"), _whole("-3")
    (1000000, -3)
    """
    number = float(text) if _EXPONENT.fullmatch(text) else int(text)
    if number != int(number):
        raise ValueError(text)
    return int(number)


class Word(click.Choice[str]):
    """One of the words of an enumeration."""

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__([word.value for word in kind])
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        """The member of the enumeration."""
        return self.kind(super().convert(value, param, ctx))


class Group(click.Group):
    """Verbs of one subject in the order in which they are defined.

    ``default``: the one that is meant where no verb is typed, but nothing, an option or a file.
    """

    def __init__(self, text: str | None, *, default: str = "", **settings: Any) -> None:
        super().__init__(help=text, no_args_is_help=False, **settings)
        self.default = default

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's form)
        """The names of the verbs."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in the verb that is meant; a word that is no file is a verb mistyped."""
        word = args[0] if args else ""
        if self.default and word not in {*self.commands, *ctx.help_option_names}:
            is_verb = word and word[0] != "-" and not Path(word).suffix and not Path(word).exists()
            args = args if is_verb else [self.default, *args]
        return super().parse_args(ctx, args)


def say(record: dict[str, Any], words: str, *, as_json: bool) -> None:
    """Print what was done: the words, or with ``--json`` the record."""
    click.echo(json.dumps(record) if as_json else words)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> None:
    """Print cells below their columns on stdout; the last columns, so many, hold ``numbers``."""
    lines = [columns, *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        words = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        if numbers:
            words[-numbers:] = [cell.strip().rjust(len(cell)) for cell in words[-numbers:]]
        click.echo("  ".join(words).rstrip())


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
        self._shown = ""
        self._bar: Any = None
        self._is_terminal = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage; a finished stage stays finished."""
        if stage in self._finished:
            return
        if self._is_terminal:
            self._show(stage)
            self._bar.length = total
            self._bar.update(done - self._bar.pos)
        if done < total:
            return
        self._finished.add(stage)
        later = [name for name in self._names if name not in self._finished]
        if self._is_terminal and later:
            self._show(later[0])
        if not self._is_terminal:
            name = self._names.get(stage, stage)
            click.echo(name if total == 1 else f"{name}: {total:,}", err=True)

    def _show(self, stage: str) -> None:
        """Begin the bar of a stage below that of the one before."""
        if stage == self._shown:
            return
        self._end()
        label, self._shown = self._names.get(stage, stage), stage
        self._bar = click.progressbar(
            length=1, label=label, show_pos=True, fill_char="━", empty_char=" ", file=sys.stderr
        )
        self._bar.__enter__()

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None

    def __repr__(self) -> str:
        return "Stages()"  # without an address: an estimator that holds one prints the same in every process

    def __enter__(self) -> Self:
        self._is_terminal = sys.stderr.isatty()
        if self._is_terminal:
            self._show(next(iter(self._names)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


@contextlib.contextmanager
def usage(option: str = "") -> Iterator[None]:
    """Turn a ValueError inside the block into a usage error of this option."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}" if option else str(error)) from error


def require_consent(question: str, *, yes: bool) -> None:
    """Ask before anything is spent; where nobody can answer, refuse unless ``--yes`` was typed.

    Raises
    ------
    click.UsageError
        There is no terminal to ask on, and no ``--yes``.
    click.exceptions.Exit
        The answer is no. Nothing was spent, and the terminal says so.
    """
    if yes:
        return
    if not _is_terminal():
        raise click.UsageError(
            f"nothing was spent: {UNASKED}. Read the plan above, and add --yes to the same command to spend "
            "without being asked"
        )
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        agreed = False
    if not agreed:
        click.echo("ostraka: nothing was spent.", err=True)
        raise click.exceptions.Exit(FAILED)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def require_audible(option: str, noise: float | None) -> None:
    """Refuse noise so small that it hides nothing, and that nothing can be computed with.

    Raises
    ------
    click.UsageError
        It is positive, and below a thousandth of a vote.
    """
    if noise is not None and 0 < noise < _LEAST_NOISE:
        raise click.UsageError(f"{option} must be at least {_LEAST_NOISE:g} votes, got {noise:g}")


def require_new(path: Path | None, *, option: str) -> None:
    """Refuse to write over a file, and a file of an option whose folder is not there.

    Raises
    ------
    click.UsageError
        It exists, or its folder does not.
    """
    if path is None:
        return
    if path.exists():
        raise click.UsageError(
            f"{path} exists, and is not overwritten: type another {option}, or move it away"
        )
    if option.startswith("--") and not path.parent.is_dir():
        raise click.UsageError(f"{path.parent} is not a folder: make it, or type another {option}")


def serve(server: Any, *, as_json: bool) -> None:
    """Print the address of a server of parties, keepers or witnesses, and answer until an interrupt."""
    say({"url": server.url}, server.url, as_json=as_json)
    try:
        server.serve_forever()
    finally:
        server.close()


def failure(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an exception, and its message."""
    code, words = FAILED, ""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else FAILED
    elif isinstance(error, click.exceptions.Exit):
        code = error.exit_code
    elif isinstance(error.__context__ if isinstance(error, click.Abort) else error, EOFError):
        words = "a file ends too early, or an answer was expected where there is no terminal"
    elif isinstance(error, KeyboardInterrupt | click.Abort):
        code = INTERRUPTED
        words = (
            "interrupted: type the same command again to go on. What was paid for, if anything was, is kept"
        )
    elif isinstance(error, click.UsageError):
        code, words = USAGE, error.format_message()
        if error.ctx is not None:
            words = f"{words if words[-1:] in '.?!)' else f'{words}.'} See '{error.ctx.command_path} --help'"
    elif isinstance(error, getattr(sys.modules.get("ostraka.core.ledger"), "BudgetExceeded", ())):
        code, words = BUDGET, str(error)  # the ledger is not imported for that
    elif isinstance(error, MemoryError):
        words = "there is not enough memory for numbers as large as these, or noise as small: type others"
    elif isinstance(error, OSError) and error.strerror:
        words = ": ".join(str(part) for part in (error.filename, error.strerror) if part is not None)
    elif raised_here(error.__traceback__):
        words = str(error)
    else:
        # its type and place alone
        places = [
            f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}:{frame.lineno}"
            for frame in traceback.extract_tb(error.__traceback__)
        ]
        words = (
            f"unexpected {type(error).__name__}, please report it with this line: {' > '.join(places[-6:])}. "
            "Its message is not shown, because it may quote private values"
        )
    for name, option in _OPTIONS.items():
        words = words.replace(name, option)
    return code, words


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
