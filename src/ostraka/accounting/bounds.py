"""Every valid bound on the cost of the same answers, and whether it may be published."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ostraka import _check
from ostraka._composition.law import composes
from ostraka.accounting.dependent import moments2017_curve, papernot2018_curve
from ostraka.accounting.exact import exact_profiles, exact_rdp
from ostraka.curve import ORDERS, Curve
from ostraka.mechanisms.confident import Confident
from ostraka.mechanisms.neighbours import unshifted
from ostraka.mechanisms.protocols import (
    HasMomentsBound,
    HasPublishedBound,
    HasScreenBound,
    classic_curve,
    parts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ostraka.accounting.exact import Profile
    from ostraka.mechanisms.protocols import BallotMechanism

__all__ = ["Bound", "every_bound"]

_OUTWARD = 1 + 1e-9  # as in exact_curve: each divergence is right to about 1e-11 of itself


class _Kind(NamedTuple):
    says: str
    both_directions: bool = True


_KINDS = {
    "classic": _Kind("whatever the votes: the price of publishing the noisy counts"),
    "gaussian": _Kind("whatever the votes: Gaussian differential privacy, composed exactly"),
    "tight": _Kind("whatever the votes: the price of publishing the answer only"),
    "adaptive": _Kind("whatever the votes: all answers together, composed exactly"),
    "moments2017": _Kind("these votes: Papernot et al. 2017, Theorem 3", both_directions=False),
    "papernot2018": _Kind("these votes: Papernot et al. 2018, Theorem 6", both_directions=False),
    "exact": _Kind("these votes: the largest divergence over all neighbours"),
    "composed": _Kind("these votes: all answers together, composed exactly over all neighbours"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One bound on what the first answers cost, and the next, up to all of them.

    Attributes
    ----------
    name : str
        ``"classic"``, ``"gaussian"``, ``"tight"``, ``"adaptive"``, ``"moments2017"``, ``"papernot2018"``,
        ``"exact"``, ``"composed"``.
    says : str
        What it holds for and where it comes from, in one line.
    answers : tuple of int
        After how many answers.
    curves : tuple of Curve or Profile
        The cost of so many. Owner only unless ``publishable``.
    both_directions : bool
        False: it bounds the divergence of these votes from their neighbours, not the reverse, and
        so is no proof of (epsilon, delta)-DP.

    Examples
    --------
    >>> from ostraka import GNMax
    >>> bounds = every_bound(GNMax(sigma=40.0), [[230, 10, 10]] * 100)
    >>> {bound.name: round(bound.epsilon(delta=1e-5)[-1], 2) for bound in bounds}
    {'classic': 1.48, 'gaussian': 1.36, 'tight': 1.16, 'adaptive': 1.07, 'papernot2018': 0.26, 'exact': 0.22,
     'composed': 0.14}
    >>> [bound.name for bound in bounds if bound.publishable]
    ['classic', 'gaussian', 'tight', 'adaptive']
    """

    name: str
    says: str
    answers: tuple[int, ...]
    curves: tuple[Curve | Profile, ...]
    both_directions: bool

    @property
    def publishable(self) -> bool:
        """Whether the bound was computed without the votes."""
        return all(curve.publishable for curve in self.curves)

    def epsilon(self, delta: float) -> tuple[float, ...]:
        """Epsilon after each number of answers, at ``delta``."""
        return tuple(curve.epsilon(delta) for curve in self.curves)


