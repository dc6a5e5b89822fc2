"""Repeat the papers' tables and figures: ``python -m reproduce [--quick] [NAME [OPTIONS ...]]``.

Without a name it lists the names. A name runs one paper with its options: ``python -m reproduce wang2022 5``.
``--quick`` runs the smallest form, which shows that the command works and whose figures mean nothing. It
passes on the module's ``QUICK_ARGUMENTS``. If words are given, such as a part, it passes on the options among
these arguments and then the given words. So an option there is one word, with ``=`` before its value.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from bench._data import shrink

FOLDER = Path(__file__).resolve().parent


def names() -> list[str]:
    """Modules of this folder, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


def main(arguments: list[str]) -> int:
    """Run the named paper; 2 if the name is unknown."""
    quick, arguments = "--quick" in arguments, [word for word in arguments if word != "--quick"]
    if arguments[:1] in (["-h"], ["--help"]):
        print(f"{(__doc__ or '').strip()}\n\nnames: {', '.join(names())}")
        return 0
    if not arguments or arguments[0] not in names():
        print(f"usage: python -m reproduce NAME [OPTIONS ...]; names: {', '.join(names())}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"reproduce.{arguments[0]}")
    if quick:
        shrink(module)
    words = arguments[1:]
    if quick:
        options = [word for word in module.QUICK_ARGUMENTS if word.startswith("--")]
        words = [*options, *words] if words else module.QUICK_ARGUMENTS
    module.main(words)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
