"""Audits of a training with canaries, from a file of probabilities or scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import typer

from ostraka.cli import _errors

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from ostraka.audits.finding import Finding
    from ostraka.scores import Scores

__all__ = ["audit_file"]

_LABELS, _INCLUSION = ("probabilities", "trained", "decoys"), ("members", "others")


def audit_file(
    file: Path,
    *,
    claimed: float | None,
    claimed_mu: float | None,
    delta: float,
    confidence: float,
    at: float | None,
    guesses: int | None,
) -> Finding:
    """Compare a game about the labels of canaries, or about their inclusion, with the claim."""
    from ostraka.audits import audit_canaries
    from ostraka.curve import Curve

    if (claimed is None) == (claimed_mu is None):
        raise typer.BadParameter("the claim must be either --claimed-epsilon or --claimed-mu")
    arrays = _read(file)
    claim: dict[str, Any] = {"claimed_epsilon": claimed, "at": at, "guesses": guesses}
    if "members" in arrays:
        from ostraka.scores import Scores

        scores = Scores.of(members=arrays["members"], others=arrays["others"])
        claim["game"] = "inclusion"
    else:
        scores = _label_scores(file, arrays)
        claim["game"] = "labels"
    with _errors.usage("the claim"):
        if claimed_mu is not None:
            claim["curve"] = Curve.gaussian(sensitivity=claimed_mu, sigma=1.0)
        return audit_canaries(scores, delta=delta, confidence=confidence, **claim)


def _label_scores(file: Path, arrays: dict[str, np.ndarray]) -> Scores:
    import numpy as np

    from ostraka.attacks import Canaries

    probabilities, trained, decoys = (arrays[name] for name in _LABELS)
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
    return planted.scores(probabilities)


def _read(file: Path) -> dict[str, np.ndarray]:
    import numpy as np

    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as saved:
            arrays = {name: saved[name] for name in (*_LABELS, *_INCLUSION) if name in saved}
    except (ValueError, BadZipFile, EOFError, AttributeError, TypeError):
        raise ValueError(
            f"{file} must hold plain numbers, written by numpy.savez(…, probabilities=…, trained=…, "
            "decoys=…) or numpy.savez(…, members=…, others=…)"
        ) from None
    wanted = _INCLUSION if "members" in arrays or "others" in arrays else _LABELS
    if missing := [name for name in wanted if name not in arrays]:
        raise ValueError(f"{file} has no array named {' and none named '.join(missing)}")
    return arrays
