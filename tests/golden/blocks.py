"""Files of texts that tests compare exactly: blocks, each after a line with its name."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path


def read(path: Path) -> dict[str, str]:
    """The text of each block by its name."""
    parts = re.split(r"^== (.+)\n", path.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def write(path: Path, cases: Mapping[str, Callable[[], str]]) -> None:
    """Write every block anew."""
    path.write_text("".join(f"== {name}\n{text()}" for name, text in cases.items()), encoding="utf-8")
