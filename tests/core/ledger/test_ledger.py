import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from ostraka import Adjacency, Curve, GNMax, Private, release
from ostraka.core.ledger.budget import KeyConflict
from ostraka.ledger import Budget, BudgetExceeded, Ledger, LedgerError
from tests.core.ledger.conftest import ASK


@pytest.fixture
def ledger(budget):
    with Ledger(":memory:", budget=budget) as ledger:
        yield ledger


class TestCharge:
    def test_what_is_spent_is_the_sum_of_all_uses(self, ledger, gaussian, budget):
        ledger.charge(gaussian(8.0), uses=3, **ASK)
        ledger.charge(gaussian(40.0), uses=50, **ASK)
        ledger.charge(gaussian(8.0), uses=1, **ASK)
        spent = ledger.spent()
        once, fifty = gaussian(8.0).curve(), gaussian(40.0).curve()
        for got, a, b in zip(spent.rdp[:-1], once.rdp, fifty.rdp, strict=False):
            exact = 4 * Fraction(a) + 50 * Fraction(b)
            assert exact <= Fraction(got) <= exact + 55 * Fraction(1, 2**50)
        assert spent.mu_squared == pytest.approx(4 / 64 + 50 / 1600, rel=1e-12)
        assert ledger.epsilon() == spent.epsilon(budget.delta)
        assert ledger.epsilon() == pytest.approx((4 * once + 50 * fifty).epsilon(budget.delta), rel=1e-9)
        assert ledger.epsilon(1e-3) == spent.epsilon(1e-3) < ledger.epsilon()
        assert ledger.left() == budget.epsilon - ledger.epsilon()

    def test_a_budget_can_be_spent_to_the_last_bit_and_not_further(self, ledger, gaussian):
        ledger.charge(gaussian(10.0), uses=5, **ASK)
        total = ledger.epsilon()
        with Ledger(":memory:", budget=Budget(epsilon=total, delta=1e-5, adaptive=False)) as enough:
            enough.charge(gaussian(10.0), uses=5, **ASK)
            assert enough.left() == 0.0
        less = Budget(epsilon=math.nextafter(total, 0), delta=1e-5, adaptive=False)
        with Ledger(":memory:", budget=less) as too_little, pytest.raises(BudgetExceeded):
            too_little.charge(gaussian(10.0), uses=5, **ASK)

    def test_a_refusal_records_nothing_and_says_what_was_asked_and_left(self, ledger, gaussian):
        ledger.charge(gaussian(10.0), uses=5, **ASK)
        before = ledger.head, ledger.entries(), ledger.epsilon()
        with pytest.raises(
            BudgetExceeded, match=r"left at .* 100 uses of Gaussian\(sigma=10.0\) would add"
        ) as refusal:
            ledger.charge(gaussian(10.0), uses=100, key="k", **ASK)
        assert (ledger.head, ledger.entries(), ledger.epsilon()) == before
        epsilon_of_all = (105 * gaussian(10.0).curve()).epsilon(1e-5)
        assert refusal.value.left == ledger.left()
        assert refusal.value.asked == pytest.approx(epsilon_of_all - ledger.epsilon(), rel=1e-9)
        assert ledger.charge(gaussian(10.0), uses=1, key="k", **ASK) == 2

    def test_a_cost_beyond_all_bounds_is_refused(self, ledger, priced, budget):
        for price in (Curve((2.0,), (math.inf,)), Curve((2.0,), (0.0,), slack=math.inf)):
            with pytest.raises(BudgetExceeded) as refusal:
                ledger.charge(priced(price), uses=1, **ASK)
            assert (refusal.value.asked, refusal.value.left) == (math.inf, budget.epsilon)
        assert ledger.unit is None

    def test_nan_does_not_fit(self, ledger, gaussian, monkeypatch):
        monkeypatch.setattr(Curve, "epsilon", lambda *_: math.nan)
        assert not ledger.affords(gaussian(40.0), uses=1)
        with pytest.raises(BudgetExceeded):
            ledger.charge(gaussian(40.0), uses=1, **ASK)
        assert ledger.entries() == ()

    def test_a_mechanism_that_changes_pays_its_price_of_the_moment(self, ledger):
        class Changing:
            promise, sigma = Adjacency.one_ballot(), 40.0

            def curve(self):
                return Curve.gaussian(sensitivity=1.0, sigma=self.sigma, moves="ballot")

        mechanism = Changing()
        ledger.charge(mechanism, uses=1, **ASK)
        mechanism.sigma = 8.0
        ledger.charge(mechanism, uses=1, **ASK)
        assert ledger.spent().mu_squared == pytest.approx(1 / 1600 + 1 / 64, rel=1e-12)

    def test_only_publishable_costs_are_charged(self, ledger, priced):
        private = priced(Curve((2.0,), (0.1,), publishable=False))
        for uses in (0, 1):
            with pytest.raises(ValueError, match="only publishable curves are charged"):
                ledger.charge(private, uses=uses, **ASK)
            with pytest.raises(ValueError, match="only publishable curves are charged"):
                ledger.affords(private, uses=uses)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("uses", value) for value in (-1, 1.0, "1", True, None, 2**62, math.nan)),
            *((name, text) for name in ("key", "unit") for text in ("", "\0", "two\nlines", "\ud800", 7)),
        ],
    )
    def test_what_is_no_number_of_uses_and_no_plain_text_is_refused(self, ledger, gaussian, name, value):
        says = "uses must be" if name == "uses" else f"{name} must be printable text"
        with pytest.raises(ValueError, match=says):
            ledger.charge(gaussian(40.0), **{"uses": 1, **ASK, name: value})

    def test_numbers_of_numpy_are_numbers(self, ledger, gaussian):
        ledger.charge(gaussian(40.0), uses=np.int64(2), unit="row", simulation=np.True_)
        assert (ledger.entries()[0].uses, ledger.entries()[0].simulation) == (2, True)


