"""PromptPATE on SST-2: a hundred questions to 25 to 200 one-shot prompts, over HTTP on this machine.

The language model is a small local classifier (``_language.Matcher``), not a large one: it knows
good reviews from bad ones by 20,000 public phrases. The private rows tell it which word means which.
"In-house words" are A and B, which it cannot know; "plain words" are negative and positive, which it
does. Teachers, prompts, answers, votes, noise and prices are those of any other model.
"""

from __future__ import annotations

import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.base import clone

from bench._data import folder
from bench._language import LocalEndpoint, Matcher
from ostraka import Budget, GNMax, Ledger, release
from ostraka.accounting import calibrate, exact_curve
from ostraka.voters import Endpoint, PromptEnsemble

N_PUBLIC, N_PRIVATE, N_QUERIES, N_NEW = 20_000, 4_000, 100, 300
TEACHERS, MOST_TEACHERS = (25, 50, 100, 200), 200
QUICK = {
    "N_PUBLIC": 400,
    "N_PRIVATE": 450,
    "N_QUERIES": 5,
    "N_NEW": 5,
    "TEACHERS": (25,),
    "MOST_TEACHERS": 25,
}
EPSILONS, DELTA = (1.0, 2.0, 4.0), 1e-5  # for all questions together
KINDS = ("negative", "positive")


def main() -> None:
    rng = np.random.default_rng(0)
    texts, codes = read("train.tsv.gz")
    queries, truth = read("dev.tsv.gz")
    order = rng.permutation(len(texts))
    public, mine = order[:N_PUBLIC], order[N_PUBLIC : N_PUBLIC + N_PRIVATE]
    sample = rng.permutation(len(queries))
    sample, new = sample[:N_QUERIES], sample[N_QUERIES : N_QUERIES + N_NEW]
    model = Matcher([texts[row] for row in public], [KINDS[codes[row]] for row in public])
    answers = np.array([KINDS.index(word) for word in model_alone(model, [queries[row] for row in sample])])
    print(f"  the classifier itself, told what the words mean: {np.mean(answers == truth[sample]):.1%} right")
    print(f"  {'':33} {'one':>10} {'':>10}  released at epsilon        epsilon 2:")
    print(
        "  words     teachers shots zero-shot    prompt  plurality"
        "      1      2      4    student   these votes     calls  seconds"
    )
    with LocalEndpoint(model.answer) as server, tempfile.TemporaryDirectory() as folder:
        for words in (("A", "B"), KINDS):
            for n_shots, n_teachers in [*((1, n) for n in TEACHERS), (4, MOST_TEACHERS)]:
                ensemble = PromptEnsemble(
                    Endpoint(server.url, concurrency=4),
                    model="matcher",
                    classes=[0, 1],
                    words=words,
                    n_teachers=n_teachers,
                    n_shots=n_shots,
                    response_cache=Path(folder) / "responses.jsonl",
                ).fit([texts[row] for row in mine], codes[mine])
                line(ensemble, queries, truth, sample, new, calls=server.seen)


def line(
    ensemble: PromptEnsemble,
    queries: list[str],
    truth: np.ndarray,
    sample: np.ndarray,
    new: np.ndarray,
    *,
    calls: list[object],
) -> None:
    """Vote, release under a ledger, make a student prompt of the answers; one row of the table."""
    texts, right, n_teachers = (
        [queries[row] for row in sample],
        truth[sample],
        ensemble.n_teachers,
    )
    before, start = len(calls), time.perf_counter()
    expected = ensemble.estimate(texts).calls
    votes = ensemble.vote(texts)
    seconds, n_calls = time.perf_counter() - start, len(calls) - before
    assert n_calls == expected, (n_calls, expected)
    counts = votes.open()
    noisy = {epsilon: at_price(epsilon, len(texts)) for epsilon in EPSILONS}
    released = [np.exp(m.log_outcomes(counts))[np.arange(len(texts)), right].mean() for m in noisy.values()]
    these = exact_curve(noisy[2.0], counts).epsilon(DELTA)
    zero, ballots = ensemble.zero_shot(texts), ensemble.predictions(texts)
    with Ledger(":memory:", budget=Budget(epsilon=2.0, delta=DELTA, adaptive=False)) as ledger:
        labels = release(noisy[2.0], votes, ledger=ledger)
    student = clone(ensemble).set_params(n_teachers=1, n_shots=8).fit(texts, ensemble.classes_[labels])
    taught = np.mean(student.predictions([queries[row] for row in new])[0] == truth[new])
    name = "in-house" if ensemble.words == ("A", "B") else "plain"
    plurality = np.mean(counts.argmax(1) == right)
    print(
        f"  {name:<10} {n_teachers:7d} {ensemble.n_shots:5d}"
        f" {np.mean(zero == right):9.1%} {np.mean(ballots == right):9.1%} {plurality:10.1%}"
        f" {released[0]:6.1%} {released[1]:6.1%} {released[2]:6.1%} {taught:10.1%} {these:13.2f}"
        f" {n_calls:9,d} {seconds:8.1f}",
        flush=True,
    )


def at_price(epsilon: float, n_answers: int) -> GNMax:
    """The least noise that so many answers may have at this price."""
    return GNMax(sigma=calibrate(GNMax, n_answers=n_answers, epsilon=epsilon, delta=DELTA))


def model_alone(model: Matcher, texts: list[str]) -> list[str]:
    """What the classifier behind the model says, without any prompt."""
    return list(model._model.predict(texts))  # noqa: SLF001  (for the comparison only)


def read(name: str) -> tuple[list[str], np.ndarray]:
    """Phrases, and 1 for a good one."""
    with gzip.open(folder() / "sst2" / name, "rt", encoding="utf-8") as file:
        rows = [row.rstrip("\n").split("\t") for row in file][1:]
    return [text for text, _ in rows], np.array([int(code) for _, code in rows])
