"""Budgets of releases that earlier answers choose: what is left is a Gaussian, and each release lowers it.

As long as there is only one family, what is left is that family's own function instead, which allows more.
docs/composition.md, "Mechanisms that answers choose", has the proof.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ostraka.core.laws import limit, stored
from ostraka.core.laws.gaussian import gaussian_deltas
from ostraka.core.laws.tables import Table

if TYPE_CHECKING:
    from ostraka.core.laws.law import Law

_FOR_CONSTANTS, _FOR_DOUBT = 0.01, 1e-3  # of delta: what the lemma adds; the comparison with one family
_TRIED = (0.995, 0.985, 0.97, 0.95, 0.92, 0.88)  # shares of the Gaussian that the budget allows
_FOLLOWED = (24, 64, 512)  # uses of one family that are followed one by one
_LITTLE_DELTA = 1e-9
_MOST_USES = 2**40
_BLOCKS = 4_000  # of uses beyond those that are followed, which are compared at once
_OUTWARD = 1e-9
_LEAST_SHIFT = 1e-150  # of a Gaussian; where even that is too large, delta is below all that is computed


class _Plan(NamedTuple):
    """Limits that the family fixes which is used first: its most uses, and the Gaussian of any mixture."""

    uses: int
    mu_squared: float


def fits(laws: tuple[Law, ...], *, epsilon: float, delta: float) -> bool:
    """Whether a run may end with these releases, whichever of them answers chose, in whichever order."""
    laws = tuple(law for law in laws if law.uses and law.size > 0)
    if not laws:
        return True
    plans = [_plan(law._replace(uses=1), epsilon, delta) for law in laws]
    if len(laws) == 1 and laws[0].uses <= plans[0].uses:
        return True
    together = limit.together(laws)
    least_cost = min(plan.mu_squared for plan in plans)
    return together.delta <= _FOR_CONSTANTS * delta and together.mu_squared <= least_cost


@lru_cache(maxsize=256)
def _plan(law: Law, epsilon: float, delta: float) -> _Plan:
    """Both numbers for a run that begins with this family; kept in the user's cache folder."""
    gaussian_room = _allowed(epsilon, (1 - _FOR_CONSTANTS - _FOR_DOUBT) * delta)
    if not limit.within_reach(law):
        return _Plan(0, gaussian_room)
    name = f"adaptive {law.kind} {law.size.hex()} {epsilon.hex()} {delta.hex()}"
    numbers = stored.load(name)
    if numbers is not None:
        return _Plan(int(numbers[0]), float(numbers[1]))
    chain = _Chain(law, epsilon, (1 - _FOR_CONSTANTS - _FOR_DOUBT) * delta)
    uses = chain.longest()
    levels = limit.levels((law,))
    plan = _Plan(0, gaussian_room)
    # the largest Gaussian, of a few, of which less is left than of the family after any number of uses
    for share in _TRIED:
        paid = levels.after(share * gaussian_room) * (1 + _OUTWARD)
        if chain.exceeds(levels, paid - uses * law.mu_squared, uses, _FOR_DOUBT * delta):
            plan = _Plan(uses, share * gaussian_room)
            break
    stored.save(name, np.array(plan, dtype=np.float64))
    return plan


class _Chain:
    """Functions of one family after 1, 2, ... uses, each at least one more use of the one before.

    Up to ``followed`` uses they are followed; beyond, they are Gaussians that grow by the same number each.
    """

    def __init__(self, law: Law, epsilon: float, delta: float) -> None:
        from ostraka.core.laws import answers  # noqa: PLC0415  (compiled code, loaded when needed)

        self._law, self._epsilon, self._delta = law, epsilon, delta
        self._values = answers.followed(law)
        self.followed = 0
        for count in _FOLLOWED:
            if self._values(count) is None:
                break
            self.followed = count
            if not self._fits(count):
                break
        # a Gaussian that exceeds the function of all that are followed; an infinite one if none is found
        step, values = self._followed(self.followed)
        mu_squared = self.followed * law.mu_squared
        few = self.followed < _FOLLOWED[-1]  # of which tables are steep at their end
        doubt = _LITTLE_DELTA if few else 0.0
        gaussian = limit.larger_gaussian(values, step, least=mu_squared / 2, highest=mu_squared, delta=doubt)
        self._begun = gaussian or limit.Part(math.inf, 0.0)

    def longest(self) -> int:
        """The most uses that fit epsilon and delta."""
        low, high = 0, self.followed + 1
        if self._fits(high):
            low, high = high, _MOST_USES
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle) else (low, middle)
        return low

    def exceeds(self, levels: limit.Levels, spare: float, uses: int, doubt: float) -> bool:
        """Whether the function of each number of uses is at least the Gaussian that is left with them.

        That Gaussian pays for the mass of these uses, and for ``spare``, which may be negative.
        """
        mass = self._law.mu_squared
        if uses > self.followed:
            ends = np.unique(np.linspace(self.followed, uses, _BLOCKS).astype(np.int64))
            tail = levels.before(np.maximum(0.0, spare + ends[1:] * mass))
            if not all(a <= self._beyond(int(b) + 1).mu_squared for a, b in zip(tail, ends, strict=False)):
                return False
        for n_left in range(min(uses, self.followed), 0, -1):
            rest_mass = spare + n_left * mass
            if rest_mass <= 0:
                return True
            step, values = self._followed(n_left)
            tail = gaussian_deltas(np.arange(values.size) * step, math.sqrt(float(levels.before(rest_mass))))
            if not (tail <= values + doubt).all():
                return False
        return spare <= 0

    def _fits(self, uses: int) -> bool:
        if uses <= self.followed:
            return Table(0, *self._followed(uses)).delta(self._epsilon) <= self._delta
        gaussian = self._beyond(uses)
        if gaussian.mu_squared == math.inf:
            return False
        delta = (
            float(gaussian_deltas(np.array([self._epsilon]), math.sqrt(gaussian.mu_squared))[0])
            + gaussian.delta
        )
        return delta <= self._delta

    def _beyond(self, uses: int) -> limit.Part:
        return limit.after(self._law._replace(uses=uses - self.followed), self._begun)

    def _followed(self, uses: int) -> tuple[float, np.ndarray]:
        values = self._values(uses)
        if values is None:
            raise ArithmeticError(f"{uses} uses of {self._law} were followed, and now are not")
        return values


def _allowed(epsilon: float, delta: float) -> float:
    """The largest squared shift of a Gaussian that is (epsilon, delta)-DP, from below."""
    low, high, at = 0.0, 1.0, np.array([epsilon])
    if not gaussian_deltas(at, _LEAST_SHIFT)[0] <= delta:
        return 0.0
    while gaussian_deltas(at, math.sqrt(high))[0] <= delta:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_deltas(at, math.sqrt(middle))[0] <= delta else (low, middle)
    return low
