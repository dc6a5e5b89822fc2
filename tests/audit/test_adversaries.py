"""Adversaries: what they add and ask, and what is certified of it."""

import math
from functools import cache

import numpy as np
import pytest

from ostraka import Curve, GNMax, LNMax
from ostraka.audit.adversaries import adversarial_queries, measure_leak
from ostraka.audits import NeighbourWorlds, TeacherWorlds, audit_adversary
from ostraka.mechanisms import Subsampled

MECHANISM = GNMax(sigma=4.0)
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
Y = (X[:, 0] + rng.normal(scale=0.7, size=200) > 0).astype(int)
QUERIES = rng.normal(size=(12, 2))
LABELS = (QUERIES[:, 0] > 0).astype(int)
ADVERSARIES = ("Nat-AdvQ", "Pois-AdvQ", "Pois-NatQ")


class Coins:
    """Teachers who vote by chance, by how far right a query lies; most of them repeat what they learnt."""

    n_classes = 2

    def __init__(self, *, fixed):
        self.fixed = fixed

    def ballots(self, queries, *, learnt=None, teachers=None, rng):
        chance = np.array([0.5]) if self.fixed else rng.random((20, len(queries)))
        ballots = (np.broadcast_to(chance, (20, len(queries))) < 1 / (1 + np.exp(-3 * queries[:, 0]))).astype(
            int
        )
        if learnt is not None:
            near = np.linalg.norm(queries - learnt[0], axis=1) < 1
            ballots = np.where(near & (self.fixed | (rng.random(ballots.shape) < 0.8)), learnt[1], ballots)
        return ballots if teachers is None else ballots[list(teachers)]


PATE = TeacherWorlds(Coins(fixed=False), n_trainings=40)
CAPC = TeacherWorlds(Coins(fixed=True), n_trainings=3)
KNN = NeighbourWorlds(X, Y, n_classes=2, n_neighbours=20, sampling_rate=0.5)


@cache
def leak(system, adversary, mechanism=MECHANISM, *, orders=(2.0, 8.0, 32.0), **settings):
    rng = np.random.default_rng(1)
    adversarial = adversarial_queries(
        adversary, system, QUERIES, LABELS, mechanism=mechanism, n_candidates=4, rng=rng
    )
    return measure_leak(system, adversarial, mechanism, orders=orders, rng=rng, **settings)


def audited(adversary, system, **settings):
    rng = np.random.default_rng(4)
    return audit_adversary(adversary, system, MECHANISM, QUERIES, LABELS, rng=rng, **settings)


def test_adversaries_do_what_the_paper_says():
    make = {
        a: adversarial_queries(a, KNN, QUERIES, LABELS, mechanism=MECHANISM, rng=rng) for a in ADVERSARIES
    }
    votes = KNN.expected(QUERIES)
    assert (make["Nat-AdvQ"].rows == QUERIES).all()
    assert (make["Nat-AdvQ"].labels == LABELS).all()
    assert (make["Pois-AdvQ"].labels == votes.argmin(axis=1)).all()
    assert [make[a].repeated for a in ADVERSARIES] == [True, True, False]
    assert (make["Pois-NatQ"].rows == make["Pois-NatQ"].rows[0]).all()
    assert len(set(make["Pois-NatQ"].labels.tolist())) == 1


def test_searching_longer_never_finds_a_worse_row():
    def best(n_rounds):
        rng = np.random.default_rng(3)
        queries = adversarial_queries(
            "Pois-NatQ", KNN, QUERIES, LABELS, mechanism=MECHANISM, n_candidates=6, n_rounds=n_rounds, rng=rng
        )
        return measure_leak(KNN, queries, MECHANISM, orders=(2.0,), rng=rng).exact[0]

    assert best(3) >= best(1) * (1 - 1e-3)