def every_bound(
    mechanism: BallotMechanism,
    counts: Any,
    *,
    answers_per_query: int = 1,
    at: Sequence[int] | None = None,
) -> tuple[Bound, ...]:
    """Return every available bound on the cost of answering the rows of ``counts`` in order.

    Parameters
    ----------
    mechanism : BallotMechanism
        Public. For Interactive-GNMax a ``Confident`` whose screen is ``AgainstGuesses``.
    counts : array of shape (n_queries, n_classes), in votes
        Private.
    answers_per_query : int >= 1
        How often each row is answered.
    at : sequence of int, optional
        After how many rows to look, increasing and at most ``n_queries``. None: after all of them.

    Returns
    -------
    tuple of Bound
        Those that exist for the mechanism. Whatever the votes, one with a screen costs what it would if
        the screen let every row through; its exact cost is that of one outcome law; its 2018 bound is
        the *expected* cost, as its authors plot it. ``"composed"`` is left out for very many answers.

    Raises
    ------
    ValueError
        Malformed counts, or ``at`` out of order.

    Examples
    --------
    >>> from ostraka import LNMax
    >>> *_, exact, composed = every_bound(LNMax(scale=20.0), [[240, 10], [130, 120]], at=[1, 2])
    >>> exact.answers, [round(e, 3) for e in exact.epsilon(delta=1e-5)]
    ((1, 2), [0.058, 0.111])
    """
    votes = _check.counts(counts)
    _check.integer(answers_per_query=answers_per_query, least=1)
    ends = (len(votes),) if at is None else tuple(int(end) for end in at)
    if not ends or not all(a < b for a, b in zip((0, *ends), ends, strict=False)) or ends[-1] > len(votes):
        raise ValueError(f"at must be increasing, from 1 to at most {len(votes)}, got {list(ends)}")
    spans = [slice(start, end) for start, end in zip((0, *ends), ends, strict=False)]

    def any_votes(name: str, each: Curve) -> Bound:
        return _bound(name, [end * answers_per_query * each for end in ends], ends, answers_per_query)

    def these_votes(name: str, cost: Callable[[slice], Curve]) -> Bound:
        total, totals = None, []
        for span in spans:
            more = answers_per_query * cost(span)
            total = more if total is None else total + more
            totals.append(total)
        return _bound(name, totals, ends, answers_per_query)

    found = [any_votes(name, each) for name, each in _whatever_the_votes(mechanism).items()]
    if isinstance(mechanism, HasMomentsBound):
        found.append(these_votes("moments2017", lambda span: moments2017_curve(mechanism, votes[span])))
    plain, seen = _without_guesses(mechanism, votes)
    if _has_2018(plain):
        found.append(these_votes("papernot2018", lambda span: _published(plain, votes, seen, span)))
    rdp = exact_rdp(mechanism, votes, orders=ORDERS)
    found.append(these_votes("exact", lambda span: _exact(rdp[span], mechanism.curve().slack)))
    composed = exact_profiles(mechanism, votes, at=ends, answers_per_query=answers_per_query)
    if composed is not None:
        found.append(_bound("composed", composed, ends, answers_per_query))
    return tuple(found)


def _whatever_the_votes(mechanism: BallotMechanism) -> dict[str, Curve]:
    """Each bound for any votes on its own, of one answer."""
    classic, whole = classic_curve(mechanism), mechanism.curve()
    no_orders = replace(whole, rdp=(math.inf,) * len(whole.rdp))
    found = {} if classic is None else {"classic": replace(classic, mu_squared=math.inf, laws=None)}
    if math.isfinite(whole.mu_squared):
        found["gaussian"] = replace(no_orders, laws=None)
    found["tight"] = replace(whole, mu_squared=math.inf, laws=None)
    return {**found, "adaptive": no_orders} if composes(whole.laws) else found


def _bound(name: str, curves: Sequence[Curve | Profile], ends: tuple[int, ...], times: int) -> Bound:
    kind = _KINDS[name]
    return Bound(
        name=name,
        says=kind.says,
        answers=tuple(end * times for end in ends),
        curves=tuple(curves),
        both_directions=kind.both_directions,
    )


def _has_2018(mechanism: BallotMechanism) -> bool:
    screen, argmax = parts(mechanism)
    if screen is not None and not (isinstance(screen, HasScreenBound) and screen.screen_bound() is not None):
        return False
    return isinstance(argmax, HasPublishedBound)


def _without_guesses(
    mechanism: BallotMechanism, votes: np.ndarray
) -> tuple[BallotMechanism, np.ndarray | None]:
    """Return the mechanism with a screen that looks at what is given, and that; None without a screen."""
    screen, argmax = parts(mechanism)
    if screen is None:
        return mechanism, None
    plain, seen = unshifted(screen, votes)
    return Confident(screen=plain, argmax=argmax), seen


def _published(mechanism: BallotMechanism, votes: np.ndarray, seen: np.ndarray | None, span: slice) -> Curve:
    return papernot2018_curve(mechanism, votes[span], screened=None if seen is None else seen[span])


def _exact(rdp: np.ndarray, slack: float) -> Curve:
    total = rdp.sum(axis=0) * _OUTWARD
    return Curve(ORDERS, tuple(total.tolist()), "ballot", publishable=False, slack=len(rdp) * slack)
