"""A ballot mechanism which the library has never seen: a class of its own, and nothing else to touch.

It is priced, recovered, audited, learned with and served by what ``log_outcomes`` says alone.
"""

import ast
import importlib
import pkgutil
import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import ostraka
from ostraka import (
    Adjacency,
    Budget,
    Confident,
    Ledger,
    PATEClassifier,
    Private,
    TeacherEnsemble,
    Threshold,
    release,
)
from ostraka.accounting import calibrate, every_bound, exact_curve, release_epsilon
from ostraka.attacks import leakage_meter, recover_votes
from ostraka.audit.attacks.votes import cramer_rao
from ostraka.audits import audit_mechanism
from ostraka.consistent import Consistent
from ostraka.core.accounting.bounds import exact_rdp
from ostraka.core.curve import ORDERS, Curve
from ostraka.core.mechanisms.records import from_record, register, to_record
from ostraka.ledger import ChargeRequest
from ostraka.mechanisms import Subsampled, Weighted
from ostraka.serve.answering import Answerer
from ostraka.voters import SavedTeachers


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class GumbelMax:
    """The exponential mechanism: the class whose count is largest after Gumbel noise on every count."""

    scale: float
    promise: ClassVar[Adjacency] = Adjacency.one_ballot()

    def curve(self):
        """2 / scale is the range of log ratios: (2 / scale)^2 / 8 of concentrated privacy."""
        pure = 2 / self.scale
        return Curve(ORDERS, tuple(min(pure, order * pure**2 / 8) for order in ORDERS), slack=2.0**-40)

    def uses(self, private):
        return len(private)

    def log_outcomes(self, counts):
        return log_softmax(np.asarray(counts, dtype=float) / self.scale, axis=1)

    def release(self, private, *, rng):
        counts = private.open()
        return (counts + rng.gumbel(scale=self.scale, size=counts.shape)).argmax(axis=1)

    def rescaled(self, factor):
        return replace(self, scale=self.scale * factor)


MECHANISM = GumbelMax(scale=8.0)
SCREENED = Confident(screen=Threshold(at=60.0, sigma=10.0), argmax=MECHANISM)
VOTES = np.array([[70, 20, 10], [40, 35, 25], [34, 33, 33], [100, 0, 0]])
ONE = Adjacency.one_ballot()


def brute_force(mechanism, row, order):
    """Every way to move one ballot, both directions."""
    base, worst = mechanism.log_outcomes([row])[0], 0.0
    for i, j in np.ndindex(3, 3):
        if i != j and row[i] >= 1:
            neighbour = mechanism.log_outcomes([row - np.eye(3)[i] + np.eye(3)[j]])[0]
            for p, q in ((base, neighbour), (neighbour, base)):
                worst = max(worst, float(np.log(np.exp(order * p + (1 - order) * q).sum()) / (order - 1)))
    return worst


@pytest.mark.parametrize("mechanism", [MECHANISM, SCREENED], ids=["alone", "screened"])
def test_it_is_priced(mechanism):
    exact = exact_rdp(mechanism, VOTES, orders=(2.0, 8.0))
    wanted = [[brute_force(mechanism, row, order) for order in (2.0, 8.0)] for row in VOTES]
    np.testing.assert_allclose(exact, wanted, rtol=1e-8)
    names = [bound.name for bound in every_bound(mechanism, VOTES)]
    assert names[-1] == "exact"
    assert "papernot2018" not in names
    curve = exact_curve(mechanism, VOTES)
    assert not curve.publishable
    assert curve.epsilon(1e-5) < (len(VOTES) * mechanism.curve()).epsilon(1e-5)


def test_its_noise_is_calibrated_and_its_wrappers_are_priced():
    scale = calibrate(lambda noise: GumbelMax(scale=noise), n_answers=50, epsilon=2.0, delta=1e-5)
    assert 1.9999 < (50 * GumbelMax(scale=scale).curve()).epsilon(1e-5) <= 2.0
    assert Weighted(mechanism=MECHANISM, weight=2.0).curve() == GumbelMax(scale=4.0).curve()
    seldom = Subsampled(mechanism=MECHANISM, sampling_rate=0.1).curve()
    assert seldom.epsilon(1e-5) < MECHANISM.curve().epsilon(1e-5)


