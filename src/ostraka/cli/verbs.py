"""The verbs of the command line, each with the room that brings it."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

import typer

import ostraka

# Each room brings its verbs: a module that holds a function of the verb's name, or a Typer app for several.
VERBS = {
    "check": "ostraka.learn.cli_check",
    "learn": "ostraka.learn.cli",
    "labels": "ostraka.learn.cli_labels",
    "sample": "ostraka.data.cli",
    "synth": "ostraka.synth.cli",
    "write": "ostraka.text.cli",
    "evolve": "ostraka.text.cli_evolve",
    "collect": "ostraka.collect.cli",
    "parties": "ostraka.parties.cli",
    "account": "ostraka.cli.account",
    "plan": "ostraka.learn.cli_plan",
    "audit": "ostraka.audit.cli",
    "attack": "ostraka.audit.cli_attack",
    "report": "ostraka.report.cli",
    "ledger": "ostraka.cli.ledger",
    "serve": "ostraka.serve.cli",
    "keys": "ostraka.serve.cli",
    "drill": "ostraka.serve.cli_drill",
    "ui": "ostraka.serve.cli",
}


def _ostraka(
    context: typer.Context,
    *,
    version: bool = typer.Option(False, "--version", "-V", help="Print the version and leave."),
) -> None:
    if version:
        typer.echo(f"ostraka {ostraka.__version__}{_commit()}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _commit() -> str:
    """The commit of a checkout, or of the repository it was installed from, in parentheses; else empty."""
    checkout = Path(ostraka.__file__).parents[2]
    head = checkout / ".git"
    if head.is_file():  # a worktree: the file names its folder
        head = Path(head.read_text(encoding="utf8").removeprefix("gitdir:").strip())
    try:
        name = (head / "HEAD").read_text(encoding="utf8").strip()
        if name.startswith("ref: "):
            common = head / "commondir"
            root = head / common.read_text(encoding="utf8").strip() if common.exists() else head
            name = (root / name.removeprefix("ref: ")).read_text(encoding="utf8").strip()
    except OSError:
        name = _installed_commit()
    return f" (commit {name[:12]})" if name else ""


def _installed_commit() -> str:
    """The commit that pip wrote down when it installed from a repository; empty for a released archive."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        source = json.loads(distribution("ostraka").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return ""
    return str(source.get("vcs_info", {}).get("commit_id", ""))


@functools.cache
def command(verb: str = "") -> Any:
    """The command with one verb alone, so that no other room is imported for it, or with all of them."""
    app = typer.Typer(
        help=ostraka.__doc__,
        context_settings={"help_option_names": ["-h", "--help"]},
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback(invoke_without_command=True)(_ostraka)
    for name in (verb,) if verb else VERBS:
        room: Any = importlib.import_module(VERBS[name])
        if callable(run := getattr(room, name, None)):
            app.command(name)(run)
        else:
            app.add_typer(room.app, name=name)
    return typer.main.get_command(app)
