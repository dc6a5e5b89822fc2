"""The one door: checks the promise, charges durably, answers; and two mechanisms that pass it twice."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest

from ostraka import (
    ABSTAIN,
    Adjacency,
    Budget,
    BudgetExceeded,
    Confident,
    Curve,
    GNMax,
    Ledger,
    LNMax,
    Private,
    Threshold,
    confident,
    interactive,
    release,
)
from ostraka.consistent import Consistent
from ostraka.core.mechanisms.screen import AgainstGuesses
from ostraka.core.released import Model, to_bytes
from ostraka.door import release_each
from ostraka.ledger import ChargeRequest, LedgerError
from ostraka.mechanisms import Subsampled

VOTES = [[95, 5, 0], [2, 98, 0], [40, 30, 30], [0, 0, 100]]
BUDGET = Budget(epsilon=50.0, delta=1e-5, adaptive=False)


@pytest.fixture
def ledger():
    with Ledger(":memory:", budget=BUDGET) as ledger:
        yield ledger


@pytest.fixture
def votes():
    return Private(VOTES, Adjacency.one_ballot())


@dataclass(frozen=True, slots=True)
class Spy:
    """A mechanism that notes when it is asked, what the ledger held then, and may fail."""

    ledger: Ledger = field(repr=False, compare=False)
    fails: bool = field(default=False, repr=False)
    seen: list = field(default_factory=list, repr=False, compare=False)
    cost: float = 0.1
    promise: ClassVar[Adjacency] = Adjacency.one_ballot()

    def curve(self):
        return Curve((2.0, np.inf), (self.cost, self.cost))

    def uses(self, private):
        return len(private)

    def release(self, private, *, rng):
        self.seen.append((len(self.ledger.entries()), private.open(), rng))
        if self.fails:
            raise RuntimeError("the machine stops here")
        return private.open().argmax(axis=1)


def test_the_charge_is_written_before_the_answer_is_drawn(ledger, votes):
    spy = Spy(ledger)
    np.testing.assert_array_equal(release(spy, votes, ledger=ledger), [0, 1, 0, 2])
    [(entries_then, _, _)] = spy.seen
    assert entries_then == 1
    [entry] = ledger.entries()
    assert (entry.uses, entry.unit, entry.simulation) == (4, "row", False)
    assert ledger.spent().rdp == pytest.approx((4 * spy.curve()).rdp)


def test_a_crash_between_charge_and_answer_loses_budget_never_privacy(ledger, votes):
    spy = Spy(ledger, fails=True)
    with pytest.raises(RuntimeError, match="stops here"):
        release(spy, votes, ledger=ledger)
    assert ledger.spent().rdp == pytest.approx((4 * spy.curve()).rdp)


def test_what_does_not_fit_the_budget_is_neither_charged_nor_answered(ledger, votes):
    spy = Spy(ledger, cost=12.6)
    with pytest.raises(BudgetExceeded) as refusal:
        release(spy, votes, ledger=ledger)
    assert refusal.value.asked == pytest.approx(50.4, rel=1e-6)
    assert refusal.value.left == 50.0
    assert spy.seen == []
    assert ledger.entries() == ()


@pytest.mark.parametrize(
    "adjacency",
    [Adjacency(at_most=2.0), Adjacency(moves="label"), Adjacency(relation="add-or-remove")],
    ids=str,
)
def test_data_that_can_change_more_than_the_mechanism_hides_is_refused_before_any_charge(ledger, adjacency):
    spy = Spy(ledger)
    for mechanism in (spy, GNMax(sigma=5.0), LNMax(scale=5.0), Threshold(at=3, sigma=5.0)):
        with pytest.raises(ValueError, match=r"hides Adjacency\(.*, but the data is Adjacency\("):
            release(mechanism, Private(VOTES, adjacency), ledger=ledger)
    assert spy.seen == []
    assert ledger.entries() == ()


@dataclass(frozen=True, slots=True)
class Cheap(Spy):
    """A mechanism that charges as many uses as it is told."""

    asks: object = 0

    def uses(self, private):
        return self.asks


@pytest.mark.parametrize(
    "asks", [0, -1, 1.0, 0.5, True, False, None, "4", np.float64(4), np.bool_(1)], ids=repr
)
def test_uses_that_are_no_whole_number_of_at_least_one_are_refused_before_any_charge(ledger, votes, asks):
    spy = Cheap(ledger, asks=asks)
    with pytest.raises(ValueError, match=r"whole number of uses, 1 or more.*return len\(private\)"):
        release(spy, votes, ledger=ledger)
    assert (spy.seen, ledger.entries()) == ([], ())


def test_nothing_may_be_charged_where_there_is_nothing_to_answer_from(ledger, votes):
    assert release(Cheap(ledger, asks=0), votes[:0], ledger=ledger).tolist() == []
    assert ledger.epsilon() == 0
    assert release(Cheap(ledger, asks=np.int64(2)), votes, ledger=ledger).shape == (4,)
    assert ledger.entries()[-1].uses == 2
    with pytest.raises(ValueError, match="0 or more"):
        release(Cheap(ledger, asks=-1), votes[:0], ledger=ledger)


@dataclass(frozen=True, slots=True)
class OtherPrice(Spy):
    """A mechanism which promises to hide a ballot, and has the price of a label."""

    def curve(self):
        return Curve((2.0, np.inf), (self.cost, self.cost), moves="label")


def test_a_price_for_another_kind_of_change_is_refused_before_any_charge(ledger, votes):
    spy = OtherPrice(ledger)
    with pytest.raises(ValueError, match=r"promises to hide a ballot, but .* a label: let .* moves='ballot'"):
        release(spy, votes, ledger=ledger)
    assert (spy.seen, ledger.entries()) == ([], ())


def test_the_ledger_learns_whom_the_data_protects(ledger):
    release(GNMax(sigma=20.0), Private(VOTES, Adjacency.one_ballot(unit="person")), ledger=ledger)
    assert ledger.unit == "person"
    with pytest.raises(LedgerError, match="protect"):
        release(GNMax(sigma=20.0), Private(VOTES, Adjacency.one_ballot(unit="row")), ledger=ledger)


def test_without_a_generator_noise_is_keyed_by_the_operating_system(ledger, votes):
    spy = Spy(ledger)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    for _ in range(2):
        release(spy, votes, ledger=ledger)
    assert not ledger.simulation
    assert len(ledger.entries()) == 2  # without a key every release is new
    first, second = (rng for _, _, rng in spy.seen)
    assert type(first.bit_generator).__name__ == "ChaCha"
    assert first is not second
    assert (first.random(4) != second.random(4)).all()
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_a_generator_of_ones_own_is_used_and_marks_the_ledger_for_good(ledger, votes):
    many = Private(np.repeat(VOTES, 100, axis=0), votes.adjacency)
    first = release(GNMax(sigma=90.0), many, ledger=ledger, rng=np.random.default_rng(3))
    assert ledger.simulation
    np.testing.assert_array_equal(first, GNMax(sigma=90.0).release(many, rng=np.random.default_rng(3)))
    release(GNMax(sigma=90.0), votes, ledger=ledger)
    assert ledger.simulation


class TestKey:
    def test_the_same_question_again_is_answered_from_the_record_and_costs_nothing(self, ledger, votes):
        spy = Spy(ledger)
        first = release(spy, votes, ledger=ledger, key="monday")
        spent = ledger.spent()
        second = release(spy, votes, ledger=ledger, key="monday")
        np.testing.assert_array_equal(first, second)
        assert second.dtype == first.dtype
        assert len(spy.seen) == 1
        assert ledger.spent() == spent

    def test_another_question_under_a_used_key_is_refused(self, ledger, votes):
        release(GNMax(sigma=20.0), votes, ledger=ledger, key="k")
        for mechanism, private in ((GNMax(sigma=21.0), votes), (GNMax(sigma=20.0), votes[:2])):
            with pytest.raises(LedgerError, match="another question"):
                release(mechanism, private, ledger=ledger, key="k")
        assert len(ledger.entries()) == 1

    def test_after_a_crash_a_fresh_answer_is_drawn_under_the_charge_already_paid(self, ledger, votes):
        with pytest.raises(RuntimeError):
            release(Spy(ledger, fails=True), votes, ledger=ledger, key="k")
        again = Spy(ledger)
        np.testing.assert_array_equal(release(again, votes, ledger=ledger, key="k"), [0, 1, 0, 2])
        assert len(again.seen) == 1
        assert len(ledger.entries()) == 1


SCREEN, ARGMAX = Threshold(at=60, sigma=2.0), GNMax(sigma=4.0)


class TestConfident:
    def test_answers_the_clear_queries_and_abstains_elsewhere(self, ledger, votes):
        answers = confident(votes, screen=SCREEN, argmax=ARGMAX, ledger=ledger)
        np.testing.assert_array_equal(answers, [0, 1, ABSTAIN, 2])
        assert answers.dtype == np.int64

    def test_costs_every_screen_and_the_answers_given(self, ledger, votes):
        confident(votes, screen=SCREEN, argmax=ARGMAX, ledger=ledger)
        assert [(e.mechanism, e.uses) for e in ledger.entries()] == [(repr(SCREEN), 4), (repr(ARGMAX), 3)]
        assert ledger.spent().rdp == pytest.approx(
            (4 * SCREEN.curve() + 3 * ARGMAX.curve()).rdp, rel=1e-12, abs=0
        )

    def test_where_nothing_is_clear_only_the_screen_is_paid(self, ledger):
        unclear = Private([[30, 35, 35]] * 5, Adjacency.one_ballot())
        answers = confident(unclear, screen=SCREEN, argmax=ARGMAX, ledger=ledger)
        np.testing.assert_array_equal(answers, [ABSTAIN] * 5)
        assert [(e.mechanism, e.uses) for e in ledger.entries()] == [(repr(SCREEN), 5)]

    def test_an_answer_that_no_longer_fits_leaves_the_screen_paid(self, votes):
        only_the_screen = (4 * SCREEN.curve()).epsilon(1e-5) * 1.01
        with Ledger(":memory:", budget=Budget(epsilon=only_the_screen, delta=1e-5, adaptive=False)) as ledger:
            with pytest.raises(BudgetExceeded):
                confident(votes, screen=SCREEN, argmax=ARGMAX, ledger=ledger)
            assert [e.mechanism for e in ledger.entries()] == [repr(SCREEN)]

    def test_a_key_covers_both_payments(self, ledger, votes):
        noisy = {"screen": Threshold(at=60, sigma=40.0), "argmax": GNMax(sigma=80.0), "ledger": ledger}
        many = Private(np.repeat(VOTES, 40, axis=0), votes.adjacency)
        first, second = (confident(many, **noisy, key="k") for _ in range(2))
        np.testing.assert_array_equal(first, second)
        assert [entry.key for entry in ledger.entries()] == ["k/screen", "k/argmax"]


class TestInteractive:
    # the student is sure and right, sure and wrong, unsure, and sure of what the teachers cannot decide
    GUESSES = np.array([[0.96, 0.04, 0], [0.96, 0.04, 0], [0.4, 0.3, 0.3], [0.1, 0, 0.9]])

    def ask(self, ledger, votes, **changes):
        settings = {"screen": Threshold(at=50, sigma=2.0), "argmax": ARGMAX, "n_teachers": 100}
        settings |= {"confidence": 0.9, "ledger": ledger}
        return interactive(votes, changes.pop("guesses", self.GUESSES), **settings | changes)

    def test_asks_only_where_the_teachers_surprise_the_student(self, ledger, votes):
        answers = self.ask(ledger, votes)
        np.testing.assert_array_equal(answers, [0, 1, ABSTAIN, 2])
        assert answers.dtype == np.int64
        screen, argmax = ledger.entries()
        assert (screen.uses, argmax.uses) == (4, 1)  # asked: the second query alone

    def test_a_student_that_knows_nothing_is_screened_by_the_lead_over_an_even_split(self, ledger, votes):
        answers = self.ask(ledger, votes, guesses=np.full((4, 3), 1 / 3))
        np.testing.assert_array_equal(answers, [0, 1, ABSTAIN, 2])
        assert [entry.uses for entry in ledger.entries()] == [4, 3]

    def test_its_own_guess_needs_confidence(self, ledger, votes):
        answers = self.ask(ledger, votes, confidence=0.95)
        np.testing.assert_array_equal(answers, [0, 1, ABSTAIN, ABSTAIN])

    def test_costs_what_it_says_and_a_key_covers_both_payments(self, ledger, votes):
        first, second = (self.ask(ledger, votes, key="k") for _ in range(2))
        np.testing.assert_array_equal(first, second)
        cost = 4 * Threshold(at=50, sigma=2.0).curve() + ARGMAX.curve()
        assert ledger.spent().rdp == pytest.approx(cost.rdp, rel=1e-12, abs=0)
        assert [entry.key for entry in ledger.entries()] == ["k/screen", "k/argmax"]

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"guesses": [[0.5, 0.5]]}, r"votes must have the shape of guesses, \(1, 2\), got"),
            ({"guesses": np.full((4, 3), -(2.0**62) / 2000)}, "from 0 to 1"),
            ({"guesses": np.full((4, 3), 1.001)}, "from 0 to 1"),
            ({"n_teachers": 2**62}, "n_teachers must be at most"),
            ({"guesses": np.full((4, 3), np.nan)}, "from 0 to 1"),
            ({"confidence": 0.0}, "confidence"),
            ({"confidence": 1.5}, "confidence"),
            ({"confidence": np.nan}, "confidence"),
            ({"n_teachers": 0}, "n_teachers"),
            ({"n_teachers": 99.5}, "n_teachers"),
        ],
        ids=str,
    )
    def test_a_wrong_argument_is_refused_before_any_charge(self, ledger, votes, changes, says):
        with pytest.raises(ValueError, match=says):
            self.ask(ledger, votes, **changes)
        assert ledger.entries() == ()


def test_no_guess_turns_one_ballot_into_certainty():
    """A guess of -2**62 / 2000 made rounding decide: 513 votes always passed, 512 in half the draws."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        AgainstGuesses(
            mechanism=Threshold(at=2**62, sigma=50.0), guesses=[[-(2.0**62) / 2000, 0.0]], n_teachers=2000
        )
    screen = Threshold(at=-1487.0, sigma=50.0)
    gate = AgainstGuesses(mechanism=screen, guesses=[[1.0, 1.0]], n_teachers=2000)
    above, fewer = (np.exp(gate.log_outcomes([[count, 0.0]])[0, 0]) for count in (513.0, 512.0))
    assert 0 < above - fewer < 0.01
    votes = Private(np.array([[513.0, 0.0]]), Adjacency.one_ballot())
    assert gate.release(votes, rng=np.random.default_rng(0)).shape == (1,)


