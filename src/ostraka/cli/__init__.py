"""The command line: a file for each verb, and one place that turns exceptions into exit codes."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import click
from click.shell_completion import shell_complete

import ostraka
from ostraka import console as _errors
from ostraka.cli import verbs as _verbs
from ostraka.core import imports as _imports

__all__ = ["main"]

# These use no pandas, which takes .4 s to import: scikit-learn and pyarrow load it wherever it is installed.
# A verb that opens a model of the user's is not here, as the model may need it.
_WITHOUT_PANDAS = ("learn", "check")


def main(arguments: list[str] | None = None) -> None:
    """Run ``ostraka`` and exit: 0, or 1 failure, 2 usage, 3 budget, 4 nothing learned, 130 interrupted."""
    # pyarrow looks for pandas once in a process: so only where the process ends with the command
    verb = "" if arguments is not None else "".join(sys.argv[1:2])
    unused = ("pandas",) if verb in _WITHOUT_PANDAS else ()
    with warnings.catch_warnings(), _imports.hidden(*unused):
        warnings.showwarning = _warned
        code, sentence = _run(arguments)
    if sentence:
        end = "" if sentence.endswith((".", "!", "?", "'")) else "."
        click.echo(f"ostraka: {sentence}{end}", err=True)
    sys.exit(code)


def _run(arguments: list[str] | None) -> tuple[int, str]:
    try:
        words = sys.argv[1:] if arguments is None else arguments
        app = _verbs.command(words[0] if words and words[0] in _verbs.VERBS else "")
        if shell := os.environ.get(_verbs.COMPLETING):
            return shell_complete(app, {}, "ostraka", _verbs.COMPLETING, shell), ""
        with app.make_context("ostraka", list(words) or ["--help"]) as context:
            app.invoke(context)
    except BaseException as error:  # noqa: BLE001  (all of them: a traceback may quote private values)
        return _errors.failure(error)
    return _errors.DONE, ""


def _warned(message: Warning | str, category: type[Warning], filename: str, *_: object, **__: object) -> None:
    """Print this library's warnings on one line; hide all others, because they may quote private values."""
    if issubclass(category, UserWarning) and Path(filename).is_relative_to(Path(ostraka.__file__).parent):
        click.echo(f"note: {message}", err=True)