class TestTheFirstChargeBinds:
    @pytest.fixture(autouse=True)
    def charged(self, ledger, gaussian):
        assert ledger.unit is None
        ledger.charge(gaussian(40.0), uses=1, unit="person", simulation=False)
        assert ledger.unit == "person"

    def test_whom_it_protects(self, ledger, gaussian):
        with pytest.raises(LedgerError, match="protect a person; this is a ballot curve that protects a row"):
            ledger.charge(gaussian(40.0), uses=1, **ASK)

    def test_the_unit_and_the_orders_of_its_curves(self, ledger, priced):
        for price in (Curve.gaussian(sensitivity=1, sigma=9, moves="label"), Curve((2.0,), (0.1,))):
            with pytest.raises(LedgerError, match="use a separate ledger"):
                ledger.charge(priced(price), uses=1, unit="person", simulation=False)
            with pytest.raises(LedgerError, match="use a separate ledger"):
                ledger.affords(priced(price), uses=1)
        assert len(ledger.entries()) == 1


class TestAKey:
    @pytest.fixture(autouse=True)
    def charged(self, ledger, gaussian):
        assert ledger.charge(gaussian(40.0), uses=2, key="k", **ASK) == 1

    def test_is_found_again_when_nothing_is_left(self, ledger, gaussian):
        while ledger.affords(gaussian(5.0), uses=1):
            ledger.charge(gaussian(5.0), uses=1, **ASK)
        assert ledger.charge(gaussian(40.0), uses=2, key="k", **ASK) == 1

    @pytest.mark.parametrize(
        ("sigma", "change"),
        [(41.0, {}), (40.0, {"uses": 3}), (40.0, {"unit": "person"}), (40.0, {"simulation": True})],
    )
    def test_stands_for_one_question_only(self, ledger, gaussian, sigma, change):
        with pytest.raises(LedgerError, match="key 'k' stands for another question"):
            ledger.charge(gaussian(sigma), **({"uses": 2, "key": "k", **ASK} | change))
        assert len(ledger.entries()) == 1

    def test_of_a_note_asks_for_nothing(self, ledger, gaussian):
        ledger.note("a key was changed", by="olga")
        with pytest.raises(KeyConflict, match="stands for another question"):
            ledger.charge(gaussian(40.0), uses=1, key="2: a key was changed by olga", **ASK)


class TestAnswers:
    def test_the_first_answer_recorded_is_the_answer(self, path, budget, gaussian, answers):
        with Ledger(path, budget=budget) as first, Ledger(path) as second:
            entry = first.charge(gaussian(40.0), uses=1, key="k", **ASK)
            assert second.answer(entry) is None
            np.testing.assert_array_equal(second.record(entry, answers), answers)
            np.testing.assert_array_equal(first.record(entry, answers + 1), answers)
        with Ledger(path) as again:
            np.testing.assert_array_equal(again.answer(entry), answers)

    @pytest.mark.parametrize(
        "answer",
        [
            np.array([[1.5, math.nan]]),
            np.array(3),
            np.zeros((0, 4), dtype=np.int8),
            np.array([True]),
            np.array(["a"]),
        ],
    )
    def test_any_plain_array_comes_back_as_it_was(self, ledger, gaussian, answer):
        entry = ledger.charge(gaussian(40.0), uses=1, key="k", **ASK)
        for got in (ledger.record(entry, answer), ledger.answer(entry)):
            np.testing.assert_array_equal(got, answer)
            assert got.dtype == answer.dtype

    def test_answers_that_are_not_stored(self, ledger, gaussian, answers):
        with pytest.raises(LedgerError, match="has no entry 1: charge first"):
            ledger.record(1, answers)
        with_key, without = (ledger.charge(gaussian(40.0), uses=1, key=key, **ASK) for key in ("k", None))
        with pytest.raises(ValueError, match="not of objects"):
            ledger.record(with_key, np.array([{}]))
        assert ledger.record(without, answers) is answers
        assert ledger.answer(with_key) is ledger.answer(without) is None


