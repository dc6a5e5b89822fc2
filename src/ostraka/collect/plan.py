"""Predict the cost of a collection and the errors of its answers before it starts.

Rounds of invented people in one process, for demonstrations, tests and measurements.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect.client import Client
from ostraka.collect.encodings import (
    KINDS,
    SPELLINGS,
    CountMin,
    CountSketch,
    Grid,
    Histogram,
    Histograms,
    Pairs,
    Sum,
    Tree,
    Vector,
    read,
)
from ostraka.collect.estimate import nodes_of_ranks
from ostraka.collect.keeper import Keeper
from ostraka.collect.messages import approval, certificate, degree
from ostraka.collect.show import Collected, heat_map, quantile, record_of, shares
from ostraka.collect.tally import Tally
from ostraka.collect.task import Task
from ostraka.core import check
from ostraka.core.accounting.calibration import calibrate
from ostraka.core.door import release
from ostraka.core.files import environment
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.skellam import MOST_SUM_SIGMA, SkellamSum
from ostraka.report.figures import svg
from ostraka.secure.keys import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ostraka.collect.encodings import Encoding
    from ostraka.collect.show import Answer
    from ostraka.core.private import Private

# Measured on one core (bench/collect.py, docs/collect.md), in seconds.
_PAIR, _CELL = 75e-6, 3e-9  # both ends of a neighbour: two key agreements; one cell of one mask
_KEEPER, _SHARE = 40e-6, 0.35e-6  # one report at a keeper; one multiplication in secret sharing
_LEAST_SIGMA = 0.5
_FANOUTS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 24, 32)
_WIDE = 2**16
_USELESS = 0.25  # of a rank: from the median to a quartile
_AS_GOOD = 1.05  # how far above the least variance a tree may lie that has fewer cells
_EPSILON, _DELTA = 1.0, 1e-6  # of each round of the demonstration


def sigma_for(encoding: Encoding, *, epsilon: float, delta: float) -> float:
    """Return the smallest standard deviation, to one part in a thousand, that costs at most ``epsilon``."""

    def made(noise: float) -> SkellamSum:
        sigma = min(noise * encoding.l2, MOST_SUM_SIGMA)
        mechanism = SkellamSum(sigma=sigma, l1=encoding.l1, l2=encoding.l2)
        if sigma == MOST_SUM_SIGMA and (least := mechanism.curve().epsilon(delta=delta)) > epsilon:
            raise ValueError(f"epsilon must be at least {least:.3g} for this encoding, got {epsilon!r}")
        return mechanism

    noise = calibrate(made, n_answers=1, epsilon=epsilon, delta=delta, precision=1e-3)
    return math.ceil(max(made(noise).sigma, _LEAST_SIGMA) * 1000) / 1000


def fanout_for(low: int, high: int) -> int:
    """Return the fanout for ranks: of those near the least noise, the one with the fewest cells.

    The noise of a rank is that of the nodes that add up to it; at one epsilon, the variance of each node is
    in proportion to the number of levels. Of wide ranges, ten is near it.
    """
    if high - low > _WIDE:
        return 10
    trees = [Tree(low, high, fanout=fanout) for fanout in _FANOUTS]
    noise = [
        len(tree.sizes) * float(nodes_of_ranks(tree.sizes, tree.fanout, known=True).mean()) for tree in trees
    ]
    near = [tree for tree, variance in zip(trees, noise, strict=True) if variance <= _AS_GOOD * min(noise)]
    return min(near, key=lambda tree: tree.cells).fanout


def plan(
    encoding: Encoding,
    *,
    n_clients: int,
    epsilon: float,
    delta: float,
    trust: str = "keepers",
    n_keepers: int = 3,
    honest: int = 1,
    colluding: float = 0.1,
    missing: float = 0.1,
    items: int | None = None,
) -> dict[str, Any]:
    """Predict noise, bytes and seconds of a round, and for a sketch also those of the whole vector."""
    check.integer(n_clients=n_clients, least=3)
    check.integer(n_keepers=n_keepers, honest=honest, least=1)
    check.one_of(trust=trust, allowed=("keepers", "clients"))
    if trust == "keepers" and honest > n_keepers:
        raise ValueError(f"honest must be at most the {n_keepers} keepers there are, got {honest}")
    sigma = sigma_for(encoding, epsilon=epsilon, delta=delta)
    vector = 4 * encoding.cells
    prediction: dict[str, Any] = {
        "cells": encoding.cells,
        "sigma": sigma,
        "trust": trust,
        "n_clients": n_clients,
    }
    if trust == "keepers":
        spread = sigma * math.sqrt(n_keepers / honest)
        prediction |= {
            "bytes a client": 48 + vector,
            "bytes at the tally": n_clients * (48 + vector),
            "bytes to a keeper": 32 * n_clients,
            "seconds a client": n_keepers * (_KEEPER + _CELL * encoding.cells),
            "seconds a keeper": n_clients * (_KEEPER + _CELL * encoding.cells),
            "fails if": "one keeper does not answer",
        }
    else:
        n_colluding, n_missing = math.ceil(colluding * n_clients), math.ceil(missing * n_clients)
        k, t = degree(n_clients, n_colluding, n_missing)
        survivors = n_clients - n_missing
        spread = sigma * math.sqrt(n_clients / (survivors - n_colluding))
        client = k * (_PAIR + _CELL * encoding.cells) + 2 * k * t * _SHARE
        prediction |= {
            "neighbours": k,
            "threshold": t,
            "bytes a client": vector + k * (82 + 38) + 260,
            "bytes at the tally": n_clients * (vector + k * (82 + 38) + 260),
            "seconds a client": client,
            "seconds at the tally": n_missing * k * _PAIR / 2 + n_clients * t * t * _SHARE,
            "fails if": f"more than {n_missing} clients vanish (else with a chance below 1e-6)",
        }
    prediction["noise in a cell"] = spread
    # the errors of the usual answers that follow from the noise alone
    if isinstance(encoding, Tree):
        nodes = float(nodes_of_ranks(encoding.sizes, encoding.fanout, known=True).mean())
        rank = spread * math.sqrt(nodes) / n_clients
        prediction |= {"fanout": encoding.fanout, "error of a rank": rank}
        if 2 * rank > _USELESS:
            prediction["advice"] = (
                f"the median will be useless: {n_clients} people are too few for so much noise. Its interval "
                "will cover half of all answers or more: ask more people, or type a larger --epsilon"
            )
    elif isinstance(encoding, Sum | Vector):
        unit = float(encoding.scale(1.0, n_clients=0))
        prediction["error of a mean"] = unit * math.sqrt(spread**2 + n_clients / 4) / n_clients
    elif isinstance(encoding, Histogram | Histograms):
        prediction["error of a share"] = spread / n_clients
    elif isinstance(encoding, CountMin | CountSketch) and items is not None:
        direct = spread / sigma * sigma_for(Histogram(0, items, cells=items), epsilon=epsilon, delta=delta)
        direct *= encoding.at_most
        collisions = n_clients * encoding.at_most / encoding.width
        sketched = spread * math.sqrt(math.pi / 2 / encoding.depth) + collisions
        prediction |= {
            "error of a count in the sketch": sketched,
            "error of a count in the whole vector": direct,
            "bytes of the whole vector": 4 * items,
            "advice": "take the " + ("whole vector: its error is smaller" if direct < sketched else "sketch"),
        }
    return prediction


def parsed(words: str) -> Encoding:
    """Parse an encoding as typed, such as ``tree:0:1024``, ``grid:0:1:0:1:32x32`` or ``sum:0:240``.

    A tree may be followed by its fanout; else it is chosen for quantiles.
    """
    name, *parts = words.split(":")
    spelling, parse = SPELLINGS.get(name, ("", None))
    try:
        fields = None if parse is None else parse(*parts)
    except (TypeError, ValueError):  # too few words, too many, or one that is no number
        fields = None
    if fields is None:
        usual = spelling or ", ".join(shape for shape, _ in SPELLINGS.values())
        raise ValueError(f"{words!r} is no encoding. Type {usual}")
    if fields.get("fanout", 0) is None:
        fields["fanout"] = fanout_for(fields["low"], fields["high"])
    kind = next(kind for kind in KINDS if kind.lower() == name.replace("-", ""))
    return read({"kind": kind, **fields})


def among_clients(
    tally: Tally,
    values: Sequence[Any],
    *,
    vanish: Mapping[int, str] | None = None,
    enrolment: Identity | None = None,
) -> list[int]:
    """Run a round's exchanges among clients up to the last; return the numbers of the surviving clients.

    ``vanish`` says before which exchange a client goes: "share", "mask", "confirm" or "unmask".
    """
    gone = dict(vanish or {})
    clients = {number: Client(tally.task, round=tally.round) for number in range(len(values))}
    for client in clients.values():
        if enrolment is not None:
            client.certificate = certificate(tally.task, enrolment, client.claim, round_=tally.round)
        tally.receive(client.join())
    tally.advance(
        b"" if enrolment is None else approval(tally.task, enrolment, tally.entries(), round_=tally.round)
    )
    masked: list[int] = []
    while True:
        stage = tally.stage
        clients = {number: client for number, client in clients.items() if gone.get(number) != stage}
        for number, client in clients.items():
            message = tally.outbox(bytes.fromhex(client.key))
            if stage == "mask":
                tally.receive(client.mask(values[number], message))
                masked.append(number)
            else:
                tally.receive(getattr(client, stage)(message))
        if stage == "unmask":
            return masked
        tally.advance()


def demonstrate(out: Path, *, n_clients: int) -> dict[str, Any]:
    """Simulate people, collect three statistics, write the report; return its path and one answer.

    Raises
    ------
    ImportError
        matplotlib is not installed: nothing is written.
    """
    check.require("matplotlib", extra="plots")
    rng = np.random.default_rng(7)
    out.mkdir(parents=True, exist_ok=True)
    ages = np.clip(rng.normal(45, 17, n_clients), 18, 95)
    minutes = np.clip(rng.lognormal(3.3, 0.5, n_clients), 0, 239).astype(int)
    centre = rng.choice([0.3, 0.7], n_clients)
    places = np.stack([rng.normal(centre, 0.08), rng.normal(1 - centre, 0.08)], axis=1).clip(0, 1)
    rounds: dict[str, tuple[Encoding, list[Any], Callable[[Collected], Answer]]] = {
        "Ages": (Histogram(18, 96, cells=13), ages.tolist(), shares),
        "Minutes on the way": (Tree(0, 240), minutes.tolist(), quantile),
        "Places": (Grid(x=(0, 1), y=(0, 1), shape=(8, 8)), places.tolist(), heat_map),
    }
    answers: dict[str, Answer] = {}
    with Ledger(":memory:", budget=Budget(epsilon=10.0, delta=_DELTA, adaptive=False)) as ledger:
        for name, (encoding, values, answer_of) in rounds.items():
            sigma = sigma_for(encoding, epsilon=_EPSILON, delta=_DELTA)
            keys = tuple(Keeper.key(Identity.fresh()) for _ in range(3))
            least = min(100, len(values))
            task = Task(encoding, sigma=sigma, tally="0" * 64, keepers=keys, honest=2, least=least)
            tally, masked = simulated(task, values)
            sums = release(task.mechanism, masked, ledger=ledger)
            spent = ledger.spent().epsilon(delta=_DELTA)
            answers[name] = answer_of(Collected(record_of(tally, sums, epsilon=spent, delta=_DELTA)))
    page = environment().get_template("collect-demo.html.j2")
    pictures = {name: svg(answer.draw) for name, answer in answers.items()}
    text = page.render(n=n_clients, answers=answers, pictures=pictures, epsilon=spent, delta=_DELTA)
    (out / "report.html").write_text(text, encoding="utf-8")
    median = answers["Minutes on the way"].values
    return {
        "report": str(out / "report.html"),
        "median": median["value"],
        "low": median["low"],
        "high": median["high"],
        "epsilon": spent,
        "n_clients": n_clients,
    }


def simulated(task: Task, values: Sequence[Any]) -> tuple[Tally, Private]:
    """Run a round of a task with keys of its own, all roles in this process; return the tally and the sums.

    No key of the task is used: neither its rounds nor its ledger know of this one.
    """
    me, office = Identity.fresh(), None if task.enrolment is None else Identity.fresh()
    keepers = [Identity.fresh() for _ in task.keepers]
    trial = replace(
        task,
        tally=me.public_key,
        keepers=tuple(Keeper.key(identity) for identity in keepers),
        enrolment=None if office is None else office.public_key,
    )
    tally = Tally(trial, me, keepers=[Keeper(trial, identity) for identity in keepers])
    if trial.trust == "clients":
        among_clients(tally, values, enrolment=office)
    else:
        for value in values:
            client = Client(trial)
            if office is not None:
                client.certificate = certificate(trial, office, client.claim, round_=0)
            tally.receive(client.report(value))
    return tally, tally.close()


def invented(encoding: Encoding, n_clients: int, rng: np.random.Generator) -> list[Any]:
    """Return values of invented people that an encoding takes; some numbers lie outside of its range."""
    if isinstance(encoding, Grid):
        crowd = rng.choice([0.3, 0.7], n_clients)
        places = np.stack([rng.normal(crowd, 0.08), rng.normal(1 - crowd, 0.08)], axis=1)
        low, high = np.array([encoding.x, encoding.y]).T
        return list((low + places * (high - low)).tolist())
    if isinstance(encoding, Pairs | CountMin | CountSketch):
        items = encoding.items if isinstance(encoding, Pairs) else 1_000
        share = 1 / np.arange(1, items + 1)
        size = min(encoding.at_most, items)
        return [
            rng.choice(items, size, replace=False, p=share / share.sum()).tolist() for _ in range(n_clients)
        ]
    if isinstance(encoding, Histograms):
        return [
            list(person)
            for person in zip(
                *(invented(Histogram(*part), n_clients, rng) for part in encoding.parts), strict=True
            )
        ]
    if isinstance(encoding, Vector):
        directions = rng.normal(1.0, 1.0, (n_clients, encoding.cells))
        return list(encoding.clip * directions / np.sqrt((directions**2).sum(axis=1, keepdims=True)))
    if not isinstance(encoding, Tree | Histogram | Sum):
        raise ValueError(f"nobody is invented for a {type(encoding).__name__}: name a file of answers")  # noqa: TRY004
    width = encoding.high - encoding.low
    numbers = encoding.low + width * rng.lognormal(-1.2, 0.6, n_clients)
    if isinstance(encoding, Histogram) and encoding.low == 0 and width == encoding.cells:  # may be choices
        return list(np.minimum(numbers, encoding.cells - 1).astype(int).tolist())
    return list((numbers.astype(int) if isinstance(encoding, Tree) else numbers).tolist())
