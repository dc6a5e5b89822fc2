"""Checkpoints: the last good state of a training in one file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from ostraka import _files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Checkpoint", "Stateful", "digest"]


class Stateful(Protocol):
    """A module, an optimizer, or anything else with a ``state_dict``."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that training has changed."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Restore that state."""
        ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file that is replaced as a whole, and that only the training of the same name can read."""

    path: Path
    name: str

    def restore(self, parts: Mapping[str, Stateful]) -> list[float]:
        """Load the state, if there is a file. Return the losses of the epochs that are done."""
        if not self.path.exists():
            return []
        try:
            found = torch.load(self.path, weights_only=True)
        except Exception as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of a training: remove it to begin again"
            ) from error
        if found["name"] != self.name:  # the message shows neither name: both contain a hash of private rows
            raise ValueError(
                f"{self.path} belongs to another training (other data, seed, settings or version): "
                "type another path, or remove the file to begin again"
            )
        for name, stateful in parts.items():
            stateful.load_state_dict(found["state"][name])
        return list(found["losses"])

    def save(self, state: dict[str, dict[str, Any]], losses: list[float]) -> None:
        """Replace the file in one step; only its owner can read it."""
        content = {"name": self.name, "state": state, "losses": losses}
        _files.write(self.path, lambda beside: torch.save(content, beside), private=True)


def digest(*parts: np.ndarray | str) -> str:
    """A short hash of the content of arrays and texts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes())
    return whole.hexdigest()[:16]
