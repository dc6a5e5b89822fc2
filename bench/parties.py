"""Parties: milliseconds of rounds in the clear, with secret questions, and of the argmax only; wrong votes.

Parties and dealer serve over HTTP from a second process, as they would on two machines. A question's price
is what a round costs on top of the clear round measured beside it, offline part included.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.neural_network import MLPClassifier

from ostraka.parties.models import fixed_model
from ostraka.secure.agreement import fixed_rows, sizes_of
from ostraka.secure.dealer import deal_model
from ostraka.secure.masks import stream
from ostraka.secure.two_party import AskerSide, OwnerSide, words, words_bytes
from ostraka.voters import Agreement, Dealer, Identity, Party, PartyEnsemble, PartyServer, SecretQuestions
from ostraka.voters.voting import vote

__all__ = ["main"]

SECRET = [("linear", 0, 10, 16), ("MLP 64-32-10", 32, 10, 16), ("MLP 64-32-10", 32, 50, 100)]
CLEAR = [3, 10, 50]
REPEATS, VOTES = 7, 5000
QUICK = {"SECRET": [("linear", 0, 3, 4)], "CLEAR": [], "REPEATS": 1, "VOTES": 50}
SEEDS = "keys of this benchmark, known to both processes: "


def identity(name: str) -> Identity:
    """Return an identity that is the same in both processes."""
    import hashlib

    return Identity(hashlib.sha256((SEEDS + name).encode()).digest())


def agreed(
    n_parties: int, units: int, *, secret: bool, reveals: str = "counts", max_rows: int = 128
) -> Agreement:
    questions = SecretQuestions(
        dealer=identity("dealer").public_key,
        input_range=(0, 16),
        hidden=units,
        max_rounds=10**6,
        reveals=reveals,
    )
    return Agreement(
        members={f"p{k}": identity(f"p{k}").public_key for k in range(n_parties)},
        aggregator=identity("asker").public_key,
        classes=range(10),
        n_features=64,
        sigma=40.0,
        noise="parties",
        max_rows=max_rows,
        secret=questions if secret else None,
    )


def estimator(units: int) -> Any:
    return MLPClassifier((units,), max_iter=10) if units else RidgeClassifier()


def digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X, y


def serve(n_parties: int, units: int, end: Any, *, secret: bool, reveals: str) -> None:
    """Every party and the dealer, until the other process is done."""
    agreement = agreed(n_parties, units, secret=secret, reveals=reveals)
    X, y = digits()
    with ExitStack() as running:
        urls = {}
        for k in range(n_parties):
            party = Party(
                estimator(units),
                X[k::n_parties],
                y[k::n_parties],
                agreement=agreement,
                identity=identity(f"p{k}"),
                random_state=0,
            )
            urls[f"p{k}"] = running.enter_context(PartyServer(party)).url
        dealer = ""
        if secret:
            dealer = running.enter_context(PartyServer(Dealer(agreement, identity("dealer")))).url
        end.send((urls, dealer))
        while end.recv() != "done":
            end.send(time.process_time())


def round_ms(
    n_parties: int, units: int, batch: int, *, secret: bool, reveals: str = "counts"
) -> tuple[float, float]:
    """The median round, once everything is compiled; and the processor time of both processes."""
    end, child_end = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(n_parties, units, child_end), kwargs={"secret": secret, "reveals": reveals}
    )
    process.start()
    try:
        urls, dealer = end.recv()
        options = {"questions": "secret", "dealer": dealer} if secret else {}
        parties = PartyEnsemble(
            urls,
            agreement=agreed(n_parties, units, secret=secret, reveals=reveals),
            identity=identity("asker"),
            **options,
        )
        rows = digits()[0][:batch]
        parties.vote(rows)
        took = []
        before = used(end)
        for _ in range(REPEATS):
            start = time.perf_counter()
            parties.vote(rows)
            took.append(1000 * (time.perf_counter() - start))
        processor = 1000 * (used(end) - before) / REPEATS
        end.send("done")
        return statistics.median(took), processor
    finally:
        process.join(10)
        process.kill()


def used(end: Any) -> float:
    """Seconds of processor time of both processes so far."""
    end.send("how long?")
    return time.process_time() + end.recv()


def wrong_votes(units: int) -> int:
    """Votes on rows of digits and on drawn ones that differ from those of the clear model."""
    agreement = agreed(3, units, secret=True)
    X, y = digits()
    party = Party(
        estimator(units), X[::10], y[::10], agreement=agreement, identity=identity("p0"), random_state=0
    )
    rows = np.concatenate([X, np.random.default_rng(0).uniform(0, 16, (VOTES, 64))])[:VOTES]
    sizes, fixed = sizes_of(agreement, len(rows)), fixed_rows(rows, agreement.secret)
    key, asker, holder, question = os.urandom(16), os.urandom(32), os.urandom(32), os.urandom(32)
    pad = words(stream(question), *fixed.shape)
    dealt = deal_model(key, sizes, question=pad, asker=asker, owner_key=holder)
    owner = OwnerSide(fixed_model(party._teacher, agreement), holder, sizes)  # noqa: SLF001
    side = AskerSide(key, asker, sizes, question=pad, words=dealt.words, corrections=dealt.corrections)
    weights = owner.weights()
    owner.take(key, dealt.words)
    answer = owner.first(fixed - pad, side.first(weights))
    answer = owner.layer(side.layer(answer)) if units else answer
    votes = owner.votes(side.wins(answer)) + side.votes()
    clear = vote(rows, len(agreement.classes), [party._teacher])[0]  # noqa: SLF001
    return int((votes.argmax(axis=1) != clear.codes).sum())


def main() -> None:
    print(f"{'':32s} {'clear round':>15s} {'secret round':>15s} {'on top, a question':>18s} {'dealt':>9s}")
    print("milliseconds that passed / of processor time of all roles, which other work hardly changes")
    for name, units, n_parties, batch in SECRET:
        clear = round_ms(n_parties, units, batch, secret=False)
        secret = round_ms(n_parties, units, batch, secret=True)
        argmax = round_ms(n_parties, units, batch, secret=True, reveals="argmax")
        dealt = words_bytes(sizes_of(agreed(n_parties, units, secret=True), 1)) / 1000
        label = f"{name}, K = {n_parties}, batch {batch}"
        differences = [(two - clear_ms) / batch for clear_ms, two in zip(clear, secret, strict=True)]
        print(
            f"{label:32s} {clear[0]:7.0f} / {clear[1]:5.0f} {secret[0]:7.0f} / {secret[1]:5.0f} "
            f"{differences[0]:10.1f} / {differences[1]:5.1f} {dealt:6.1f} kB",
            flush=True,
        )
        print(f"{'  that reveals the argmax only':48s} {argmax[0]:7.0f} / {argmax[1]:5.0f}", flush=True)
    for n_parties in CLEAR:
        milliseconds = round_ms(n_parties, 0, 16, secret=False)
        print(
            f"{f'clear round, K = {n_parties}':32s} {milliseconds[0]:7.0f} / {milliseconds[1]:5.0f}",
            flush=True,
        )
    for units in sorted({units for _, units, *_ in SECRET}):
        print(f"wrong votes of {VOTES}, {units or 'no'} hidden units: {wrong_votes(units)}", flush=True)


if __name__ == "__main__":
    main()
