"""The audit of a model that was trained with canaries, from its probabilities on file."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import BadZipFile

from ostraka.cli import _errors

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from ostraka.audits import Finding

__all__ = ["audit_file"]

_ARRAYS = ("probabilities", "trained", "decoys")


def audit_file(file: Path, *, claimed: float, delta: float, confidence: float, at: float | None) -> Finding:
    """What the model says of its canaries, against the label privacy that was claimed."""
    import numpy as np

    from ostraka.attacks import Canaries
    from ostraka.audits import audit_canaries

    probabilities, trained, decoys = _read(file)
    if probabilities.ndim != 2:
        raise ValueError(
            f"{file}: probabilities must be of shape (n_canaries, n_classes), got {probabilities.shape}"
        )
    planted = Canaries(
        positions=np.arange(trained.size),
        labels=trained,
        decoys=decoys[:, None] if decoys.ndim == 1 else decoys,
        n_classes=probabilities.shape[1],
    )
    scores = planted.scores(probabilities)
    with _errors.usage("the claim"):
        return audit_canaries(
            scores,
            game="labels",
            claimed_epsilon=claimed,
            delta=delta,
            confidence=confidence,
            at=at,
        )


def _read(file: Path) -> list[np.ndarray]:
    import numpy as np

    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in _ARRAYS if name in saved}
    except (ValueError, BadZipFile, EOFError, AttributeError, TypeError):
        raise ValueError(
            f"{file} must hold plain numbers, written by numpy.savez(…, probabilities=…, trained=…, decoys=…)"
        ) from None
    if missing := [name for name in _ARRAYS if name not in arrays]:
        raise ValueError(f"{file} has no array named {' and none named '.join(missing)}")
    return [arrays[name] for name in _ARRAYS]