def test_its_epsilon_is_published():
    votes = Private(np.tile([[95, 5]], (400, 1)), ONE)
    publication = release_epsilon(MECHANISM, votes, delta=1e-5, agreement=0.9)
    assert publication.method == "certificate"
    assert publication.epsilon < publication.any_votes
    many = Private(np.tile([[95, 3, 2]], (400, 1)), ONE)  # pure privacy bounds three classes, too
    assert release_epsilon(MECHANISM, many, delta=1e-5).epsilon <= publication.any_votes * 1.1


def test_its_votes_are_recovered():
    answers = np.append(200_000 * np.exp(MECHANISM.log_outcomes([[50, 30, 20]])[0]), [])
    for method in ("posterior", "maximum-likelihood"):
        recovery = recover_votes(answers.round(), n_teachers=100, mechanism=MECHANISM, method=method)
        np.testing.assert_allclose(recovery.mean, [50, 30, 20], atol=1.0)
        assert ((recovery.lower <= [50, 30, 20]) & (recovery.upper >= [50, 30, 20])).all()
    assert leakage_meter(MECHANISM, [[50, 30, 20]], n_answers=10**5)[0] < 1
    assert (cramer_rao(MECHANISM, [[50, 30, 20]], n_answers=10**5) > 0).all()
    with pytest.raises(TypeError, match="n_teachers is needed"):
        recover_votes(answers.round(), n_teachers=None, mechanism=MECHANISM)


@pytest.mark.statistical
def test_it_is_audited_and_one_that_is_noised_less_than_it_says_is_found():
    class Quiet(GumbelMax):
        def release(self, private, *, rng):
            counts = private.open()
            return (counts + rng.gumbel(scale=0.9 * self.scale, size=counts.shape)).argmax(axis=1)

    worlds = [14, 12, 10], [13, 13, 10]
    for kind, verdict in ((GumbelMax, "consistent"), (Quiet, "violated")):
        finding = audit_mechanism(
            kind(scale=2.0), *worlds, trials=200_000, rng=np.random.default_rng(0), orders=(2.0, 4.0)
        )
        assert finding.verdict == verdict, finding.sentence


def test_it_is_learned_with():
    X, y = load_digits(n_class=3, return_X_y=True)
    model = PATEClassifier(
        LogisticRegression(max_iter=200),
        n_teachers=20,
        mechanism=GumbelMax(scale=4.0),
        epsilon=8.0,
        delta=1e-4,
    )
    model.fit(X[:400], y[:400], X_public=X[400:])
    assert model.result_.upper["epsilon"] <= 8.0
    assert model.result_.settings["mechanism"] == "GumbelMax(scale=4.0)"
    assert 0 < model.result_.owner["epsilon_these_votes"] <= model.result_.upper["epsilon"]
    assert (model.predict(X[400:]) == y[400:]).mean() > 0.8


