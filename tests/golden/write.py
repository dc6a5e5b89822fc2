"""Write ``artefacts.zip``: files of one version, which every later one must load, resume and not pay again.

Run at the commit whose files are to be kept (``facts.json`` in the archive names it)::

    python -m tests.golden.write COMMIT

Files of before are never written again: a later format gets an archive of its own.
"""

import contextlib
import dataclasses
import json
import os
import pickle
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ostraka.mechanisms.guesses import AgainstGuesses
from ostraka.mechanisms.marginals import NoisyMarginals, TreeMarginals
from ostraka.mechanisms.protocols import payments
from ostraka.mechanisms.selection import Selection
from ostraka.mechanisms.skellam import SkellamSum
from ostraka.mechanisms.staged import StagedResponse
from ostraka.voters.features import FeatureCells
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from ostraka import Adjacency, Budget, Confident, GNMax, Ledger, LNMax, PATEClassifier, Private, Threshold
from ostraka.consistent import Consistent
from ostraka.ledger import ChargeRequest
from ostraka.mechanisms import (
    GaussianSums,
    NoisyCounts,
    OneHotGaussian,
    OneHotLaplace,
    PriorResponse,
    RandomizedResponse,
    SkellamMax,
    Subsampled,
    Weighted,
)
from ostraka.networks import TorchClassifier
from ostraka.pate import PATEFM
from ostraka.scores import Scores
from ostraka.students import Distilled, FixMatch
from ostraka.synth import PrivateKMeans
from ostraka.voters import (
    Endpoint,
    NeighbourVoter,
    PartyEnsemble,
    PromptEnsemble,
    QuantileCells,
    SavedTeachers,
    TeacherEnsemble,
    partition,
)

ARCHIVE = Path(__file__).parent / "artefacts.zip"
SPREAD = [[0.5, 0.3, 0.2]] * 4
MECHANISMS = [
    GNMax(sigma=20.0),
    LNMax(scale=15.0),
    Threshold(at=70.0, sigma=25.0),
    Threshold(at=70.0, sigma=25.0, noise="every"),
    Confident(screen=Threshold(at=70.0, sigma=25.0), argmax=GNMax(sigma=20.0)),
    Weighted(mechanism=GNMax(sigma=20.0), weight=2.0),
    Subsampled(mechanism=LNMax(scale=15.0), sampling_rate=0.1),
    Subsampled(mechanism=GNMax(sigma=15.0), sampling_rate=0.1),
    SkellamMax(sigma=20.0),
    SkellamSum(sigma=9.0, l1=1.0, l2=1.0),
    NoisyCounts(sigma=30.0),
    NoisyCounts(sigma=30.0, l2=16.0),
    AgainstGuesses(mechanism=GNMax(sigma=20.0), guesses=SPREAD, n_teachers=100),
    NoisyCounts(sigma=30.0, l2=8.0, relation="zero-out"),
    RandomizedResponse(n_classes=3, epsilon=0.7),
    PriorResponse(prior=SPREAD, epsilon=0.7),
    OneHotLaplace(n_classes=3, scale=3.0),
    OneHotGaussian(n_classes=3, sigma=2.0),
    StagedResponse(stage=[0, 1, 1], n_classes=3, epsilon=0.7, advise=None),
    GaussianSums(n_columns=6, sigma=4.0),
    NoisyMarginals(sizes=(3, 2, 2), columns=((0,), (0, 2)), sigma=5.0),
    TreeMarginals(sizes=(3, 2, 2), target=2, sigma_pairs=2.0, sigma_triples=3.0, select_epsilon=0.5),
    Selection(epsilon=0.8),
]

NETWORK = TorchClassifier(epochs=3, batch_size=8, learning_rate=0.01, n_threads=1)
ON_DISK = {"ledger": "fit.ledger", "manifest": "manifest.json", "random_state": 0}
QUICK = {"epsilon": 6.0, "delta": 1e-4, "classes": [0, 1, 2], "n_jobs": 1}
TEACHERS = {"way": "argmax", "n_teachers": 30, "n_answers": 12}
FITS = {
    "argmax": (PATEClassifier, {**QUICK, **TEACHERS, "student": "spreading"}),
    "screened": (
        PATEClassifier,
        {
            **QUICK,
            **TEACHERS,
            "estimator": make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=4)),
            "screen": Threshold(at=18.0, sigma=9.0),
            "student": Distilled("spreading", random_state=1),
            "asks": "random",
            "consistent": True,
        },
    ),
    "counts": (PATEClassifier, {**QUICK, "way": "counts", "cells": QuantileCells()}),
    "rounds": (
        PATEClassifier,
        {**QUICK, "way": "rounds", "cells": FeatureCells(FunctionTransformer(), n_features=4)},
    ),
    "patefm": (
        PATEFM,
        {
            **QUICK,
            "epsilon": 10.5,
            "estimator": FixMatch(NETWORK, threshold=0.8),
            "n_teachers": 8,
            "mechanism": GNMax(sigma=2.5),
            "screen": Threshold(at=5.0, sigma=3.0),
            "n_answers": 8,
            "n_queries": 14,
        },
    ),
}


