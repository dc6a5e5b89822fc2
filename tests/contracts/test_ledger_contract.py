"""Every ledger against a plain list: the same charges, refusals, totals and answers.

To add a kind of ledger, add a line to LEDGERS.
"""

import math
import tempfile
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ostraka.core.curve import Curve
from ostraka.core.laws.law import Law
from ostraka.ledger import Budget, BudgetExceeded, Ledger, LedgerError

BUDGET = Budget(epsilon=1.5, delta=1e-5, adaptive=False)
ORDERS = (1.5, 2.0, 4.0, 16.0, 64.0, math.inf)
UNITS = [2**50] * (len(ORDERS) + 1) + [2**62]


@dataclass(frozen=True)
class Priced:
    name: str
    price: Curve

    def __repr__(self):
        return self.name

    def curve(self):
        return self.price


MECHANISMS = [
    Priced("gaussian", Curve.gaussian(sensitivity=1.0, sigma=9.0, moves="ballot", orders=ORDERS)),
    Priced("pure", Curve(ORDERS, (0.01, 0.02, 0.04, 0.1, 0.1, 0.1))),
    Priced("tiny", Curve(ORDERS, (1e-14,) * 6, mu_squared=1e-14, slack=1e-15)),
    Priced("sampled", Curve(ORDERS, (0.004, 0.008, 0.05, math.inf, math.inf, math.inf), slack=1e-9)),
]


def whole(curve):
    """The cost of one use in whole units, rounded up, by fractions."""
    values = (*curve.rdp, curve.mu_squared, curve.slack)
    return [
        math.inf if v == math.inf else math.ceil(Fraction(v) * u) for v, u in zip(values, UNITS, strict=True)
    ]


def rounded_up(value, unit):
    """The smallest float that is not below value / unit."""
    if value == math.inf:
        return math.inf
    near = float(Fraction(value, unit))
    return near if Fraction(near) >= Fraction(value, unit) else math.nextafter(near, math.inf)


def laws_of(priced):
    """All laws with their numbers of uses, sorted; None where those of one use are not known."""
    priced = [
        (laws, uses) for laws, uses in priced if uses
    ]  # a charge of no uses is free, whatever its price
    if any(laws is None for laws, _ in priced):
        return None
    times = Counter()
    for laws, uses in priced:
        for kind, size, n_uses in laws:
            times[kind, size] += n_uses * uses
    return tuple(Law(*law, n) for law, n in sorted(times.items()) if n)


class InMemory:
    def open(self):
        return Ledger(":memory:", budget=BUDGET)

    def reopen(self, ledger):
        return ledger

    def close(self, ledger):
        ledger.close()


class InFile:
    def open(self):
        self.folder = tempfile.TemporaryDirectory()
        return Ledger(Path(self.folder.name) / "ledger.sqlite", budget=BUDGET)

    def reopen(self, ledger):
        ledger.close()
        return Ledger(ledger.path)

    def close(self, ledger):
        ledger.close()
        self.folder.cleanup()


LEDGERS = [InMemory, InFile]


class AgainstAList(RuleBasedStateMachine):
    kind = InMemory

    @initialize()
    def begin(self):
        self.at = self.kind()
        self.ledger = self.at.open()
        self.entries = []  # (key, mechanism, uses, simulation)
        self.answers = {}

    def total(self, extra=()):
        lanes = [0] * len(UNITS)
        for _, mechanism, uses, _ in [*self.entries, *extra]:
            lanes = [a + uses * b if uses else a for a, b in zip(lanes, whole(mechanism.price), strict=True)]
        *rdp, mu_squared, slack = (rounded_up(a, u) for a, u in zip(lanes, UNITS, strict=True))
        priced = [(mechanism.price.laws, uses) for _, mechanism, uses, _ in [*self.entries, *extra]]
        return Curve(ORDERS, tuple(rdp), mu_squared=mu_squared, slack=slack, laws=laws_of(priced))

    @rule(
        mechanism=st.sampled_from(MECHANISMS),
        uses=st.sampled_from([0, 1, 2, 7, 1000]),
        simulation=st.booleans(),
        key=st.none() | st.sampled_from(["a", "b", "c"]),
    )
    def charge(self, mechanism, uses, simulation, key):
        charge_line = (key, mechanism, uses, simulation)
        same_key = [n for n, entry in enumerate(self.entries, 1) if key is not None and entry[0] == key]
        fits = self.total([charge_line]).epsilon(BUDGET.delta) <= BUDGET.epsilon
        assert self.ledger.affords(mechanism, uses=uses) == fits

        def charge():
            return self.ledger.charge(mechanism, uses=uses, unit="row", simulation=simulation, key=key)

        if same_key and charge_line == self.entries[same_key[0] - 1]:
            assert charge() == same_key[0]
        elif same_key:
            with pytest.raises(LedgerError):
                charge()
        elif fits:
            self.entries.append(charge_line)
            assert charge() == len(self.entries)
        else:
            with pytest.raises(BudgetExceeded) as refusal:
                charge()
            assert refusal.value.asked > refusal.value.left == self.ledger.left()

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), value=st.integers(0, 9))
    def record(self, data, value):
        seq = data.draw(st.integers(1, len(self.entries)))
        got = self.ledger.record(seq, np.array([value]))
        if self.entries[seq - 1][0] is not None:
            value = self.answers.setdefault(seq, value)
        assert got.tolist() == [value]

    @rule()
    def reopen(self):
        head = self.ledger.head
        self.ledger = self.at.reopen(self.ledger)
        assert self.ledger.head == head

    @invariant()
    def the_list_and_the_ledger_agree(self):
        if not hasattr(self, "ledger"):
            return
        entries = [(e.key, e.mechanism, e.uses, e.simulation) for e in self.ledger.entries()]
        assert entries == [
            (key, repr(mechanism), uses, simulation) for key, mechanism, uses, simulation in self.entries
        ]
        assert [entry.seq for entry in self.ledger.entries()] == list(range(1, len(entries) + 1))
        if entries:
            assert self.ledger.spent() == self.total()
            assert self.ledger.entries()[-1].epsilon_after == self.ledger.epsilon() <= BUDGET.epsilon
        assert self.ledger.left() == max(0.0, BUDGET.epsilon - self.total().epsilon(BUDGET.delta))
        assert self.ledger.simulation == any(simulation for *_, simulation in self.entries)
        for seq in range(1, len(entries) + 1):
            stored = self.ledger.answer(seq)
            assert (None if stored is None else stored.tolist()) == (
                [self.answers[seq]] if seq in self.answers else None
            )

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.verify()
            self.at.close(self.ledger)


@pytest.mark.parametrize("kind", LEDGERS)
def test_a_ledger_behaves_like_a_list_with_a_sum(kind):
    machine = type(f"{kind.__name__}AgainstAList", (AgainstAList,), {"kind": kind})
    profile = settings(max_examples=20 if kind is InMemory else 6, stateful_step_count=15)
    machine.TestCase.settings = profile
    machine.TestCase("runTest").runTest()
