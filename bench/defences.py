"""Defences against vote recovery: what an attacker still learns under each, and its cost in accuracy.

The 30 histograms of Wang et al. 2022 (250 teachers, ten classes); recovery by posterior mean. Then
near-duplicates: an attacker who moves a question of scikit-learn's digits within its cell, or
across cells, of consistent answers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bench._data import ask, histograms
from ostraka import ABSTAIN, Budget, Confident, GNMax, Ledger, TeacherEnsemble, Threshold
from ostraka.attacks import recover_votes
from ostraka.consistent import Consistent
from ostraka.door import consistently

SEEDS, REPEATS, TEACHERS = 3, 10_000, 250
HISTOGRAMS: int | None = None  # of each data set; None: all
QUESTIONS, TIMES = 6, 250  # near-duplicates: how many, and how often each is put
SAME_EPSILON = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)  # noise
QUICK = {"SEEDS": 1, "HISTOGRAMS": 1, "QUESTIONS": 1, "TIMES": 20, "SAME_EPSILON": (40.0,)}
DELTA = 1e-5


def main() -> None:
    whom = np.concatenate([histograms(name)[:HISTOGRAMS] for name in ("mnist", "svhn")])
    table(whom)
    same_epsilon(whom)
    near_duplicates()


def table(whom: np.ndarray) -> None:
    """One line a defence: 10,000 repeats where nothing stops them."""
    noisy = GNMax(sigma=40.0)
    print("  defence                               error   right   answered")
    line("none, 10,000 repeats", whom, noisy, REPEATS)
    line("(a) consistent answers: 1 answer", whom, noisy, 1)
    for cap in (3, 10, 100, 1_000):
        line(f"(b) cap of {cap:,} answers", whom, noisy, cap)
    for sigma in (5.0, 10.0, 20.0, 80.0, 160.0):
        line(f"(c) sigma {sigma:g}, 10,000 repeats", whom, GNMax(sigma=sigma), REPEATS)
    for at in (150, 200, 230):
        screened = Confident(screen=Threshold(at=at, sigma=40.0), argmax=noisy)
        line(f"(d) threshold {at}, sigma 40, and 40", whom, screened, REPEATS)
    screened = Confident(screen=Threshold(at=200, sigma=150.0), argmax=noisy)
    line("(d) threshold 200, sigma 150, and 40", whom, screened, REPEATS)
    line("(a) and (d) together", whom, screened, 1)


def same_epsilon(whom: np.ndarray) -> None:
    """(c) again, where each noise buys as many answers as epsilon 2 pays for, whatever the votes."""
    print("  epsilon 2 a question at delta 1e-5:   error   right   answered")
    for sigma in SAME_EPSILON:
        once = replace(GNMax(sigma=sigma).curve(), slack=0.0)
        low, high = 0, 10**6
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if (middle * once).epsilon(DELTA) <= 2.0 else (low, middle)
        line(f"(c) sigma {sigma:g}, {low:,} answers", whom, GNMax(sigma=sigma), low)


def line(title: str, whom: np.ndarray, mechanism: GNMax | Confident, repeats: int) -> None:
    """Mean normalised L1 error; how often an answer is the plurality; how often there is one."""
    argmax = mechanism.argmax if isinstance(mechanism, Confident) else mechanism
    wrong, right, answered = [], [], []
    for votes in whom:
        q = np.exp(argmax.log_outcomes(votes[None])[0])
        passes = (
            np.exp(mechanism.screen.log_outcomes(votes[None])[0, 0])
            if isinstance(mechanism, Confident)
            else 1.0
        )
        right.append(q[votes.argmax()])
        answered.append(passes)
        for seed in range(SEEDS):
            answers_heard = np.random.default_rng(seed + 99).binomial(repeats, passes)
            answers = ask(argmax, votes, answers_heard, seed)
            if isinstance(mechanism, Confident):
                answers = np.append(answers, repeats - answers_heard)
            recovered = recover_votes(answers, n_teachers=TEACHERS, mechanism=mechanism)
            wrong.append(np.abs(recovered.mean - votes).sum() / (2 * TEACHERS))
    share = np.average(right, weights=answered)
    print(f"  {title:<36} {np.mean(wrong):6.3f} {share:7.1%} {np.mean(answered):9.1%}", flush=True)


def near_duplicates() -> None:
    """Teachers on digits; a question put often: as it is, moved within its cell, or across cells."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    X, y = load_digits(return_X_y=True)
    n_teachers, repeats, rng = 50, TIMES, np.random.default_rng(0)
    model = LogisticRegression(max_iter=300)
    ensemble = TeacherEnsemble(model, n_teachers=n_teachers, random_state=0).fit(X[300:], y[300:])
    mechanism, grid = GNMax(sigma=12.0), 2.0
    cell = Consistent(secret=bytes(range(32)), grid=grid, teachers="digits")
    kinds = {
        "repeated as it is": lambda x: np.repeat(x[None], repeats, axis=0),
        "moved within its cell": lambda x: x + rng.uniform(-0.49, 0.49, (repeats, len(x))) * grid,
        "one pixel moved one cell": lambda x: (
            x
            + grid
            * np.eye(len(x))[rng.integers(len(x), size=repeats)]
            * rng.choice([-1, 1], size=(repeats, 1))
        ),
        "every pixel may move one cell": lambda x: x + grid * rng.integers(-1, 2, (repeats, len(x))),
    }
    print(f"  one question on digits, 50 teachers, sigma 12, {repeats} times, cells of 2 of 16 grey levels")
    print("                                   distinct   error    epsilon")
    for title, moved in kinds.items():
        distinct, wrong, spent = [], [], []
        for question in range(QUESTIONS):
            centre = cell.snap(X[question : question + 1])[0]
            rows = moved(centre)
            votes = ensemble.vote(cell.snap(rows))
            with Ledger(":memory:", budget=Budget(epsilon=1e6, delta=DELTA)) as ledger:
                labels = consistently(mechanism, votes, rows, consistent=cell, ledger=ledger)
                distinct.append(len(ledger.entries()))
                spent.append(replace(ledger.spent(), slack=0.0).epsilon(DELTA))
            first = dict(zip(reversed(cell.digests(rows)), range(repeats - 1, -1, -1), strict=True))
            first_labels = labels[list(first.values())]
            answers = np.bincount(first_labels[first_labels != ABSTAIN], minlength=10)
            recovered = recover_votes(answers, n_teachers=n_teachers, mechanism=mechanism)
            truth = ensemble.vote(centre[None]).open()[0]
            wrong.append(np.abs(recovered.mean - truth).sum() / (2 * n_teachers))
        print(
            f"  {title:<32} {np.mean(distinct):9,.0f} {np.mean(wrong):7.3f} {np.mean(spent):10.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
