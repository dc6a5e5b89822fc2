"""Pages that a tally serves to browsers: the task, and the page of a client."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ostraka.collect.task import Task

__all__ = ["pages_of"]

_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


def pages_of(task: Task) -> dict[str, tuple[str, bytes]]:
    """Return the content type and the bytes for each address."""
    found = {"/task.json": ("application/json", task.to_json().encode())}
    for file in (resources.files("ostraka.collect") / "page").iterdir():
        kind = _KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            found[f"/{file.name}"] = (f"{kind}; charset=utf-8", file.read_bytes())
    return {**found, "/": found["/index.html"]}