def fitted(name, data, **changes):
    """The fit of this name in the present folder."""
    kind, settings = FITS[name]
    model = kind(**{**settings, **changes})
    options = {} if kind is PATEFM else {"X_public": data["X_public"]}
    return model.fit(data["X"], data["y"], **options)


def charges(path):
    """Key, mechanism and uses of each entry of a ledger, its head and its total."""
    with Ledger(path) as ledger:
        return {
            "head": ledger.head,
            "epsilon": ledger.epsilon(),
            "unit": ledger.unit,
            "entries": [[e.key, e.mechanism, e.uses, e.account] for e in ledger.entries()],
        }


def _points(rng, n_rows):
    y = rng.integers(0, 3, n_rows)
    return (np.eye(3, 4)[y] * 4 + rng.normal(size=(n_rows, 4))).astype(np.float32).astype(float), y


def _data():
    rng = np.random.default_rng(0)
    X, y = _points(rng, 300)
    return {"X": X, "y": y, "X_public": _points(rng, 80)[0], "X_new": _points(rng, 40)[0]}


def _fits(data):
    """Interrupted fits: after a charge, before the end. They go on in the folder of their ledger."""
    facts = {}
    for name in FITS:
        Path(name).mkdir()
        with contextlib.chdir(name):
            with contextlib.suppress(KeyboardInterrupt):
                fitted(name, data, **ON_DISK, progress=_stop_after(name))
                raise AssertionError(f"{name} was not interrupted")
            facts[name] = charges("fit.ledger")
            assert facts[name]["entries"], name
    return facts


def _stop_after(name):
    def stop(stage, done, _total):
        if (stage == "student") if name in {"counts", "screened"} else (stage == "answers" and done > 3):
            raise KeyboardInterrupt

    return stop


def _pickles(data):
    facts = {}
    for name in FITS:
        model = fitted(name, data, random_state=0)
        Path(f"{name}.pickle").write_bytes(pickle.dumps(model, protocol=4))
        Path(f"{name}.result.json").write_text(model.result_.to_json())
        predictions = model.predict(data["X_new"]).tolist()
        facts[name] = {"predictions": predictions, "plan": repr(model.plan_), "model": repr(model)}
    made = PrivateKMeans(n_clusters=3, epsilon=2.0, delta=1e-4).fit(data["X"])
    Path("synth.result.json").write_text(made.result_.to_json())
    return facts


def _ledgers():
    """A ledger of each kind of promise, with charges of every mechanism that is paid whole."""
    groups = {}
    for place, mechanism in enumerate(MECHANISMS):
        if len(payments(mechanism)) == 1:
            zero_out = getattr(mechanism, "relation", "") == "zero-out"
            groups.setdefault("zero-out" if zero_out else mechanism.curve().moves, []).append(place)
    facts = {}
    for group, places in {**groups, "ballot-adaptive": groups["ballot"]}.items():
        budget = Budget(epsilon=900.0, delta=1e-5, adaptive=group == "ballot-adaptive")
        with Ledger(f"{group}.ledger", budget=budget) as ledger:
            for place in places:
                unit = "row (zero-out)" if group == "zero-out" else "row"
                entry = ledger.charge(
                    MECHANISMS[place], uses=2, unit=unit, simulation=False, key=f"key {place}"
                )
                ledger.record(entry, np.array([place, 1]))
            if group.startswith("ballot"):
                ledger.grant("ann", budget_epsilon=1.0)
                cost = GNMax(sigma=40.0)
                ledger.charge_each(
                    [ChargeRequest(account="ann", key="k", digest="aa", cost=cost, reserve=cost, answer=1)]
                )
        facts[group] = charges(f"{group}.ledger")
    return facts


