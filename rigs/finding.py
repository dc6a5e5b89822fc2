"""What a rig found: one line of the table in docs/record/durability.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["REPOSITORY", "Finding", "apart"]

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was tried, what went wrong, and what was found in the control, where something must be."""

    tried: str
    wrong: Counter[str] = field(default_factory=Counter)
    control: str = ""
    blind: bool = False  # the control, or a part of what was promised, was not found

    @property
    def passed(self) -> bool:
        return not self.blind and not self.wrong.total()


def apart(module: str, *arguments: object, environment: dict[str, str] | None = None) -> dict:
    """Run a rig in a process of its own; the JSON that it prints."""
    command = [sys.executable, "-m", f"rigs.{module}", *map(str, arguments)]
    setting = os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {})
    done = subprocess.run(command, cwd=REPOSITORY, env=setting, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
