"""The verbs of the command line, each with the room that brings it."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

import click
from click import shell_completion

import ostraka
from ostraka.console import Group

COMPLETING = "_OSTRAKA_COMPLETE"  # a shell that asks what a word may become sets it

# Each room brings its verbs: a module that holds a verb of this name, or a group of several.
VERBS = {
    "check": "ostraka.learn.cli",
    "learn": "ostraka.learn.cli",
    "labels": "ostraka.learn.cli",
    "sample": "ostraka.data.cli",
    "synth": "ostraka.synth.cli",
    "write": "ostraka.text.cli",
    "evolve": "ostraka.text.cli",
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
    "drill": "ostraka.serve.cli",
    "ui": "ostraka.serve.cli",
}


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001  (click's form)
    """With the commit of a checkout, or of the repository it was installed from."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    if not wanted:
        return
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
        # what pip wrote down when it installed from a repository; nothing for a released archive
        try:
            source = json.loads(distribution("ostraka").read_text("direct_url.json") or "{}")
        except PackageNotFoundError:
            source = {}
        name = str(source.get("vcs_info", {}).get("commit_id", ""))
    click.echo(f"ostraka {ostraka.__version__}" + (f" (commit {name[:12]})" if name else ""))
    context.exit()


def _print_completion(context: click.Context, _: click.Parameter, shell: str | None) -> None:
    if shell is not None:
        kind: Any = shell_completion.get_completion_class(shell)
        click.echo(kind(context.command, {}, "ostraka", COMPLETING).source())
        context.exit()


@functools.cache
def command(name: str = "") -> click.Group:
    """The command with one verb alone, so that no other room is imported for it, or with all of them."""
    first: dict[str, Any] = {"is_eager": True, "expose_value": False}
    version = click.Option(
        ["-V", "--version"],
        is_flag=True,
        help="Print the version and leave.",
        callback=_print_version,
        **first,
    )
    completion = click.Option(
        ["--completion"],
        type=click.Choice(["bash", "zsh", "fish"]),
        help="Print a script for this shell that completes words, and leave.",
        callback=_print_completion,
        **first,
    )
    settings = {"help_option_names": ["-h", "--help"]}
    app = Group(ostraka.__doc__, params=[version, completion], context_settings=settings)
    for title in (name,) if name else VERBS:
        room: Any = importlib.import_module(VERBS[title])
        app.add_command(getattr(room, title, None) or room.app, title)
    return app
