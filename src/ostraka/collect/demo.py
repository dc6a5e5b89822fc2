"""``ostraka collect demo`` and ``simulate``: rounds of invented people in one process.

The demonstration writes a report of three rounds, with a map and a histogram.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.collect import estimate
from ostraka.collect.client import Client
from ostraka.collect.encodings import (
    CountMin,
    CountSketch,
    Grid,
    Histogram,
    Histograms,
    Pairs,
    Sum,
    Tree,
    Vector,
)
from ostraka.collect.keeper import Keeper
from ostraka.collect.messages import certificate
from ostraka.collect.plan import among_clients, sigma_for
from ostraka.collect.tally import Tally
from ostraka.collect.task import Task
from ostraka.core import check
from ostraka.core.door import release
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.secure.keys import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ostraka.collect.encodings import Encoding
    from ostraka.core.private import Private

_DELTA = 1e-6
_EPSILONS = {"ages": 1.0, "minutes": 1.0, "places": 1.0}


def run(out: Path, *, n_clients: int) -> dict[str, Any]:
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
    rounds: dict[str, tuple[Encoding, list[Any]]] = {
        "ages": (Histogram(18, 96, cells=13), ages.tolist()),
        "minutes": (Tree(0, 240), minutes.tolist()),
        "places": (Grid(x=(0, 1), y=(0, 1), shape=(8, 8)), places.tolist()),
    }
    with Ledger(":memory:", budget=Budget(epsilon=10.0, delta=_DELTA, adaptive=False)) as ledger:
        answers = {
            name: _round(encoding, values, name, ledger) for name, (encoding, values) in rounds.items()
        }
        spent = ledger.spent().epsilon(delta=_DELTA)
    task, sums = answers["minutes"]
    median = estimate.quantile(sums, task, 0.5, n_clients=n_clients)
    pictures = _pictures(answers)
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>ostraka collect: a demonstration</title>
<style>
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font-family: system-ui; }}
img {{ max-width: 100%; }}
</style>
<h1>Statistics of {n_clients} invented people</h1>
<p>Each person sent three masked reports. The tally added them up; three keepers took the masks away and
added noise, of which any two of them suffice. Nobody saw a value of anybody.</p>
<img alt="Left: a histogram of ages with intervals. Right: a map of two crowds."
 src="data:image/png;base64,{pictures}">
<p>Median time on the way: {median.value} minutes, between {median.low} and {median.high} with 95 %
confidence.</p>
<p>All three releases cost epsilon = {spent:.2f} at delta = {_DELTA:g}, for everything about one client.
Neighbours differ in the report of one client. All parties ran in one process, so this run kept nothing
secret from it.</p>
</html>
"""
    (out / "report.html").write_text(page, encoding="utf-8")
    return {
        "report": str(out / "report.html"),
        "median": median.value,
        "low": median.low,
        "high": median.high,
        "epsilon": spent,
        "n_clients": n_clients,
    }


def _round(encoding: Encoding, values: list[Any], name: str, ledger: Ledger) -> tuple[Task, np.ndarray]:
    sigma = sigma_for(encoding, epsilon=_EPSILONS[name], delta=_DELTA)
    keys = tuple(Keeper.key(Identity.fresh()) for _ in range(3))
    task = Task(encoding, sigma=sigma, tally="0" * 64, keepers=keys, honest=2, least=min(100, len(values)))
    tally, sums = simulated(task, values)
    return tally.task, release(task.mechanism, sums, ledger=ledger)


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
            list(one)
            for one in zip(
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


def _pictures(answers: dict[str, tuple[Task, np.ndarray]]) -> str:
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra)

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    bars, squares = figure.subplots(1, 2)
    task, sums = answers["ages"]
    middles = 18 + (np.arange(13) + 0.5) * 6
    margin = 1.96 * math.sqrt(task.variance(n_survivors=task.least))
    bars.bar(middles, sums, width=5.4, yerr=margin, color="#4477aa", ecolor="#222222")
    bars.set(xlabel="age", ylabel="people, with 95 % intervals", title="histogram")
    task, sums = answers["places"]
    image = squares.imshow(estimate.heat_map(sums, task).value.T, origin="lower", extent=(0, 1, 0, 1))
    squares.set(xlabel="x", ylabel="y", title="heat map")
    figure.colorbar(image, ax=squares, label="people")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return base64.b64encode(file.getvalue()).decode()
