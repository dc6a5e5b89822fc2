"""RMIA and LiRA by their authors' programs, and our scores, on the same networks in one run.

::

    git clone https://github.com/privacytrustlab/ml_privacy_meter /tmp/meter
    git clone https://github.com/tensorflow/privacy /tmp/lira
    python -m bench.peers.membership /tmp/meter /tmp/lira/research/mi_lira_2021 [NAME ...]

Needs what ostraka's extras ``torch`` and ``plots`` bring, and nothing else of theirs. Networks with one
hidden layer train in pairs, as the privacy meter's do: a row is in one of both. Each of four targets has the
networks of the other pairs as references, each row in half of them. A fifth of the rows is the meter's
population, which trains nothing. ``audit_models`` of the meter attacks, and tunes its constant by the
target's pair; ``generate_ours`` of LiRA is its online attack. AUC, and true positives at 1 and 0.1 %, by the
meter's ``compute_attack_results`` for all of them, as means of targets.
"""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
import time
from typing import Any

import numpy as np

from bench import membership
from ostraka.attacks import ReferenceModels
from ostraka.networks import TorchClassifier

PAIRS, TARGETS = (3, 5, 9), 4  # so many pairs: two fewer references than networks


def networks(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidences of the true label, (networks, rows), in which network a row was, and the population's."""
    X, y = getattr(membership, name)()
    _, first = np.unique(X, axis=0, return_index=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(np.sort(first))
    population, rows = order[: len(order) // 5], order[len(order) // 5 :]
    shared = np.isin(y[population], np.unique(y[rows]))
    population = population[shared]
    inside: list[np.ndarray] = []
    says: list[list[np.ndarray]] = []
    start = time.process_time()
    for pair in range(max(PAIRS)):
        half = rng.permutation(np.arange(len(rows)) % 2 == 0)
        for member in (half, ~half):
            model = TorchClassifier(
                membership.network,
                epochs=membership.EPOCHS[name],
                batch_size=membership.BATCH,
                n_threads=1,
                random_state=len(inside),
            ).fit(X[rows[member]], y[rows[member]])
            inside.append(member)
            says.append(
                [model.predict_proba(X[part])[np.arange(len(part)), codes(model, y[part])]
                 for part in (rows, population)]
            )  # fmt: skip
        print(f"{name}: pair {pair + 1} of {max(PAIRS)}", file=sys.stderr, flush=True)
    print(f"\n{name}: {len(rows):,} rows, {len(inside)} networks in {time.process_time() - start:.0f} s")
    return np.array([part[0] for part in says]), np.array(inside), np.array([part[1] for part in says])


def codes(model: Any, labels: np.ndarray) -> np.ndarray:
    """Places of labels among a model's classes."""
    return np.searchsorted(model.classes_, labels)


def main(meter: str, lira: str, *names: str) -> None:
    """Each data set, each number of references."""
    sys.path[:0] = [meter, lira]
    audit, plot = importlib.import_module("audit"), importlib.import_module("plot")
    quiet = logging.getLogger("meter")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    for name in names or ("trec", "adult"):
        confidences, inside, population = networks(name)
        for pairs in PAIRS:
            n = 2 * pairs
            with tempfile.TemporaryDirectory() as folder:
                rmia, _ = audit.audit_models(
                    folder,
                    list(range(TARGETS)),
                    confidences[:n].T,
                    population[:n].T,
                    inside[:n],
                    pairs - 1,
                    quiet,
                    {"audit": {"algorithm": "RMIA"}},
                )
            statistics: dict[str, list[np.ndarray]] = {"RMIA, privacy meter": list(rmia)}
            for target in range(TARGETS):
                others = [place for place in range(n) if place // 2 != target // 2]
                logits = np.log(confidences + 1e-45) - np.log1p(-np.minimum(confidences, 1 - 1e-16))
                for label, fixed in (("LiRA, authors", False), ("LiRA, authors, one variance", True)):
                    found, _ = plot.generate_ours(
                        inside[others], logits[others][..., None], inside[[target]],
                        logits[[target]][..., None], fix_variance=fixed,
                    )  # fmt: skip
                    statistics.setdefault(label, []).append(-np.array(found))
                references = ReferenceModels.from_confidences(confidences[others], inside[others])
                for method in ("hierarchical", "rmia", "lira", "lira-fixed", "student-t"):
                    found = references.statistics(confidences[target], method=method)
                    statistics.setdefault(f"ours, {method}", []).append(found)
            print(f"  {len(others)} references, each row in half of them")
            for label, all_found in statistics.items():
                results = [
                    audit.compute_attack_results(found, inside[target])
                    for target, found in enumerate(all_found)
                ]
                means = [np.mean([r[key] for r in results]) for key in ("auc", "one_fpr", "one_tenth_fpr")]
                print(
                    f"    {label}: AUC {means[0]:.3f}, TPR at 1 % {means[1]:.1%}, at 0.1 % {means[2]:.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
