"""The code of the README as a typed program: mypy reads it strictly, and tests/test_typing.py runs it."""

# pyright: reportMissingTypeStubs=false
# (scikit-learn has none)

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

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
    PATEClassifier,
    Private,
    TeacherEnsemble,
    Threshold,
    confident,
    count_votes,
    interactive,
    release,
)
from ostraka.accounting import exact_curve, moments2017_curve, papernot2018_curve


def prices(counts: np.ndarray) -> tuple[float, float, float, float]:
    """Upper bounds on one answer to each row: tight, classic, and two for the owner only."""
    mechanism = GNMax(sigma=40.0)
    tight: Curve = mechanism.curve()
    classic: Curve = mechanism.curve(bound="classic")
    exact: Curve = exact_curve(mechanism, counts)
    published: Curve = papernot2018_curve(mechanism, counts)
    n_queries = len(counts)
    return (
        (n_queries * tight).epsilon(delta=1e-5),
        (n_queries * classic).epsilon(delta=1e-5),
        exact.epsilon(delta=1e-5),
        published.epsilon(delta=1e-5),
    )


def owners_curves(counts: np.ndarray) -> list[Curve]:
    """Everything that may not be published."""
    screened = Confident(screen=Threshold(at=60.0, sigma=20.0), argmax=GNMax(sigma=40.0))
    return [
        exact_curve(GNMax(sigma=40.0), counts),
        exact_curve(LNMax(scale=20.0), counts),
        exact_curve(screened, counts),
        moments2017_curve(LNMax(scale=20.0), counts),
    ]


def chances(counts: np.ndarray) -> np.ndarray:
    """Exact probability of every answer."""
    outcomes: np.ndarray = np.exp(GNMax(sigma=40.0).log_outcomes(counts))
    return outcomes


def answers(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three ways through the door."""
    votes = Private(counts, Adjacency.one_ballot(unit="person"))
    argmax, screen = GNMax(sigma=10.0), Threshold(at=60.0, sigma=15.0)
    guesses = np.full(counts.shape, 1 / counts.shape[1])
    with Ledger(":memory:", budget=Budget(epsilon=50.0, delta=1e-5)) as ledger:
        plain: np.ndarray = release(argmax, votes, ledger=ledger)
        sure: np.ndarray = confident(votes, screen=screen, argmax=argmax, ledger=ledger)
        labels: np.ndarray = interactive(
            votes,
            guesses,
            screen=screen,
            argmax=argmax,
            n_teachers=int(counts[0].sum()),
            confidence=0.9,
            ledger=ledger,
        )
        balance: float = ledger.left()
    assert balance < 50.0
    return plain, sure, labels


def refusal(counts: np.ndarray) -> str:
    """What a budget that is too small says."""
    votes = Private(counts, Adjacency.one_ballot())
    with Ledger(":memory:", budget=Budget(epsilon=0.01, delta=1e-5)) as ledger:
        try:
            release(GNMax(sigma=1.0), votes, ledger=ledger)
        except BudgetExceeded as refused:
            return str(refused)
    return ""


def shards(X: np.ndarray, y: np.ndarray, X_public: np.ndarray) -> tuple[Private, np.ndarray]:
    """Teachers, their secret ballots, and the same counts for the owner's eyes."""
    ensemble = TeacherEnsemble(KNeighborsClassifier(1), n_teachers=20).fit(X, y, classes=range(10))
    return ensemble.vote(X_public), count_votes(ensemble.predictions(X_public), n_classes=10)


def student(X: np.ndarray, y: np.ndarray, X_public: np.ndarray) -> np.ndarray:
    """The whole pipeline as one estimator."""
    model = PATEClassifier(
        KNeighborsClassifier(1), n_teachers=20, mechanism=GNMax(sigma=5.0), epsilon=8.0, delta=1e-4
    )
    model.fit(X, y, X_public=X_public)
    assert model.result_.upper["epsilon"] <= 8.0
    predicted: np.ndarray = model.predict(X_public)
    return predicted


def main() -> None:
    """Run all of it on a small scale."""
    counts = np.array([[70, 20, 10], [40, 35, 25], [95, 3, 2]])
    tight, classic, exact, published = prices(counts)
    assert exact <= tight < classic
    assert exact <= published
    assert not any(curve.publishable for curve in owners_curves(counts))
    np.testing.assert_allclose(chances(counts).sum(axis=1), 1.0)
    for label in answers(counts):
        assert label.shape == (3,)
        assert set(label.tolist()) <= {ABSTAIN, 0, 1, 2}
    assert "epsilon" in refusal(counts)
    digits: Any = load_digits(return_X_y=True)  # scikit-learn ships no types
    X, y = digits
    ballots, plain = shards(X[:1000], y[:1000], X[1000:1100])
    assert ballots.shape == plain.shape == (100, 10)
    assert student(X[:1000], y[:1000], X[1000:1200]).shape == (200,)


if __name__ == "__main__":
    main()
