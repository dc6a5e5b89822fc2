"""Evolution of texts: private documents vote for the nearest of public texts, which a language model varies.

The model never reads a document: its prompts are public, and so are the texts that it goes on with.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from ostraka.core import check
from ostraka.synth.evolution import Evolution
from ostraka.text.models import END, Token, text_of
from ostraka.text.writer import N_FEATURES, unit, word_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ostraka.text.models import LanguageModel

_SHOWN = 40  # likeliest next tokens that one is drawn from
_AT_ONCE = 512  # texts whose words are counted
_LINE_ENDS = b"\r\n"


def evolution(
    model: LanguageModel,
    *,
    prompt: str = "A text:",
    n_texts: int = 40,
    n_rounds: int = 5,
    n_tokens: int = 32,
    temperature: float = 1.0,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    random_state: int = 0,
) -> Evolution:
    """An :class:`~ostraka.synth.Evolution` whose candidates are lines of a language model.

    Parameters
    ----------
    model : LanguageModel
        Public: it sees the prompt and texts of its own.
    prompt : str
        What every line is written after. Public.
    n_texts, n_rounds : int
        Of the population. Public.
    n_tokens : int
        Most of a line.
    temperature : float > 0
        Of the model's draws.
    epsilon, delta : float
        Public. The price of all rounds, for one document (or one person) added or removed.
    random_state : int
        Of the lines, which are public.

    Returns
    -------
    Evolution
        Fit it on ``features(documents)``; ``sample`` draws lines by their noisy votes.

    Raises
    ------
    ValueError
        A setting out of range, or a model that does not answer.

    Notes
    -----
    A line is varied by writing it anew from a place on, which is drawn; one that is empty is written anew.

    Guarantees
    ----------
    Those of :class:`~ostraka.synth.Evolution`. A document votes by its own words: its features depend on no
    other document.
    Source: Xie et al. 2024, arXiv:2403.01749 (private evolution of texts); variations are ours.

    Examples
    --------
    >>> from ostraka.text import WordModel
    >>> model = WordModel(["warm", "cold", "rain", "sun"])
    >>> made = evolution(model, n_texts=8, n_rounds=4, n_tokens=2, epsilon=8.0)
    >>> made = made.fit(features(["warm sun"] * 300), rng=np.random.default_rng(0))
    >>> "sun" in made.sample(1, random_state=0)[0]
    True
    """
    check.integer(n_texts=n_texts, n_rounds=n_rounds, n_tokens=n_tokens, least=1)
    check.positive(temperature=temperature)
    how: dict[str, Any] = {"n_tokens": n_tokens, "temperature": temperature}

    def embed(lines: Any) -> np.ndarray:
        rows = features(lines)
        rows[~rows.any(axis=1)] = -1.0  # no document is near to a line without words
        return rows

    def vary(winners: Any, rng: np.random.Generator) -> np.ndarray:
        lines = []
        for winner in winners:
            tokens = model.tokens(str(winner))[:n_tokens]
            begin = tokens[: int(rng.integers(len(tokens)))] if tokens else []
            lines.append(continued(model, prompt, begin, rng=rng, **how))
        return np.array(lines)

    rng = np.random.default_rng(random_state)
    first = np.array([continued(model, prompt, [], rng=rng, **how) for _ in range(n_texts)])
    return Evolution(
        first,
        vary=vary,
        embed=embed,
        n_rounds=n_rounds,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        name=json.dumps([model.name, prompt, n_tokens, temperature]),
    )


def features(texts: Iterable[str]) -> np.ndarray:
    """One row of length 1 for each text, by its words alone; float32 of shape (n_texts, 4096)."""
    documents = [str(text) for text in texts]
    rows = np.empty((len(documents), N_FEATURES), dtype=np.float32)
    for first in range(0, len(documents), _AT_ONCE):  # in 64 bits, all of them would take thrice the room
        some = documents[first : first + _AT_ONCE]
        rows[first : first + _AT_ONCE] = [unit(counts) for counts in word_counts(some)]
    return rows


def continued(
    model: LanguageModel,
    prompt: str,
    tokens: Sequence[Token],
    *,
    n_tokens: int,
    temperature: float,
    rng: np.random.Generator,
) -> str:
    """One line of at most ``n_tokens`` tokens, which begins with ``tokens``; the others are drawn. Public.

    A line ends with its text, but not before it begins.

    Raises
    ------
    ValueError
        The model does not answer the prompt.
    """
    line = list(tokens)
    while len(line) < n_tokens:
        [answer] = model.next_tokens([prompt], line, shown=_SHOWN)
        if not answer:
            raise ValueError(f"the model does not answer the public prompt {prompt!r}: type another")
        places = list(answer) if line else [token for token in answer if not _ends(token)]
        if not places:
            break
        logs = np.array([answer[token] for token in places]) / temperature
        token = places[int(np.argmax(logs + rng.gumbel(size=logs.size)))]
        if _ends(token):
            break
        line.append(token)
    return text_of(line).strip()


def _ends(token: Token) -> bool:
    return token == END or any(byte in _LINE_ENDS for byte in token.piece)