@pytest.mark.parametrize("name", ["PATE", "Private-kNN"])
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_trials_certify_most_of_the_modelled_leak_and_never_more(name, adversary):
    leakage = leak({"PATE": PATE, "Private-kNN": KNN}[name], adversary)
    for bound, exact in ((leakage.bound, leakage.exact), (leakage.anew, leakage.anew_exact)):
        if exact is not None:  # natural questions of teachers that are trained once have no known law
            assert (np.array(bound.rdp) <= exact).all()
            assert (np.array(bound.rdp) >= 0.8 * exact).all()
    # the columns "trained once" and "trained anew" share the error
    assert leakage.bound.confidence == pytest.approx(0.975 if name == "PATE" else 0.95, abs=1e-12)
    assert leakage.n_answers == len(QUERIES)


def test_fixed_parties_are_audited_by_their_votes():
    leakage = leak(CAPC, "Pois-AdvQ", orders=(2.0,))
    model = CAPC.models(QUERIES, QUERIES, CAPC.expected(QUERIES).argmin(axis=1))[leakage.queries[0]]
    assert len(model.parties) == 0
    p, q = np.exp(
        MECHANISM.log_outcomes(model.fixed + model.moves[[model.present.argmax(), model.absent.argmax()]])
    )
    directions = [np.log(np.sum(a**2 / b)) for a, b in ((p, q), (q, p))]
    assert leakage.exact[0] == pytest.approx(12 * max(directions))


def test_random_parties_and_other_mechanisms_are_audited_by_draws():
    leakage = leak(PATE, "Pois-AdvQ", LNMax(scale=4.0), orders=(2.0, 8.0), n_answers=3)
    assert leakage.anew_exact is None
    assert (leakage.bound.method, leakage.anew.method, leakage.n_answers) == ("joint", "paired", 3)
    assert 0.95 * leakage.exact[0] < leakage.bound.rdp[0] <= leakage.exact[0]
    assert leakage.anew.rdp[0] > 0


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_a_finding_has_all_three_numbers_and_a_sentence(adversary):
    price = Subsampled(mechanism=MECHANISM, sampling_rate=0.5).curve()
    finding = audited(adversary, KNN, name="kNN", price=price, delta=1e-6)
    assert (finding.name, finding.verdict) == (f"kNN × {adversary}", "consistent")
    assert all(m.lower <= m.exact <= m.upper for m in finding.measures)
    assert finding.measures[0].upper == pytest.approx(12 * price.rdp[price.orders.index(2.0)])
    assert "illustration" in finding.measures[-1].what
    assert "modelled" in finding.note
    assert finding.trials == 10**8
    assert "used up" not in finding.sentence
    assert "was seen to use up" in finding.sentence


def test_a_price_too_low_is_found_out_and_too_few_trials_are_inconclusive():
    finding = audited("Pois-AdvQ", CAPC, price=GNMax(sigma=40.0).curve())
    assert finding.verdict == "violated"
    assert finding.sentence.startswith("The promise is broken: one question asked 12 times")
    assert audited("Pois-NatQ", KNN, trials=20).verdict == "inconclusive"


def test_many_classes_are_taken_together_before_the_trials():
    rows = np.arange(200.0)[:, None]
    many = NeighbourWorlds(rows, np.arange(200) % 20, n_classes=20, n_neighbours=30, sampling_rate=0.5)
    queries = adversarial_queries(
        "Pois-AdvQ", many, rows[:3] + 0.1, np.arange(3), mechanism=MECHANISM, rng=rng
    )
    leakage = measure_leak(many, queries, MECHANISM, orders=(2.0,), rng=rng)
    assert 0.1 * leakage.exact[0] < leakage.bound.rdp[0] <= leakage.exact[0]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="adversary must"):
        adversarial_queries("Nat-NatQ", KNN, QUERIES, LABELS, mechanism=MECHANISM, rng=rng)
    with pytest.raises(ValueError, match="one for each of 12 queries"):
        adversarial_queries("Nat-AdvQ", KNN, QUERIES, LABELS[:3], mechanism=MECHANISM, rng=rng)
    with pytest.raises(ValueError, match="orders must be among"):
        audited("Nat-AdvQ", KNN, price=Curve((3.0, math.inf), (1.0, 2.0)))
