"""The folder of a run: its file names, and functions that begin, continue and read a run."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
from typing import TYPE_CHECKING, Any

import click

from ostraka.core import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ostraka.core.ledger.ledger import Ledger
    from ostraka.core.result import Result
    from ostraka.report.page import Figure

PLAN, MANIFEST, LEDGER = "plan.json", "manifest.json", "ledger.sqlite"
STUDENT, ONNX = "student.skops", "student.onnx"
LABELS, LABEL = "labels.parquet", "privacy-label.json"
TEACHERS, DOCUMENTS, SERVICE = "teachers", "documents", "service"  # folders for the owner alone
RESULT, REPORT, PUBLIC_REPORT = "result.json", "report.html", "report-public.html"
CARD = "model-card.md"
ANSWERS = "answers.log"  # of a language model to private prompts
SECRET = f"{LEDGER}.secret"  # the estimator's name for it, too
FOR_ANYBODY = (STUDENT, ONNX, CARD, LABELS, LEDGER, LABEL, PUBLIC_REPORT)  # all else is for the owner


def open_run(folder: Path, plan: dict[str, Any], *, tables: dict[str, Path | None]) -> bool:
    """Make a folder for a plan and its tables, or check that it holds the same ones; return whether it did.

    Of a run that goes on, a line is printed.

    Raises
    ------
    click.UsageError
        It is finished, belongs to another plan, or is somebody else's folder.
    """
    plan = json.loads(json.dumps(plan))  # as it will be read back
    require_place(folder)
    if (folder / PLAN).exists():
        # not with other settings or data: the ledger there has paid for the first ones
        before = json.loads((folder / PLAN).read_text())
        plan |= _fingerprints(folder, tables)
        if before.get("format") != plan.get("format"):
            raise click.UsageError(
                f"{folder} holds an unfinished run of another version of ostraka, which this one cannot go "
                "on with; what it spent is in its ledger and stays spent: type --out with another folder"
            )
        changed = sorted(name for name in before.keys() | plan.keys() if before.get(name) != plan.get(name))
        if changed:
            raise click.UsageError(
                f"{folder} holds an unfinished run with other {', '.join(changed)}: type the command that "
                "began it to go on, or --out with another folder"
            )
        click.echo(f"going on with {folder}: what was paid for is used again", err=True)
        return True
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / PLAN, json.dumps(plan | _fingerprints(folder, tables), indent=2))
    return False


def contents(folder: Path) -> tuple[str, str]:
    """Name what is in a run's folder: what may be passed on, and what is for the owner of the data."""
    entries = {entry.name: entry.is_dir() for entry in folder.iterdir()}
    public = [name for name in FOR_ANYBODY if name in entries]
    owners = [name + "/" * entries[name] for name in sorted(entries.keys() - public)]
    return _listed(public), _listed(owners)


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def require_place(folder: Path) -> None:
    """Raise unless a run can begin here, or go on.

    Raises
    ------
    click.UsageError
        It is finished, or somebody else's folder.
    """
    if (folder / RESULT).exists():
        pages = f", or 'ostraka report {folder}' to make its pages again" if (folder / LABEL).exists() else ""
        raise click.UsageError(
            f"{folder} holds a finished run, which is not overwritten: type --out with another folder{pages}"
        )
    if (folder / PLAN).exists():
        return
    is_taken = folder.exists()
    if folder.is_dir():
        # a run that was interrupted before its plan was written has a secret, and perhaps a draft
        names = [entry.name for entry in folder.iterdir()]
        is_taken = any(name != SECRET and not files.is_draft(name) for name in names)
    if is_taken:
        raise click.UsageError(f"{folder} is not empty and not a run: type --out with another folder")


@contextlib.contextmanager
def unless_refused(folder: Path, ledger: Ledger, *, going_on: bool) -> Iterator[None]:
    """Forget a folder that is new where the block is refused before anything was charged."""
    try:
        yield
    except ValueError:
        if not (going_on or ledger.count()):
            forget(folder)
        raise


def forget(folder: Path) -> None:
    """Remove the folder of a run that was refused before anything was charged."""
    for path in (folder / PLAN, folder / MANIFEST, *folder.glob(f"{LEDGER}*")):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something else is in it
        folder.rmdir()


def _fingerprints(folder: Path, tables: dict[str, Path | None]) -> dict[str, str | None]:
    """Return an HMAC of each table under the folder's secret: a run goes on with the same data only."""
    # a digest without a key would let anybody who guesses the private table check the guess
    secret = files.create(folder / SECRET, os.urandom(32))
    return {name: None if path is None else _hmac(path, secret) for name, path in tables.items()}


def name_of(folder: Path) -> str:
    """A public name of a run, the same when it goes on, which tells nothing about its secret.

    The secret is made if there is none yet.
    """
    secret = files.create(folder / SECRET, os.urandom(32))
    return hmac.new(secret, b"name of the run", digestmod="sha256").hexdigest()[:16]


def begun(folder: Path) -> str | None:
    """The name of the run in a folder; None where none began. Writes nothing."""
    return name_of(folder) if (folder / SECRET).exists() else None


def _hmac(path: Path, secret: bytes) -> str:
    if path.is_dir():  # of Parquet files
        names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        parts = [(name, _hmac(path / name, secret)) for name in names]
        return hmac.new(secret, json.dumps(parts).encode(), digestmod="sha256").hexdigest()
    digest = hmac.new(secret, digestmod="sha256")
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Write a file atomically; only the owner can read what is not for anybody."""
    files.write(path, content, private=path.name not in FOR_ANYBODY)


def load(folder: Path) -> Result:
    """Read the record of a finished run."""
    from ostraka.core.result import Result

    if not (folder / RESULT).is_file():
        hint = " yet: type the command that began it to finish it" if (folder / PLAN).exists() else ""
        raise ValueError(f"{folder} holds no {RESULT}{hint or ': type the folder of a finished run'}")
    try:
        return Result.from_json((folder / RESULT).read_text())
    except ValueError as error:
        raise ValueError(f"{folder / RESULT} holds no record: {error}") from None


def write_reports(
    folder: Path, result: Result, *, public: bool = False, controller: str = "", purpose: str = ""
) -> Path:
    """Write the label, the page and the public page from the record alone."""
    from ostraka.report.figures import figures
    from ostraka.report.page import privacy_label, render_html

    write(folder / LABEL, json.dumps(privacy_label(result), indent=2, ensure_ascii=False) + "\n")
    record = result.public() if public else result
    page = folder / (PUBLIC_REPORT if public else REPORT)
    drawings: tuple[Figure, ...] = ()
    try:
        drawings = figures(record)
    except ImportError as error:
        click.echo(f"note: the report has no figures: {error}", err=True)
    html = render_html(record, figures=drawings, controller=controller, purpose=purpose)
    write(page, html)
    return page