class Records:
    """Releases whatever it is made with."""

    promise = Adjacency.one_ballot()

    def __init__(self, released):
        self.released = released

    def __repr__(self):
        return "Records()"

    def curve(self):
        return ARGMAX.curve()

    def uses(self, private):
        return len(private)

    def release(self, private, *, rng):
        return self.released


@pytest.mark.parametrize(
    "released",
    [
        np.array([1, 2]),
        {name: np.array([n]) for n, name in enumerate(("sums", "file", "allow_pickle", "0,1", "sums.npy"))},
        Model(b"weights of a network"),
    ],
    ids=["array", "named arrays", "model"],
)
def test_a_release_is_an_array_named_arrays_or_a_model_and_comes_back_under_its_key(released, ledger, votes):
    first = release(Records(released), votes, ledger=ledger, key="k")
    again = release(Records(released), votes, ledger=ledger, key="k")
    for found in (first, again):
        assert type(found) is type(released)
        if isinstance(released, Model):
            assert (found, found.digest) == (released, released.digest)
        elif isinstance(released, dict):
            assert {name: array.tolist() for name, array in found.items()} == {
                name: array.tolist() for name, array in released.items()
            }
        else:
            np.testing.assert_array_equal(found, released)


@pytest.mark.parametrize(
    "released",
    [np.array([None]), {"a": np.zeros(1, dtype=[("b", object)])}, {1: VOTES}, "text"],
)
def test_what_is_no_release_is_not_recorded(released):
    with pytest.raises((TypeError, ValueError), match="release"):
        to_bytes(released)


