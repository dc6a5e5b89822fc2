"""Teachers: 250 networks trained together, against one after another with the same number of threads.

Each has 240 rows of MNIST, batches of 16, and Adam. One after another is done twice: by our own
``TorchClassifier``, and by the shortest loop that torch allows. The best rival is torch with all weights
stacked by hand and one fused Adam, in stacks of several sizes; ``python -m bench.teachers stacked`` compares
with that alone. All train from the same shards in one run, ours before and after the others, so that the
machine's mood cancels. Times are of whole fits: seconds on the wall, and seconds of all threads together,
which a busy machine changes less. What the first training of a process costs, whosever it is, is not in them,
but printed: torch imports half of itself for its first optimizer, and our code is compiled or read from the
disk.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

from bench._mnist import mnist
from ostraka import TeacherEnsemble
from ostraka.nets import generative as architectures
from ostraka.nets import vectorised as planning
from ostraka.nets.training import threads
from ostraka.networks import TorchClassifier
from ostraka.voters import count_votes, partition

if TYPE_CHECKING:
    from collections.abc import Callable

TEACHERS, BATCH, RATE = 250, 16, 2e-3
KEY = b"no secret: figures are to come again"
EPOCHS, STACKED, REPEATS, ONLY_STACKED = 10, 250, 2, False
QUICK = {"EPOCHS": 1, "STACKED": 6, "REPEATS": 1, "ONLY_STACKED": True}
AS_ONE = 2**40  # bytes: all teachers in one stack


def tanh_perceptron(n_features: int, n_classes: int) -> nn.Module:
    """A perceptron that is not compiled: it trains in stacks."""
    return nn.Sequential(nn.Linear(n_features, 64), nn.Tanh(), nn.Linear(64, n_classes))


def small_convolutional(n_features: int, n_classes: int) -> nn.Module:
    """Two convolutions, of 4 and 8 channels."""
    return architectures.convolutional(n_features, n_classes, width=4)


def shortest(module: nn.Module, X: np.ndarray, y: np.ndarray, *, epochs: int, fused: bool) -> nn.Module:
    """Train with the loop of torch's tutorial, without the parts that are not needed."""
    rows, labels = torch.as_tensor(X), torch.as_tensor(y)
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE, fused=fused)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(rows[batch]), labels[batch]).backward()
            optimizer.step()
    return module


def hand_stacked(X: np.ndarray, y: np.ndarray, public: np.ndarray, *, epochs: int, size: int) -> np.ndarray:
    """Ballots of perceptrons 784-64-10 in plain torch, ``size`` at a time; X is (n_teachers, n_rows, 784)."""
    ballots = []
    for start in range(0, len(X), size):
        rows, labels = torch.as_tensor(X[start : start + size]), torch.as_tensor(y[start : start + size])
        many, n_rows, n_features = rows.shape
        weights = [
            ((2 * torch.rand(shape) - 1) / bound**0.5).requires_grad_()
            for shape, bound in (
                ((many, n_features, 64), n_features),
                ((many, 1, 64), n_features),
                ((many, 64, 10), 64),
                ((many, 1, 10), 64),
            )
        ]
        optimizer = torch.optim.Adam(weights, lr=RATE, fused=True)
        every = torch.arange(many)[:, None]
        for _ in range(epochs):
            for batch in torch.rand(many, n_rows).argsort(dim=1).split(BATCH, dim=1):
                hidden = torch.relu(torch.baddbmm(weights[1], rows[every, batch], weights[0]))
                logits = torch.baddbmm(weights[3], hidden, weights[2])
                loss = nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels[every, batch].flatten(), reduction="sum"
                )
                optimizer.zero_grad()
                (loss / BATCH).backward()
                optimizer.step()
        with torch.no_grad():
            new = torch.as_tensor(public).expand(many, *public.shape)
            hidden = torch.relu(torch.baddbmm(weights[1], new, weights[0]))
            ballots.append(torch.baddbmm(weights[3], hidden, weights[2]).argmax(dim=2).numpy())
    return np.concatenate(ballots)


def clock() -> np.ndarray:
    """Return wall time, and processor time of all threads together."""
    return np.array([time.perf_counter(), time.process_time()])


