"""Attacks on a model, a generator or a collaboration, from its outputs in an .npz file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zipfile import BadZipFile

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from ostraka.scores import Scores

__all__ = ["Attacked", "attack_generator", "attack_membership", "attack_property"]

_MEMBERSHIP = ("confidences", "included", "target", "member")
_WHITE, _BLACK = ("realness", "member"), ("candidates", "samples", "member")
_PROPERTY = ("observed", "has_property", "with_property", "without")


class Attacked(NamedTuple):
    """A statistic for each row (or round), and whether it is a member."""

    statistics: np.ndarray
    member: np.ndarray
    scores: Scores
    numbers: np.ndarray  # of the rows in the file, from 0
    left_out: int = 0  # rounds in which nothing was seen


def attack_membership(file: Path, *, method: str) -> Attacked:
    """Score the rows of one target model by the confidences of reference models."""
    import numpy as np

    from ostraka.attacks import ReferenceModels

    arrays = _read(file, _MEMBERSHIP)
    references = ReferenceModels.from_confidences(arrays["confidences"], _flags(file, arrays, "included"))
    member = _flags(file, arrays, "member")
    scores = references.scores(arrays["target"], member, method=method)
    found = references.statistics(arrays["target"], method=method)
    return Attacked(found, member, scores, np.arange(len(found)))


def attack_generator(file: Path) -> Attacked:
    """Score candidates by the realness that a target and a reference give them, or by samples of both."""
    import numpy as np

    from ostraka.attacks._generator_rows import nearest, residual

    arrays = _read(file, _WHITE, _BLACK, optional=("reference", "reference_samples"))
    if "realness" in arrays:
        found, other = np.asarray(arrays["realness"], dtype=np.float64), arrays.get("reference")
    else:
        found = -nearest(arrays["candidates"], arrays["samples"])
        known = arrays.get("reference_samples")
        other = None if known is None else -nearest(arrays["candidates"], known)
    if other is not None:
        found = residual(found, np.asarray(other, dtype=np.float64))
    return _attacked(file, found, arrays, "member")


def attack_property(file: Path, *, seed: int) -> Attacked:
    """Score rounds by their observed changes, with a forest trained on the observer's own changes."""
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier

    from ostraka.attacks.properties import changed_sizes

    arrays = _read(file, _PROPERTY)
    parts = [arrays[name] for name in ("with_property", "without", "observed")]
    if any(part.ndim != 2 or part.shape[1] != parts[0].shape[1] for part in parts):
        raise ValueError(f"{file}: observed, with_property and without must have one row a change, as wide")
    seen = _rounds_seen(file, arrays)
    parts = [changed_sizes(part) for part in parts]
    labels = np.arange(len(parts[0]) + len(parts[1])) < len(parts[0])
    forest = RandomForestClassifier(50, random_state=seed).fit(np.concatenate(parts[:2]), labels)
    return _attacked(file, forest.predict_proba(parts[2])[:, 1], arrays, "has_property", seen=seen)


def _rounds_seen(file: Path, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Rounds that hold a change; files from which nothing can be learned are refused."""
    for name in ("with_property", "without"):
        if len(arrays[name]) < 2:
            raise ValueError(
                f"{file}: {name} must hold two or more changes of the observer's own, got {len(arrays[name])}"
            )
    observed, has = arrays["observed"], _flags(file, arrays, "has_property")
    seen: np.ndarray = (observed != 0).any(axis=1)
    if not seen.any():
        raise ValueError(
            f"{file}: observed must hold rounds in which others changed something, but all {len(observed)} "
            "rounds are 0: is there a party beside the observer?"
        )
    if has.shape == seen.shape and (has[seen].all() or not has[seen].any()):
        raise ValueError(
            f"{file}: the property is in {'every' if has[seen].all() else 'no'} round, but has_property must "
            "hold rounds with it and rounds without it"
        )
    return seen


def _attacked(
    file: Path,
    found: np.ndarray,
    arrays: dict[str, np.ndarray],
    name: str,
    *,
    seen: np.ndarray | None = None,
) -> Attacked:
    import numpy as np

    from ostraka.attacks._membership_checks import read_members
    from ostraka.scores import Scores

    member = read_members(_flags(file, arrays, name), name=f"{file}: {name}", n_rows=len(found))
    kept = np.arange(len(found)) if seen is None else np.flatnonzero(seen)
    left_out, found, member = len(found) - len(kept), found[kept], member[kept]
    scores = Scores.of(members=found[member], others=found[~member])
    return Attacked(found, member, scores, kept, left_out)


def _flags(file: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    values = arrays[name]
    if values.dtype != bool and not ((values == 0) | (values == 1)).all():
        raise ValueError(f"{file}: {name} must be 0 or 1")
    return values.astype(bool)


def _read(file: Path, *choices: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    import numpy as np

    known = {*optional, *(name for names in choices for name in names)}
    form = " or ".join(f"numpy.savez(…, {', '.join(f'{name}=…' for name in names)})" for names in choices)
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as saved:
            arrays = {name: np.asarray(saved[name]) for name in saved.files if name in known}
    except (ValueError, BadZipFile, EOFError, AttributeError, TypeError):
        raise ValueError(f"{file} must hold plain numbers, written by {form}") from None
    if not any(set(names) <= arrays.keys() for names in choices):
        raise ValueError(f"{file} has {', '.join(sorted(arrays)) or 'none of the arrays'}, but needs {form}")
    wrong = [
        name
        for name, values in arrays.items()
        if values.dtype.kind not in "biuf" or not np.isfinite(values).all()
    ]
    if wrong:
        raise ValueError(f"{file}: all arrays must hold finite numbers, but {', '.join(wrong)} has others")
    return arrays
