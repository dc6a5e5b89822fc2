"""A run's folder: begun, interrupted, gone on with, finished. Each file is written whole or not at all."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ostraka.report import Figure
    from ostraka.result import Result

__all__ = [
    "LABEL",
    "LABELS",
    "LEDGER",
    "MANIFEST",
    "PLAN",
    "REPORT",
    "RESULT",
    "SERVICE",
    "STUDENT",
    "TEACHERS",
    "fingerprint",
    "load",
    "open_run",
    "write",
    "write_reports",
]

PLAN, MANIFEST, LEDGER = "plan.json", "manifest.json", "ledger.sqlite"
STUDENT, LABELS, LABEL = "student.skops", "labels.parquet", "privacy-label.json"
TEACHERS, SERVICE = "teachers", "service"  # folders for the owner alone
RESULT, REPORT, PUBLIC_REPORT = "result.json", "report.html", "report-public.html"


def open_run(folder: Path, plan: dict[str, Any]) -> bool:
    """Make a folder for a plan, or go on with the same plan there; whether it was begun before.

    Raises
    ------
    typer.BadParameter
        It is finished, belongs to another plan, or is somebody else's folder.
    """
    plan = json.loads(json.dumps(plan))  # as it will be read back
    if (folder / RESULT).exists():
        raise typer.BadParameter(
            f"{folder} holds a finished run, which is not overwritten: type --out with another folder "
            f"to learn again, or 'ostraka report {folder}' to make its pages again"
        )
    if (folder / PLAN).exists():
        _same(folder, json.loads((folder / PLAN).read_text()), plan)
        return True
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise typer.BadParameter(f"{folder} is not empty and not a run: type --out with another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / PLAN, json.dumps(plan, indent=2))
    return False


def _same(folder: Path, before: dict[str, Any], plan: dict[str, Any]) -> None:
    """Refuse to go on with other settings or data: the ledger there has paid for the first ones."""
    changed = sorted(name for name in before.keys() | plan.keys() if before.get(name) != plan.get(name))
    if changed:
        raise typer.BadParameter(
            f"{folder} holds an unfinished run with other {', '.join(changed)}: type the command that "
            "began it to go on, or --out with another folder"
        )


def fingerprint(path: Path | None) -> str | None:
    """SHA-256 of a file, so that a run goes on with the data it began with."""
    if path is None:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(path: Path, content: str | bytes | Callable[[Path], object]) -> None:
    """Write a file beside its place and then put it there, so that a half-written one is never seen."""
    beside = path.with_name(f".{path.name}.new")
    if callable(content):
        content(beside)
    else:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
    beside.replace(path)


def load(folder: Path) -> Result:
    """The record of a finished run."""
    from ostraka.result import Result

    if not (folder / RESULT).is_file():
        begun = " yet: type the command that began it to finish it" if (folder / PLAN).exists() else ""
        raise ValueError(f"{folder} holds no {RESULT}{begun or ': type the folder of a finished run'}")
    return Result.from_json((folder / RESULT).read_text())


def write_reports(folder: Path, result: Result, *, public: bool = False) -> Path:
    """The label and the page, made from the record alone; the public page is another file."""
    from ostraka.report import privacy_label, render_html

    write(folder / LABEL, json.dumps(privacy_label(result), indent=2, ensure_ascii=False) + "\n")
    shown = result.public() if public else result
    page = folder / (PUBLIC_REPORT if public else REPORT)
    write(page, render_html(shown, figures=_figures(shown)))
    return page


def _figures(result: Result) -> tuple[Figure, ...]:
    from ostraka.plots import figures

    try:
        return figures(result)
    except ImportError as error:
        typer.echo(f"note: the report has no figures: {error}", err=True)
        return ()