class TestReleaseEach:
    ONCE = Consistent(secret=bytes(32), grid=0.1, teachers="demo", kept=True)

    def ask(self, ledger, votes, mechanism, *, budget=9.0, account="ann", once=ONCE):
        requests_seen = []

        def requests(answers):
            requests_seen.extend(answers)
            assert ledger.entries()[-1].kind == "grant"  # nothing is charged yet
            fixed = {"account": account, "reserve": mechanism}
            return [
                ChargeRequest(key=f"{n}", digest=draw.digest, cost=draw.cost, answer=draw.answer, **fixed)
                for n, draw in enumerate(answers)
            ]

        ledger.grant(account, budget_epsilon=budget)
        digests = once.digests([[float(n)] for n in range(len(votes))])
        outcomes = release_each(mechanism, votes, digests, consistent=once, ledger=ledger, requests=requests)
        return outcomes, requests_seen

    def test_only_what_was_charged_comes_back(self, ledger, votes):
        price = ARGMAX.curve().epsilon(1e-5)
        outcomes, answers = self.ask(ledger, votes, ARGMAX, budget=price * 1.001)
        assert [type(outcome).__name__ for outcome in outcomes] == ["Receipt", *["BudgetExceeded"] * 3]
        assert outcomes[0].answer == answers[0].answer == 0
        assert not ledger.simulation

    def test_a_question_that_the_screen_stops_is_charged_the_screen(self, ledger, votes):
        mechanism = Confident(screen=Threshold(at=60, sigma=2.0), argmax=ARGMAX)
        outcomes, draws = self.ask(ledger, votes, mechanism)
        assert [receipt.answer for receipt in outcomes] == [0, 1, ABSTAIN, 2]
        assert [draw.cost for draw in draws] == [mechanism, mechanism, mechanism.screen, mechanism]

    def test_a_mechanism_that_charges_less_than_a_use_a_question_is_refused_before_anything_is_drawn(
        self, ledger, votes
    ):
        @dataclass(frozen=True, kw_only=True)
        class Cheaper(GNMax):
            def uses(self, private):
                return len(private) - 1

        with pytest.raises(ValueError, match="one use a question, 4 in all, got 3"):
            self.ask(ledger, votes, Cheaper(sigma=10.0))
        assert [entry.kind for entry in ledger.entries()] == ["grant"]

    def test_a_stored_sample_is_answered_from_once(self, ledger):
        stored = Private(VOTES, Adjacency(relation="add-or-remove", sampling_rate=0.1))
        mechanism = Subsampled(mechanism=ARGMAX, sampling_rate=0.1)
        self.ask(ledger, stored, mechanism)
        before = ledger.entries()
        with pytest.raises(ValueError, match="answered from before"):
            self.ask(ledger, stored, mechanism, account="bob")
        assert [entry.kind for entry in ledger.entries()[len(before) :]] == ["grant"]

    def test_votes_that_may_change_more_are_refused_before_anything_is_drawn(self, ledger):
        with pytest.raises(ValueError, match="hides Adjacency"):
            self.ask(ledger, Private(VOTES, Adjacency(at_most=2.0)), ARGMAX)
        assert [entry.kind for entry in ledger.entries()] == ["grant"]

    def test_the_ledger_learns_of_a_weaker_promise(self, ledger):
        @dataclass(frozen=True, kw_only=True)
        class OfTables(GNMax):
            promise: ClassVar[Adjacency] = Adjacency.vector(l2=3.0, relation="zero-out")

            def curve(self):
                return replace(super().curve(), moves="vector", laws=None)

        self.ask(ledger, Private(VOTES, OfTables.promise), OfTables(sigma=10.0))
        assert ledger.unit == "row (zero-out)"
        with pytest.raises(LedgerError, match="separate ledger"):
            ledger.charge(OfTables(sigma=10.0), uses=1, unit="row", simulation=False)

    def test_a_known_secret_marks_the_ledger(self, ledger, votes):
        self.ask(ledger, votes, ARGMAX, once=replace(self.ONCE, kept=False))
        assert ledger.simulation