class Case:
    """One kind of network, and the shards it learns from."""

    def __init__(self, network: TorchClassifier) -> None:
        self.private, _, self.public = mnist()  # a thousand images: 250 opinions on each take long enough
        self.dealt = partition(len(self.private.y), n_teachers=TEACHERS, key=KEY)
        self.network = network

    def warm_up(self) -> None:
        """Two teachers, and how long they took."""
        start = clock()
        rows = slice(2 * BATCH)
        network = clone(self.network).set_params(epochs=1)
        TeacherEnsemble(network, n_teachers=2).fit(
            self.private.X[rows], self.private.y[rows], classes=range(10)
        )
        print(f"  {'first use':36} {(clock() - start)[0]:6.1f} s, once a process", flush=True)

    def together(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds for all teachers, and their ballots on the public rows."""
        ensemble = TeacherEnsemble(self.network, n_teachers=TEACHERS, random_state=1)
        start = clock()
        ensemble.fit(self.private.X, self.private.y, classes=range(10), manifest=self.dealt)
        return clock() - start, ensemble.predictions(self.public.X)

    def one_by_one(
        self, train: Callable[[np.ndarray, np.ndarray, int], nn.Module], *, teachers: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train this many teachers one by one, and return the seconds that all would take."""
        spent, ballots = np.zeros(2), []
        with threads(self.network.n_threads):
            for number, rows in enumerate(self.dealt.rows()[:teachers]):
                X, y = self.private.X[rows], self.private.y[rows]
                start = clock()
                module = train(X, y, number)
                spent += clock() - start
                with torch.no_grad():
                    ballots.append(module(torch.as_tensor(self.public.X)).argmax(dim=1).numpy())
        return spent * TEACHERS / teachers, np.array(ballots)

    def said(self, ballots: np.ndarray) -> str:
        """Describe the teachers' accuracy."""
        right = (ballots == self.public.y).mean()
        plurality = count_votes(ballots, n_classes=10).argmax(axis=1)
        return (
            f"mean teacher {right:.4f}, plurality of {len(ballots)} {(plurality == self.public.y).mean():.4f}"
        )


def compare(network: TorchClassifier, *, teachers: int) -> None:
    """Print seconds, ratios and accuracies."""
    case = Case(network)
    case.warm_up()

    def ours_alone(X: np.ndarray, y: np.ndarray, number: int) -> nn.Module:
        module: nn.Module = clone(network).set_params(random_state=number).fit(X, y).module_
        return module

    def plainest(X: np.ndarray, y: np.ndarray, number: int, *, fused: bool = False) -> nn.Module:
        return shortest(
            network.new_module(n_features=784, n_classes=10, seed=number),
            X,
            y,
            epochs=network.epochs,
            fused=fused,
        )

    plan = planning.plan(network, n_features=784, n_classes=10)
    first, ballots = case.together()
    others = {
        "TorchClassifier, one after another": ours_alone,
        "shortest loop, one after another": plainest,
        "shortest loop, Adam fused": lambda X, y, number: plainest(X, y, number, fused=True),
    }
    rivals = {name: case.one_by_one(train, teachers=teachers) for name, train in others.items()}
    again, _ = case.together()
    ours = (first + again) / 2
    name = "together, compiled" if plan.compiled else f"together, in stacks of {plan.size}"
    print(f"  {name:36} {ours[0]:6.1f} s, {ours[1]:6.1f} s of threads  {case.said(ballots)}")
    print(f"  {'the same teachers as below':36} {case.said(ballots[:teachers])}")
    for name, (seconds, cast) in rivals.items():
        wall, cpu = seconds / ours
        took = f"{seconds[0]:6.1f} s, {seconds[1]:6.1f} s of threads"
        print(f"  {name:36} {took}: {wall:.1f} and {cpu:.1f} times as long  {case.said(cast)}", flush=True)


def against_stacks(n_threads: int, *, teachers: int = TEACHERS, epochs: int = 10, repeats: int = 2) -> None:
    """Compiled teachers against the best rival, in turns, by seconds of all threads together."""
    network = TorchClassifier(
        epochs=epochs, n_threads=n_threads, batch_size=BATCH, learning_rate=RATE, device="cpu"
    )
    case = Case(network)
    case.warm_up()
    rows = np.array([shard[: 60_000 // TEACHERS] for shard in case.dealt.rows()[:teachers]])
    X, y = case.private.X[rows], case.private.y[rows]
    chosen = rows.ravel()
    dealt = partition(np.repeat(np.arange(teachers), rows.shape[1]), n_teachers=teachers, key=KEY)
    ours, others = np.zeros(2), {size: np.zeros(2) for size in (10, 25, 50, teachers)}
    for _ in range(repeats):
        ensemble = TeacherEnsemble(network, n_teachers=teachers, random_state=1)
        people = np.repeat(np.arange(teachers), rows.shape[1])
        start = clock()
        ensemble.fit(
            case.private.X[chosen], case.private.y[chosen], people, classes=range(10), manifest=dealt
        )
        ours += (clock() - start) / repeats
        for size, spent in others.items():
            with threads(n_threads):
                start = clock()
                hand_stacked(X, y, case.public.X[:0], epochs=epochs, size=size)
                others[size] = spent + (clock() - start) / repeats
    print(f"  {teachers} teachers compiled: {ours[0]:.2f} s, {ours[1]:.2f} s of threads", flush=True)
    for size, spent in others.items():
        wall, cpu = spent / ours
        print(
            f"  stacked by hand, {size} at a time: {spent[0]:.2f} s, {spent[1]:.2f} s of threads: "
            f"{wall:.1f} and {cpu:.1f} times as long",
            flush=True,
        )
    with threads(n_threads):
        ballots = hand_stacked(X, y, case.public.X, epochs=epochs, size=25)
    print(f"  ours {case.said(ensemble.predictions(case.public.X))}; by hand {case.said(ballots)}")


def sizes(network: TorchClassifier) -> None:
    """Seconds by how many teachers are in a stack."""
    case, before = Case(network), planning._IN_CACHE  # noqa: SLF001
    try:
        for size in (1, 5, 10, 25, 50, TEACHERS):
            planning._IN_CACHE = 815_000 * size  # noqa: SLF001  (a 784-64-10 network with its batch)
            plan_size = planning.plan(network, n_features=784, n_classes=10).size
            print(
                f"  {size:4} in a stack (found: {plan_size}): {case.together()[0][1]:6.1f} s of threads",
                flush=True,
            )
    finally:
        planning._IN_CACHE = before  # noqa: SLF001


def main() -> None:
    """MLPs on one thread and on all cores, and what is not compiled: MLPs in stacks, small convolutions."""
    torch.manual_seed(0)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    settings = {"batch_size": BATCH, "learning_rate": RATE, "device": "cpu"}
    for n_threads in range(1, cores + 1):
        print(
            f"784-64-10, ReLU, {EPOCHS} epochs, against plain torch, threads: {n_threads}",
            flush=True,
        )
        against_stacks(n_threads, teachers=STACKED, epochs=EPOCHS, repeats=REPEATS)
    if ONLY_STACKED:
        return
    for n_threads in range(1, cores + 1):
        print(f"784-64-10, ReLU, {EPOCHS} epochs, threads: {n_threads}", flush=True)
        compare(TorchClassifier(epochs=EPOCHS, n_threads=n_threads, **settings), teachers=60)
    print(f"784-64-10, tanh, {EPOCHS} epochs, one thread", flush=True)
    compare(TorchClassifier(tanh_perceptron, epochs=EPOCHS, n_threads=1, **settings), teachers=60)
    print("784-64-10, tanh, 3 epochs, one thread, by the size of stacks", flush=True)
    sizes(TorchClassifier(tanh_perceptron, epochs=3, n_threads=1, **settings))
    print("convolutional, 4 and 8 channels, 2 epochs, one thread", flush=True)
    compare(TorchClassifier(small_convolutional, epochs=2, n_threads=1, **settings), teachers=30)


if __name__ == "__main__":
    ONLY_STACKED = "stacked" in sys.argv
    main()