def test_the_charge_is_durable_before_any_noise_is_drawn(path, budget, gaussian):
    durable = []

    class Spy(gaussian):
        def release(self, private, *, rng):
            with Ledger(path) as second:
                durable.append([entry.uses for entry in second.entries()])
            return super().release(private, rng=rng)

    with Ledger(path, budget=budget) as ledger:
        release(Spy(40.0), Private([[90.0, 10.0]] * 4, Adjacency.one_ballot()), ledger=ledger)
    assert durable == [[4]]


class TestTheRecord:
    def test_shows_every_charge_as_it_was_made(self, ledger, gaussian, budget):
        assert ledger.entries() == ()
        assert ledger.spent() == Curve.zero()
        ledger.charge(gaussian(40.0), uses=2, key="a", **ASK)
        ledger.charge(gaussian(20.0), uses=1, **ASK)
        first, second = ledger.entries()
        assert (first.seq, first.key, first.mechanism, first.uses, first.unit, first.simulation) == (
            (1, "a", "Gaussian(sigma=40.0)", 2, "row", False)
        )
        assert first.curve.rdp == pytest.approx((2 * gaussian(40.0).curve()).rdp, rel=1e-9)
        assert (second.seq, second.key) == (2, None)
        assert second.curve.mu_squared == pytest.approx(1 / 400, rel=1e-9)
        assert 0 < first.epsilon_after < second.epsilon_after == ledger.epsilon()

    def test_has_a_head_that_depends_on_its_name_the_budget_and_every_entry(self, gaussian, monkeypatch):
        names = iter("aaaaaab")
        monkeypatch.setattr("secrets.token_hex", lambda _: next(names))
        monkeypatch.setattr("time.time", lambda: 0)

        def head(epsilon, *sigmas):
            with Ledger(":memory:", budget=Budget(epsilon=epsilon, delta=1e-5, adaptive=False)) as ledger:
                for sigma in sigmas:
                    ledger.charge(gaussian(sigma), uses=1, **ASK)
                ledger.verify()
                return ledger.head

        heads = [head(2.0), head(3.0), head(2.0, 40.0), head(2.0, 40.0, 30.0), head(2.0, 30.0, 40.0)]
        assert len(set(heads)) == 5
        assert head(2.0, 40.0, 30.0) == heads[3] != head(2.0, 40.0, 30.0)
        assert all(len(bytes.fromhex(text)) == 32 for text in heads)


class TestTheObject:
    def test_says_what_it_is(self, ledger):
        assert repr(ledger) == "Ledger(':memory:', budget=Budget(epsilon=2.0, delta=1e-05, adaptive=False))"

    def test_does_not_travel_to_other_processes(self, ledger):
        with pytest.raises(TypeError, match="open Ledger"):
            pickle.dumps(ledger)

    def test_is_of_no_use_once_closed(self, ledger, gaussian):
        ledger.close()
        ledger.close()
        with pytest.raises(LedgerError, match="is closed: open Ledger"):
            ledger.charge(gaussian(40.0), uses=1, **ASK)
        with pytest.raises(LedgerError, match="is closed"):
            ledger.spent()


class Rounded(GNMax):
    """A mechanism whose noise is rounded."""

    def curve(self):
        return replace(GNMax(sigma=self.sigma).curve(), slack=2.0**-40)


def test_a_refusal_says_why_no_epsilon_can_be_claimed():
    votes = Private([[50, 50]] * 400, Adjacency.one_ballot())
    with Ledger(":memory:", budget=Budget(epsilon=5.0, delta=1e-9, adaptive=False)) as ledger:
        with pytest.raises(BudgetExceeded, match=r"more than can be claimed .*floating-point\.md") as refused:
            release(Rounded(sigma=2.0), votes, ledger=ledger)
        assert refused.value.asked == math.inf
        assert ledger.count() == 0
