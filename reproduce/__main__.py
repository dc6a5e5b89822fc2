"""Repeat the papers' tables and figures: ``python -m reproduce [NAME [OPTIONS ...]]``.

Without a name it lists the names. A name runs one paper with its options: ``python -m reproduce wang2022 5``.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """Modules of this folder, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


def main(arguments: list[str]) -> int:
    """Run the named paper as its own command; 2 if the name is unknown."""
    if not arguments or arguments[0] not in names():
        print(f"usage: python -m reproduce NAME [OPTIONS ...]; names: {', '.join(names())}", file=sys.stderr)
        return 2
    sys.argv = [f"python -m reproduce {arguments[0]}", *arguments[1:]]
    runpy.run_module(f"reproduce.{arguments[0]}", run_name="__main__", alter_sys=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