def _saved(data):
    X, y, questions = data["X"], data["y"], data["X_new"]
    numbers = {"columns": tuple("abcd"), "numeric": (True,) * 4, "grid": Consistent.grid_of(questions)}
    manifest = partition(len(X), n_teachers=10, key=b"sixteen bytes ok")

    def taught(estimator):
        ensemble = TeacherEnsemble(estimator, n_teachers=10, n_jobs=1, random_state=3)
        return ensemble.fit(X, y, classes=[0, 1, 2], manifest=manifest)

    parties = PartyEnsemble.in_process(
        LogisticRegression(), [(X[i::3], y[i::3]) for i in range(3)], classes=[0, 1, 2], sigma=1.0
    )
    apart = PartyEnsemble(
        dict.fromkeys(parties.parties, "http://127.0.0.1:1"),
        agreement=parties.agreement,
        identity=parties._identity,
    )
    prompts = PromptEnsemble(
        Endpoint("http://127.0.0.1:1/v1", retries=0), model="tiny", classes=["bad", "good"], n_teachers=8
    ).fit([f"text {n}" for n in range(8)], ["bad", "good"] * 4)
    voters = {
        "trees": taught(DecisionTreeClassifier(max_depth=3)),
        "lines": taught(make_pipeline(StandardScaler(), LogisticRegression())),
        "networks": taught(NETWORK),
        "neighbours": NeighbourVoter(k=20).fit(X, y, classes=[0, 1, 2]),
        "parties": apart,
        "prompts": prompts,
    }
    facts = {}
    for name, voter in voters.items():
        text = {"columns": ("text",), "numeric": (False,), "grid": {}}
        mechanism = parties.agreement.mechanism if name == "parties" else GNMax(sigma=3.0)
        if name == "neighbours":
            mechanism = Subsampled(mechanism=mechanism, sampling_rate=1.0)
        saved = SavedTeachers(ensemble=voter, mechanism=mechanism, **(text if name == "prompts" else numbers))
        facts[name] = {
            "sha256": saved.save(f"teachers-{name}"),
            "kind": saved.kind,
            "mechanism": repr(mechanism),
        }
        if name in {"trees", "lines", "networks"}:
            facts[name]["predictions"] = voter.predictions(questions).tolist()
    return facts


def _values(data):
    """Reprs, scores and manifests."""
    manifests = {
        "rows": partition(50, n_teachers=5, key=b"sixteen bytes ok"),
        "rows-1": partition(50, n_teachers=5, key=b"sixteen bytes ok", version=1),
        "persons": partition([f"p{n // 3}" for n in range(30)], n_teachers=4, key=b"sixteen bytes ok"),
    }
    for name, manifest in manifests.items():
        Path(f"{name}.manifest.json").write_text(manifest.to_json())
    scores = Scores.of(members=[0.9, 0.8, 0.8, 0.1], others=[0.8, 0.2, 0.1, 0.0])
    np.savez("scores.npz", **dataclasses.asdict(scores))
    votes = Private(np.array([[60.0, 30.0, 10.0]]), Adjacency.one_ballot())
    Path("values.pickle").write_bytes(
        pickle.dumps([*MECHANISMS, GNMax(sigma=20.0).curve(), scores, votes.adjacency], protocol=4)
    )
    return {
        "mechanisms": [repr(m) for m in MECHANISMS],
        "epsilons": [m.curve().epsilon(delta=1e-5) for m in MECHANISMS],
        "manifests": {name: manifest.sha256 for name, manifest in manifests.items()},
        "others": [
            repr(Budget(epsilon=2.0, delta=1e-5, adaptive=False)),
            repr(Adjacency.one_ballot()),
            repr(scores),
        ],
    }


def main(commit):
    """Write the archive."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        data = _data()
        np.savez("data.npz", **data)
        facts = {
            "commit": commit,
            "versions": {name: version(name) for name in ("numpy", "scikit-learn", "joblib", "torch")},
            "fits": _fits(data),
            "pickles": _pickles(data),
            "ledgers": _ledgers(),
            "teachers": _saved(data),
            "values": _values(data),
        }
        Path("facts.json").write_text(json.dumps(facts, indent=1))
        with zipfile.ZipFile(ARCHIVE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(path for path in Path().rglob("*") if path.is_file()):
                archive.writestr(zipfile.ZipInfo(os.fspath(path)), path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main(sys.argv[1])
