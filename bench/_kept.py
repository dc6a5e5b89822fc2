"""Figures that took long, a line of JSON each, so that a command which was stopped goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Kept"]


class Kept:
    """Lines by what they are of, such as a name and an epsilon; kept nowhere without a path."""

    def __init__(self, path: Path | None, *names: str) -> None:
        self._path, self._names = path, names
        lines = path.read_text().splitlines() if path and path.exists() else []
        self._lines = {self._of(line): line for line in map(json.loads, lines)}

    def _of(self, line: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(line[name] for name in self._names)

    def get(self, *of: Any) -> dict[str, Any] | None:
        """The line of this, if there is one."""
        return self._lines.get(of)

    def add(self, *of: Any, **figures: Any) -> dict[str, Any]:
        """Keep figures of this."""
        line = dict(zip(self._names, of, strict=True)) | figures
        self._lines[self._of(line)] = line
        if self._path:
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        return line
