"""What answers really cost for the votes at hand: exact, every neighbour, both directions. Owner only."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ostraka import _check
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms import GNMax, LNMax, Threshold

__all__ = ["exact_curve", "exact_rdp"]

Ballot = GNMax | LNMax | Threshold | tuple[Threshold, GNMax]

# Each divergence is right to about 1e-11 of itself, or lost below 1e-190; what is added makes it err upwards.
_OUTWARD, _LOST = 1 + 1e-9, 1e-190


def exact_curve(
    mechanism: Ballot,
    counts: Any,
    *,
    relation: Literal["replace-one", "add-or-remove"] = "replace-one",
    surprise: Any = None,
    orders: tuple[float, ...] = ORDERS,
) -> Curve:
    """Rényi cost of answering each row of ``counts`` once, for these votes.

    Parameters
    ----------
    mechanism : GNMax, LNMax, Threshold, or (Threshold, GNMax)
        Public. The pair is Confident-GNMax as one outcome law over the classes and "no answer".
    counts : array of shape (n_queries, n_classes), in votes
        Private.
    relation : {"replace-one", "add-or-remove"}
        One ballot changes its class, or one ballot is added or removed.
    surprise : array of shape (n_queries, n_classes), in votes, optional
        For Interactive-GNMax: the counts minus the student's guess, which the screen looks at.
    orders : tuple of float > 1
        Rényi orders; the last may be infinity.

    Returns
    -------
    Curve
        ``publishable=False``: it depends on the votes, and is for the owner only.

    Raises
    ------
    TypeError
        Another mechanism, or a pair that is not a screen and an argmax.
    ValueError
        Counts not finite, of one class, or of the wrong shape; orders not above 1 and increasing.

    Guarantees
    ----------
    For each order, the largest Rényi divergence between the outcome laws of ``counts`` and of any
    neighbour, in either direction, summed over queries: at least the truth, and above it by no
    more than a relative 1e-8 and 1e-26 a query. One ballot may change its vote in every query.
    Source: docs/proof.md; Rényi composition of adaptively chosen queries, Mironov 2017,
    arXiv:1702.07476, Prop. 1.

    Examples
    --------
    >>> votes = [[180, 40, 30], [90, 80, 80]]
    >>> curve = exact_curve(GNMax(sigma=40.0), votes)
    >>> curve.publishable, round(curve.epsilon(delta=1e-5), 3)
    (False, 0.132)
    """
    rdp = exact_rdp(mechanism, counts, relation=relation, surprise=surprise, orders=orders).sum(axis=0)
    n_queries = len(_check.counts(counts))
    slack = n_queries * sum(part.curve().slack for part in _parts(mechanism) if part is not None)
    rdp = rdp * _OUTWARD + n_queries * _LOST
    return Curve(orders, tuple(rdp.tolist()), "ballot", publishable=False, slack=slack)


def exact_rdp(
    mechanism: Ballot,
    counts: Any,
    *,
    relation: Literal["replace-one", "add-or-remove"] = "replace-one",
    surprise: Any = None,
    orders: tuple[float, ...] = ORDERS,
) -> np.ndarray:
    """The same before summing: one row a query, one column an order. Parameters as :func:`exact_curve`.

    Examples
    --------
    >>> exact_rdp(GNMax(sigma=40.0), [[150, 100], [125, 125]], orders=(2.0,)).round(6)
    array([[0.000614],
           [0.000796]])
    """
    from ostraka.accounting import _neighbours  # noqa: PLC0415  (compiled code, loaded when needed)
    from ostraka.mechanisms import outcome  # noqa: PLC0415

    _check.one_of(relation=relation, allowed=("replace-one", "add-or-remove"))
    counts = _check.counts(counts)
    seen = counts if surprise is None else _check.counts(surprise)
    if seen.shape != counts.shape:
        raise ValueError(f"surprise must have the shape of counts, {counts.shape}, got {seen.shape}")
    kind, scale, screen, at, sigma = _fields(mechanism)
    order = np.array(orders, dtype=np.float64)
    if not (order.size and order[0] > 1 and np.all(order[:-1] < order[1:])):
        raise ValueError("orders must be above 1 and increasing")
    out = np.empty((len(counts), order.size))
    replace = relation == "replace-one"

    def work(rows: slice) -> None:
        _neighbours.costs(
            counts[rows], seen[rows], kind, scale, screen, at, sigma, order, out[rows], replace=replace
        )

    outcome.in_chunks(work, len(counts))
    return out


def _fields(mechanism: Ballot) -> tuple[int, float, int, float, float]:
    """A mechanism as the kernel wants it: argmax noise and scale; screen kind, place and noise."""
    from ostraka.accounting import _neighbours  # noqa: PLC0415
    from ostraka.mechanisms import outcome  # noqa: PLC0415

    screen, argmax = _parts(mechanism)
    kind, scale = -1, 1.0
    if isinstance(argmax, GNMax):
        kind, scale = outcome.GAUSSIAN, argmax.sigma
    elif argmax is not None:
        kind, scale = outcome.LAPLACE, argmax.scale
    if screen is None:
        return kind, scale, _neighbours.NO_SCREEN, 0.0, 1.0
    how = _neighbours.SCREEN_MAX if screen.noise == "largest" else _neighbours.SCREEN_ANY
    return kind, scale, how, screen.at, screen.sigma


def _parts(mechanism: Ballot) -> tuple[Threshold | None, GNMax | LNMax | None]:
    """The screen and the argmax. Anything else is refused: what is not understood must not come out free."""
    if isinstance(mechanism, Threshold):
        return mechanism, None
    if isinstance(mechanism, GNMax | LNMax):
        return None, mechanism
    if isinstance(mechanism, tuple) and len(mechanism) == 2:
        screen, argmax = mechanism
        if isinstance(screen, Threshold) and isinstance(argmax, GNMax | LNMax):
            return screen, argmax
    raise TypeError(
        f"exact costs are for GNMax, LNMax, Threshold, or a pair (Threshold, GNMax), got {mechanism!r}"
    )
