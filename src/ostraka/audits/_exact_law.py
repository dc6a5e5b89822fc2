"""The finding of an audit that knows the exact laws of two worlds, and simulates both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostraka.audits.claims import follows
from ostraka.audits.epsilon import epsilon_lower_bound
from ostraka.audits.finding import Finding, Measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

__all__ = ["finding_of"]


def finding_of(
    counts: Sequence[np.ndarray],
    laws: Sequence[np.ndarray],
    *,
    name: str,
    exact: float,
    claimed: float,
    delta: float,
    confidence: float,
    trials: int,
    sentence: Callable[..., str],
    note: Callable[[bool], str],
) -> Finding:
    """Report the exact epsilon if the simulated ``counts`` follow ``laws``, else the bound from them."""
    seen = epsilon_lower_bound(*counts, delta=delta, confidence=confidence, ordered=True)
    fits = all(follows(count, law) for count, law in zip(counts, laws, strict=True))
    lower = max(exact, seen.epsilon) if fits else seen.epsilon
    broken = lower > claimed
    return Finding(
        name=name,
        verdict="violated" if broken or not fits else "consistent",
        sentence=sentence(lower, claimed, confidence=confidence, broken=broken, fits=fits),
        measures=(Measure(what=f"epsilon at delta {delta:g}", upper=claimed, exact=exact, lower=lower),),
        confidence=confidence,
        trials=trials,
        method="exact law" if fits else seen.method,
        note=note(fits),
    )