def test_it_is_served(tmp_path):
    X, y = load_digits(n_class=3, return_X_y=True)
    ensemble = TeacherEnsemble(LogisticRegression(max_iter=200), n_teachers=10).fit(X[:300], y[:300])
    columns = tuple(str(j) for j in range(X.shape[1]))
    saved = SavedTeachers(
        ensemble=ensemble, mechanism=MECHANISM, columns=columns, numeric=(True,) * len(columns),
        grid=Consistent.grid_of(X),
    )  # fmt: skip
    saved.save(tmp_path / "teachers")
    saved = SavedTeachers.load(tmp_path / "teachers")
    assert saved.mechanism == MECHANISM
    consistent = Consistent.kept_at(tmp_path / "secret", grid=saved.grid, teachers="demo")

    def requests(answers, account):
        assert {draw.cost for draw in answers} == {MECHANISM}
        charges = ((f"{n}", draw.digest, draw.cost, draw.answer) for n, draw in enumerate(answers))
        return [
            ChargeRequest(account=account, key=key, digest=digest, cost=cost, reserve=cost, answer=answer)
            for key, digest, cost, answer in charges
        ]

    with Ledger(
        ":memory:", budget=Budget(epsilon=500.0, delta=1e-5, adaptive=False), secret=bytes(32)
    ) as ledger:
        replies = []
        for account in ("ann", "bob"):
            ledger.grant(account, budget_epsilon=500.0)
            receipts = Answerer(saved, consistent).answer(
                X[300:340], ledger=ledger, requests=partial(requests, account=account)
            )
            replies.append([receipt.answer for receipt in receipts])
        assert replies[0] == replies[1]
        questions = len(set(consistent.digests(X[300:340])))  # each is paid for once, whoever asks
        price = (questions * MECHANISM.curve()).epsilon(1e-5)
        assert ledger.epsilon() == pytest.approx(price, rel=1e-12)
        assert release(SCREENED, Private(VOTES, ONE), ledger=ledger).shape == (4,)
        passed = len(VOTES)  # at most: the screen decides how many
        least, highest = (
            (questions * MECHANISM.curve() + len(VOTES) * SCREENED.screen.curve() + n * MECHANISM.curve())
            for n in (0, passed)
        )
        assert least.epsilon(1e-5) <= ledger.epsilon() <= highest.epsilon(1e-5)


def test_records_make_registered_types_only():
    assert from_record(to_record(SCREENED)) == SCREENED
    with pytest.raises(ValueError, match="another mechanism is registered as GumbelMax"):
        register(dataclass(frozen=True)(type("GumbelMax", (), {})))
    with pytest.raises(TypeError, match="frozen dataclass"):
        register(type("Loose", (), {}))
    stranger = dataclass(frozen=True, slots=True, kw_only=True)(type("Stranger", (GumbelMax,), {}))
    with pytest.raises(ValueError, match="must be of a registered type to be saved, got Stranger"):
        to_record(stranger(scale=1.0))
    inner = to_record(MECHANISM)
    for record in (
        {"kind": "Stranger", "scale": 1.0},
        {"kind": "os.system", "command": "true"},
        {"kind": "GNMax", "sigma": 4.0, "promise": "anything"},
        {"kind": "GNMax"},
        {"kind": "GNMax", "sigma": -1.0},
        {"kind": ["GNMax"]},
        {"kind": "Weighted", "weight": 1.0, "mechanism": {"kind": "Weighted", "mechanism": inner}},
        "GNMax(sigma=4.0)",
        None,
    ):
        with pytest.raises(ValueError, match=r"must be|must have|cannot be made"):
            from_record(record)


def test_no_code_outside_mechanisms_asks_for_the_type_of_a_mechanism():
    """What a mechanism offers is asked for (a protocol); its type is not."""
    modules = [
        f"ostraka.mechanisms.{module.name}" for module in pkgutil.iter_modules(ostraka.mechanisms.__path__)
    ]
    homes = [importlib.import_module(name) for name in modules]
    replies = {value for home in homes for value in vars(home).values() if hasattr(value, "promise")}
    types = {kind.__name__ for kind in replies if not getattr(kind, "_is_protocol", False)}
    assert {"GNMax", "Confident", "SkellamSum", "StagedResponse"} <= types
    root = Path(ostraka.__file__).parent
    # within five lines: the files that may ask are few, and only these are parsed
    asks = rf"(isinstance|issubclass)\((.*\n){{0,4}}.*\b({'|'.join(types)}|tuple)\b"
    replies = []
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.is_relative_to(root / "core" / "mechanisms") or not re.search(asks, text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"isinstance", "issubclass"}:
                type_names = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                subject = ast.unparse(node.args[0])
                if type_names & types or ("tuple" in type_names and "mechanism" in subject):
                    replies.append(f"{path.relative_to(root)}:{node.lineno}")
    assert replies == []
