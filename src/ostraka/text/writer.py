"""Writer: texts from private documents, token by token, each drawn by what many documents make likely.

What comes in: documents with public classes, and a language model. What goes out: texts, or answers to
public questions. All tokens of a text are charged before its first is drawn; what is drawn is stored, and
never drawn again. Documents can be kept in a folder, for a service that answers questions. An audit plants a
document, and measures what each token tells of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.special import logsumexp

from ostraka.core import check, files
from ostraka.core.accounting.calibration import calibrate
from ostraka.core.door import check_promise, protected
from ostraka.core.ledger.budget import Budget
from ostraka.core.ledger.ledger import Ledger
from ostraka.core.mechanisms.selection import MeteredDraws, TokenDraw
from ostraka.core.private import Adjacency, Private
from ostraka.core.randomness import is_simulation, os_keyed
from ostraka.core.result import Result
from ostraka.data.units import numbered, partition
from ostraka.secure.log import Log
from ostraka.text.models import END, NextTokens, Token, open_model, text_of
from ostraka.voters.endpoint import EndpointError, ResponseCache
from ostraka.voters.prompts import check_fields, check_texts, class_indices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ostraka.text.models import LanguageModel

_LOG, _SECRET = "texts in the making", "secret"
_ENDS = b"\n"
NOT_PROTECTED = (
    "the number of documents of each class, which batch each is in, and the labels, which are public",
    "facts that many documents share",
)
N_FEATURES = 4096  # of a text by its words
FILE, STORE = "documents.json", "private.sqlite"  # of a folder with documents
_ONE_CLASS = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    r"""What the language model is asked. Public.

    Attributes
    ----------
    ask : str
        The end of every prompt; may have the field ``{label}``.
    document : str
        How a document stands before it; must have ``{document}``, and may have ``{label}``.
    examples : tuple of str
        Public texts that stand before everything, so that the model knows the kind of text.

    Raises
    ------
    ValueError
        A field is missing or unknown.

    Examples
    --------
    >>> prompt = Prompt(ask="A note about {label}:", document="A note about {label}: {document}\n")
    >>> print(prompt.of("tea", "Boil the water."))
    A note about tea: Boil the water.
    A note about tea:
    """

    ask: str = "A text about {label}:"
    document: str = "A text about {label}: {document}\n"
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields("ask of a prompt", self.ask, must=set(), may={"label"})
        check_fields("document of a prompt", self.document, must={"document"}, may={"label"})

    def of(self, label: str, document: str | None = None) -> str:
        """The whole prompt; without a document it is public."""
        shown = "".join(self.document.format(label=label, document=each) for each in self.examples)
        if document is not None:
            shown += self.document.format(label=label, document=document)
        return shown + self.ask.format(label=label)


QUESTION = Prompt(ask="Question: {label}\nAnswer:", document="{document}\n")  # {label}: the question


class Writer:
    """Write texts from private documents with a language model, at one price for one document left out.

    For each text a batch of documents of one class is taken. The model reads a public prompt, and one prompt
    for each document. The likeliest tokens of the public prompt are the candidates. What each document makes
    more or less likely is clipped, averaged and added; the token is drawn, and all prompts go on with it.

    Parameters
    ----------
    model : LanguageModel
        Such as :class:`~ostraka.text.LlamaCpp`. It **sees the private documents**.
    classes : sequence of str
        Public. What ``{label}`` stands for.
    n_documents : int, default 32
        Public. Documents of a batch; with fewer, the others are silent. The larger, the closer to the
        documents.
    n_tokens : int, default 32
        Public. The most tokens of a text.
    epsilon, delta : float
        The price of all texts of one call, from which the clip follows. Public.
    clip : float, optional
        The clip of :class:`~ostraka.text.TokenDraw` instead, nats. Public.
    temperature : float, default 1.0
    n_candidates : int, default 200
    shown : int, default 200
        How many of the likeliest tokens after a private prompt are read; a candidate that is not among them
        counts as the last of them. Endpoints show 20 or 50. Public.
    prompt : Prompt, optional
        Public. Of texts.
    asking : Prompt, optional
        Public. Of answers; its ``{label}`` is the question.
    features : callable(str) -> array, optional
        A public function of one text: what :meth:`answer` retrieves documents by. None: hashed words.
    relation : {"zero-out", "replace-one"}
        For one document that is left out, or replaced by any other of its class, at half of the clip.
    paid : int, optional
        Meter each document by itself: it may spend what so many draws of the whole range cost, and is silent
        then. With many documents most of them need little of it, so ``n_tokens`` may be several times larger.
        Public. None: every draw is paid in full, at the exact price.
    longest : int, default 2000
        Characters of a document that are read. Public.
    store : path, optional
        Private file, readable by its owner only: which document is in which batch, and the tokens of texts
        that are not finished. With it a run that was interrupted continues. None: in memory.
    response_cache : path, optional
        Private file that keeps what the model says, so that nothing is computed twice.
    progress : callable(stage: str, done: int, total: int), optional
        Called with the stage ``"tokens"``.

    Attributes
    ----------
    documents_ : list of str
        After :meth:`fit`. **Private.** What answers are written from: one for each unit.
    result_ : Result
        After :meth:`write`. Public.

    Guarantees
    ----------
    ``write`` is (epsilon, delta)-private for one document (or one person, with ``groups``) that is left out,
    or replaced, as ``relation`` says. Numbers of documents, labels and batches are public. Candidates,
    lengths, ends and whatever else steers depend on public values and on earlier tokens only. A document's
    numbers depend on this document and on earlier tokens only; one that the model refuses, or that is too
    long, counts nothing. All tokens of a text are charged before its first is drawn; tokens are stored as
    they are drawn and never drawn again, and a store that is lost is charged anew. Batches are disjoint, so
    many texts cost as much as the texts of one batch. **Nothing protects the documents from whoever runs the
    model.** Source: InvisibleInk 2025, arXiv:2507.02974; Amin et al. 2024, arXiv:2407.12108.

    Examples
    --------
    >>> from ostraka.text import WordModel
    >>> model = WordModel(["plot", "dull", "fine", "is", "the"])
    >>> writer = Writer(model, classes=["film"], n_documents=40, n_tokens=4, epsilon=50.0, delta=1e-5)
    >>> writer.fit(["the plot is fine"] * 40, ["film"] * 40).plan(1).uses
    4
    >>> [written] = writer.write(1, rng=np.random.default_rng(1))
    >>> written.label, len(written.text.split()) <= 4
    ('film', True)
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        classes: Sequence[str],
        n_documents: int = 32,
        n_tokens: int = 32,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        clip: float | None = None,
        temperature: float = 1.0,
        n_candidates: int = 200,
        shown: int = 200,
        prompt: Prompt | None = None,
        asking: Prompt = QUESTION,
        features: Callable[[str], np.ndarray] | None = None,
        relation: str = "zero-out",
        paid: int | None = None,
        longest: int = 2000,
        store: str | os.PathLike[str] | None = None,
        response_cache: str | os.PathLike[str] | None = None,
        progress: Callable[[str, int, int], object] | None = None,
    ) -> None:
        check.integer(
            n_documents=n_documents, n_tokens=n_tokens, n_candidates=n_candidates, shown=shown, least=1
        )
        check.integer(longest=longest, least=1)
        check.positive(epsilon=epsilon)
        check.delta(delta)
        self.model = model
        self.classes = tuple(map(str, classes))
        if not self.classes or len(set(self.classes)) < len(self.classes):
            raise ValueError("classes must be one or more, all different")
        self.n_documents, self.n_tokens = n_documents, n_tokens
        self.epsilon, self.delta, self.clip, self.temperature = epsilon, delta, clip, temperature
        self.n_candidates, self.shown = n_candidates, shown
        self.prompt, self.asking = prompt or Prompt(), asking
        self.features = features or hashed_words
        self.relation, self.paid, self.longest = relation, paid, longest
        self.store, self.response_cache, self.progress = store, response_cache, progress
        draw = self._draw(1.0 if clip is None else clip)
        if paid is not None:
            MeteredDraws(draw=draw, paid=paid)

    def __repr__(self) -> str:
        return f"Writer({self.model!r}, n_documents={self.n_documents}, n_tokens={self.n_tokens})"

    def fit(self, texts: Any, labels: Any, groups: Any = None) -> Self:
        """Deal the documents to batches. Nothing is asked and nothing is charged.

        Parameters
        ----------
        texts : sequence of str, length n_rows
            Private.
        labels : sequence, length n_rows
            Among ``classes``. The number of documents of each class is public.
        groups : array of shape (n_rows,), optional
            Private. Whom each row belongs to: the protected unit is then the person, whose texts of one
            class (the first of ``classes`` that the person has) stand in one prompt.

        Raises
        ------
        ValueError
            A label that is not declared, other lengths, or a store that others can read.
        """
        documents, codes = check_texts(texts), np.asarray(labels)
        if codes.shape != (len(documents),):
            raise ValueError(
                f"labels must be one for each of {len(documents)} texts, got shape {codes.shape}"
            )
        codes = np.array(class_indices(np.array([str(label) for label in codes.tolist()]), self.classes))
        if groups is not None and len(groups) != len(documents):
            raise ValueError(
                f"groups must name one person for each row: got {len(groups)} of {len(documents)}"
            )
        self.unit_ = "document" if groups is None else "person"
        units = np.arange(len(documents)) if groups is None else numbered(groups)[0]
        if self.store is not None and Path(self.store).exists() and Path(self.store).stat().st_mode & 0o077:
            raise ValueError(f"{self.store} is private, but others can read it: type chmod 600 {self.store}")
        self._log = Log(self.store, name=_LOG)
        self._secret = self._log.once(_SECRET, os.urandom(32))
        self._responses = None if self.response_cache is None else ResponseCache(self.response_cache)
        self._recent: tuple[str, dict[str, str | None]] = "", {}
        self._batches = [list(self._deal(documents, codes, units, code)) for code in range(len(self.classes))]
        self.documents_ = self._by_unit(units, documents)
        self._features: list[np.ndarray] | None = None  # of these, made by the first question
        return self

    def close(self) -> None:
        """Close the store and the cache."""
        if hasattr(self, "_log"):
            self._log.close()
            if self._responses is not None:
                self._responses.close()

    def plan(self, n: int) -> Plan:
        """What ``write(n)`` would cost: no model is asked, nothing is charged.

        Raises
        ------
        ValueError
            No clip reaches epsilon, or a class has no documents.
        """
        check.integer(n=n, least=1)
        batches = tuple(map(len, self._fitted()))
        if empty := [name for name, count in zip(self.classes, batches, strict=True) if not count]:
            raise ValueError(f"classes must have documents: there are none of {', '.join(empty)}")
        share, rest = divmod(n, len(self.classes))
        texts = tuple(share + (code < rest) for code in range(len(self.classes)))
        rounds = max(math.ceil(count / each) for count, each in zip(texts, batches, strict=True))
        uses = rounds * self.n_tokens
        draw = self._draw(self.clip if self.clip is not None else self._calibrated(uses))
        metered = None if self.paid is None else MeteredDraws(draw=draw, paid=min(self.paid, uses))
        whole = uses * draw.curve() if metered is None else metered.curve()
        return Plan(
            n_texts=texts,
            n_batches=batches,
            uses=uses,
            draw=draw,
            metered=metered,
            epsilon=whole.epsilon(self.delta),
            delta=self.delta,
            calls=n * self.n_tokens * (self.n_documents + 1),
        )

    def write(
        self,
        n: int,
        *,
        ledger: Ledger | None = None,
        rng: np.random.Generator | None = None,
        key: str = "texts",
    ) -> list[Written]:
        """Charge the whole, then write ``n`` texts, divided evenly among the classes.

        Parameters
        ----------
        n : int >= 1
            Public.
        ledger : Ledger, optional
            None: one in memory with exactly this budget.
        rng : numpy.random.Generator, optional
            For simulations only, which the ledger is then marked as.
        key : str
            Public. The same key, store and settings continue an interrupted run, or give its texts again, at
            no further price.

        Returns
        -------
        list of Written

        Raises
        ------
        BudgetExceeded
            Nothing was asked of private prompts, and nothing was charged.
        EndpointError
            The model does not answer the public prompt.
        """
        plan = self.plan(n)
        for label in self.classes:  # what can fail is tried before anything is charged
            self._public(self.prompt.of(label), [])
        paid, uses = (plan.draw, plan.uses) if plan.metered is None else (plan.metered, 1)
        shape = repr(plan.draw), repr(plan.metered), plan.n_texts, plan.n_batches
        name = f"{key} {self._digest_of(self.classes, repr(self.prompt), *shape)}"
        texts = self._paid(
            paid,
            uses,
            plan.draw,
            name=name,
            ledger=ledger,
            rng=rng,
            made=lambda noise: self._all(plan, name, noise),
        )
        self.result_ = Result(
            kind="write",
            settings={
                "unit": self.unit_,
                "relation": self.relation,
                "mechanism": repr(paid),
                "model": self.model.name,
                "classes": list(self.classes),
                "n_texts": sum(plan.n_texts),
                "n_documents": self.n_documents,
                "n_tokens": self.n_tokens,
                "draws_of_one_document": plan.uses,
            },
            upper={
                "epsilon": plan.epsilon,
                "delta": plan.delta,
                "curve": (uses * paid.curve()).to_dict(),
                "simulation": is_simulation(rng),
                "not_protected": list(NOT_PROTECTED),
            },
            notes=("The lower bound is missing: no audit was run.",),
        )
        return [Written(*each) for each in texts]

    def answer(
        self,
        question: str,
        *,
        retrieve: int,
        at: float,
        ledger: Ledger | None = None,
        rng: np.random.Generator | None = None,
    ) -> Answer:
        """Charge one answer, then write it from the documents that are near the question.

        Parameters
        ----------
        question : str
            Public. The same question with the same store and settings gives its answer again, at no further
            price.
        retrieve : int >= 1
            By how much the sum of the documents' differences is divided: about as many as you expect to be
            near. Public.
        at : float
            A document is near if the cosine between its features and those of the question is at least this.
            Public.
        ledger : Ledger, optional
            None: one in memory with exactly this budget.
        rng : numpy.random.Generator, optional
            For simulations only, which the ledger is then marked as.

        Raises
        ------
        BudgetExceeded
            Nothing was asked of private prompts, and nothing was charged.
        EndpointError
            The model does not answer the public prompt.
        ValueError
            With ``paid``: answers are paid in full.

        Guarantees
        ----------
        (epsilon, delta)-private for one document (or one person) that is left out, or replaced, for each
        question; questions add up in the ledger, whose exact composition allows that they depend on earlier
        answers. Whether a document is near depends on this document and on the question only. So one that is
        left out changes its own ballot and nobody else's, and a draw keeps the range of one ballot, however
        many documents are near. The ``k`` nearest would not do: with one left out the next moves up, which
        is two ballots. **How long an answer takes tells how many documents are near.** Proof: docs/text.md.

        Examples
        --------
        >>> from ostraka.text import WordModel
        >>> model = WordModel(["tea", "cold", "late", "is", "the"], weight=30.0)
        >>> writer = Writer(model, classes=["note"], n_tokens=3, epsilon=50.0)
        >>> writer = writer.fit(["the tea is cold"] * 30 + ["bus late"] * 30, ["note"] * 60)
        >>> answer = writer.answer("the tea is", retrieve=30, at=0.5, rng=np.random.default_rng(0))
        >>> answer.epsilon <= 50.0
        True
        """
        asked = self.question(question, retrieve=retrieve, at=at)
        text = self._paid(
            asked.draw, asked.uses, asked.draw, name=asked.name, ledger=ledger, rng=rng, made=asked.text
        )
        return Answer(text, (asked.uses * asked.draw.curve()).epsilon(self.delta))

    def question(self, question: str, *, retrieve: int, at: float) -> Question:
        """What :meth:`answer` would charge, and the answer after it; for services with ledgers of their own.

        Parameters and errors are those of :meth:`answer`. What can fail is tried here: the public prompt is
        asked, and the question's features are made. No document is read.
        """
        check.integer(retrieve=retrieve, least=1)
        check.finite(at=at)
        if self.paid is not None:
            raise ValueError("paid must be None for answers: each is paid in full")
        self._fitted()
        features = unit(self.features(question))
        self._public(self.asking.of(question), [])
        draw = self._draw(
            self.clip if self.clip is not None else self._calibrated(self.n_tokens, n_documents=retrieve),
            n_documents=retrieve,
        )
        name = f"answer {self._digest_of(question, at, repr(draw), repr(self.asking))}"

        def text(rng: np.random.Generator) -> str:
            documents = self._near(features, at)
            tokens = self._one(
                name,
                draw,
                lambda tokens: self._read(self.asking, question, documents, tokens, width=retrieve),
                meter=_Meter(None, self._log, name, 0),
                rng=rng,
            )
            return text_of(tokens).split("\n")[0].strip()

        nothing = Private(np.zeros(1, dtype=np.int64), self._adjacency(draw))
        return Question(name=name, draw=draw, uses=self.n_tokens, unit=protected(nothing), text=text)

    def estimate(self, n: int) -> dict[str, Any]:
        """The public numbers of :meth:`plan`, as plain values."""
        plan = self.plan(n)
        return {
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "texts": dict(zip(self.classes, plan.n_texts, strict=True)),
            "batches": dict(zip(self.classes, plan.n_batches, strict=True)),
            "draws_of_one_document": plan.uses,
            "clip": plan.draw.clip,
            "range": plan.draw.range,
            "prompts": plan.calls,
        }

    def score(self, texts: Any, labels: Any, *, plan: Plan) -> Score:
        """How well the draws of a plan would write other texts: bits per token under their exact law.

        **Not protected**: computed from the documents of the first batch of each class; for the owner only.

        Parameters
        ----------
        texts : sequence of str
            Texts that are not among the documents.
        labels : sequence
        plan : Plan
        """
        bits: list[list[float]] = []
        n_tokens = 0
        for text, label in zip(check_texts(texts), labels, strict=True):
            code = self.classes.index(str(label))
            tokens = [*self.model.tokens(text), END][: self.n_tokens]
            n_tokens += len(tokens)
            for place, token in zip(self.positions(tokens, code=code), tokens, strict=True):
                if token not in place.candidates:
                    continue
                k = place.candidates.index(token)
                counted = plan.draw.contributions(place.differences).sum(axis=0)
                laws = (  # the draw's, the public prompt's, and that without clipping
                    plan.draw.at(place.public).log_outcomes(counted),
                    place.public,
                    place.public + place.differences.mean(axis=0),
                )
                bits.append([float(np.logaddexp.reduce(law) - law[k]) / math.log(2) for law in laws])
        drawn, public, free = np.mean(bits, axis=0).tolist() if bits else (math.nan,) * 3
        return Score(drawn, public, free, n_tokens, len(bits) / n_tokens)

    def position(self, tokens: Sequence[Token], *, code: int = 0, batch: int = 0) -> Position:
        """Candidates, public log probabilities, and private differences after these tokens. For the owner."""
        documents = self._fitted()[code][batch]
        return self._read(self.prompt, self.classes[code], documents, tokens, width=self.n_documents)

    def positions(self, tokens: Sequence[Token], *, code: int = 0, batch: int = 0) -> list[Position]:
        """The same before each of these tokens, in one pass where the model has ``next_tokens_along``."""
        along = getattr(self.model, "next_tokens_along", None)
        if along is None:
            return [self.position(tokens[:t], code=code, batch=batch) for t in range(len(tokens))]
        label = self.classes[code]
        prompts = [self.prompt.of(label, document) for document in self._fitted()[code][batch]]
        shown = max(self.shown, self.n_candidates)
        [public] = zip(*along([self.prompt.of(label)], tokens[:-1], shown=shown), strict=True)
        answers = along(prompts, tokens[:-1], shown=shown)
        return [
            self._place(known, part)
            for known, part in zip(map(self._candidates, public), answers, strict=True)
        ]

    def differences(self, document: str, tokens: Sequence[Token], *, code: int = 0) -> np.ndarray:
        """What one document makes more or less likely after these tokens; shape (n_candidates,). Private."""
        label = self.classes[code]
        public = self._public(self.prompt.of(label), tokens)
        prompts = [self.prompt.of(label, document[: self.longest])]
        logs = np.array(list(public.values()))
        return self._differences(self._answers(prompts, tokens)[0], list(public), logs)

    # What steers: public values and earlier tokens only -----------------------------------------------------

    def _read(
        self, prompt: Prompt, label: str, documents: Sequence[str], tokens: Sequence[Token], *, width: int
    ) -> Position:
        """One place of a text, with the differences of these documents: ``width`` prompts at once."""
        asked = prompt.of(label)
        public = self._public(asked, tokens)
        answers: list[NextTokens | None] = []
        for start in range(0, len(documents), width):
            part = [prompt.of(label, document) for document in documents[start : start + width]]
            # a batch that is not full has public prompts, so that its shape is public
            answers += self._answers([*part, *[asked] * (width - len(part))], tokens)[: len(part)]
        return self._place(public, answers)

    def _place(self, public: NextTokens, answers: Sequence[NextTokens | None]) -> Position:
        candidates, logs = list(public), np.array(list(public.values()))
        rows = [self._differences(answer, candidates, logs) for answer in answers]
        return Position(candidates, logs, np.array(rows).reshape(len(rows), len(candidates)))

    def _public(self, asked: str, tokens: Sequence[Token]) -> NextTokens:
        """The candidates with their log probabilities after the public prompt, likeliest first."""
        [answer] = self._answers([asked], tokens)
        if not answer:
            raise EndpointError(
                f"{self.model!r} does not answer the public prompt: its address, its key and the name of the "
                "model must be right, and it must know logprobs"
            )
        return self._candidates(answer)

    def _candidates(self, answer: NextTokens) -> NextTokens:
        order = sorted(answer, key=lambda token: (-answer[token], token))[: self.n_candidates]
        return {token: answer[token] for token in order}

    def _draw(self, clip: float, *, n_documents: int | None = None) -> TokenDraw:
        return TokenDraw(
            clip=clip,
            n_documents=n_documents or self.n_documents,
            temperature=self.temperature,
            relation=self.relation,
        )

    def _calibrated(self, uses: int, *, n_documents: int | None = None) -> float:
        """The largest clip that keeps so many draws within epsilon."""

        def made(noise: float) -> TokenDraw | MeteredDraws:
            draw = self._draw(1 / noise, n_documents=n_documents)
            return draw if self.paid is None else MeteredDraws(draw=draw, paid=min(self.paid, uses))

        n = uses if self.paid is None else 1
        return 1 / calibrate(made, n_answers=n, epsilon=self.epsilon, delta=self.delta, precision=1e-4)

    def _adjacency(self, draw: TokenDraw) -> Adjacency:
        return Adjacency.vector(unit=self.unit_, linf=draw.promise.linf, relation=self.relation)

    def _differences(
        self, answer: NextTokens | None, candidates: list[Token], public: np.ndarray
    ) -> np.ndarray:
        """By how much a document makes candidates likelier; what is not shown counts as the last shown."""
        if not answer:  # refused, or too long: silent
            return np.zeros(len(candidates))
        shown = dict(sorted(answer.items(), key=lambda each: (-each[1], each[0]))[: self.shown])
        last = min(shown.values())
        own = np.array([shown.get(token, math.nan) for token in candidates])
        return np.where(np.isnan(own), np.minimum(last - public, 0.0), own - public)

    # Documents ----------------------------------------------------------------------------------------------

    def _fitted(self) -> list[list[list[str]]]:
        if not hasattr(self, "_batches"):
            raise ValueError("this Writer has no documents: call fit(texts, labels) first")
        return self._batches

    def _deal(
        self, documents: list[str], codes: np.ndarray, units: np.ndarray, code: int
    ) -> Iterator[list[str]]:
        """Disjoint batches of the units whose first class is this one; the secret decides the order."""
        first = np.full(int(units.max()) + 1, len(self.classes))
        np.minimum.at(first, units, codes)
        rows = np.flatnonzero((codes == code) & (first[units] == code))
        prompts = self._by_unit(units[rows], [documents[row] for row in rows.tolist()])
        if not prompts:
            return
        n_batches = max(1, len(prompts) // self.n_documents)
        manifest = partition(len(prompts), n_teachers=n_batches, key=self._keyed(f"deal {code}"))
        for batch in manifest.rows():
            ordered = batch[np.argsort(manifest.units[batch], kind="stable")]
            yield [prompts[row] for row in ordered[: self.n_documents].tolist()]

    def _by_unit(self, units: np.ndarray, documents: Sequence[str]) -> list[str]:
        """The documents of each unit as one text, in the order in which units occur."""
        texts: dict[int, list[str]] = {}
        for unit, document in zip(units.tolist(), documents, strict=True):
            texts.setdefault(unit, []).append(document)
        return ["\n".join(part)[: self.longest] for part in texts.values()]

    def _keyed(self, purpose: str) -> bytes:
        return hashlib.blake2b(purpose.encode(), key=self._secret, digest_size=32).digest()

    def _answers(self, prompts: list[str], tokens: Sequence[Token]) -> list[NextTokens | None]:
        """What the model says of each prompt, asked once."""
        written = json.dumps([[token.piece.hex(), token.number] for token in tokens])
        settings = json.dumps([self.model.name, max(self.shown, self.n_candidates), written])
        known: ResponseCache | dict[str, str | None]
        if self._responses is None:  # only those of this place are kept
            if self._recent[0] != settings:
                self._recent = settings, {}
            known, names = self._recent[1], prompts
        else:
            known, names = self._responses, [self._responses.name(settings, prompt) for prompt in prompts]
        if any(name not in known for name in names):
            # all of them, so that each prompt keeps its place in the model, whatever is known of others
            answers = self.model.next_tokens(prompts, tokens, shown=max(self.shown, self.n_candidates))
            packed = [
                None
                if answer is None
                else json.dumps([[token.piece.hex(), token.number, log] for token, log in answer.items()])
                for answer in answers
            ]
            fresh = dict(zip(names, packed, strict=True))
            if isinstance(known, dict):
                known.update(fresh)
            else:
                known.record(fresh.items())
        return [
            None
            if (stored := known[name]) is None
            else {Token(bytes.fromhex(piece), number): log for piece, number, log in json.loads(stored)}
            for name in names
        ]

    # Texts --------------------------------------------------------------------------------------------------

    def _digest_of(self, *settings: Any) -> str:
        """What a text depends on. Another store, or other documents, are charged anew."""
        mine = [self.model.name, self.n_tokens, self.n_candidates, self.shown, self.longest, self.unit_]
        documents = self._keyed(json.dumps([self._batches, self.documents_])).hex()
        return hashlib.sha256(json.dumps([*mine, documents, *settings]).encode()).hexdigest()[:32]

    def _near(self, asked: np.ndarray, at: float) -> list[str]:
        """The documents that are near a question, each by itself. Private."""
        if self._features is None:
            rows = [np.zeros(0)] * len(self.documents_)  # one without is near to nothing, and nobody is told
            for place, document in enumerate(self.documents_):
                with contextlib.suppress(Exception):  # its message may quote the document
                    rows[place] = unit(self.features(document))
            self._features = rows
        scores = [float(row @ asked) if row.shape == asked.shape else 0.0 for row in self._features]
        near = [score >= at for score in scores]
        return [document for document, is_near in zip(self.documents_, near, strict=True) if is_near]

    def _paid(
        self,
        paid: TokenDraw | MeteredDraws,
        uses: int,
        draw: TokenDraw,
        *,
        name: str,
        ledger: Ledger | None,
        rng: np.random.Generator | None,
        made: Callable[[np.random.Generator], Any],
    ) -> Any:
        """Charge under a key, and return what was made of it, now or before."""
        nothing = Private(np.zeros(1, dtype=np.int64), self._adjacency(draw))
        check_promise(draw, nothing)
        whole = (uses * paid.curve()).epsilon(self.delta)
        most = self.epsilon if self.clip is None else whole * (1 + 1e-9)
        own = ledger or Ledger(":memory:", budget=Budget(epsilon=most, delta=self.delta, adaptive=False))
        try:
            entry = own.charge(
                paid, uses=uses, unit=protected(nothing), simulation=is_simulation(rng), key=name
            )
            stored = own.answer(entry)
            if stored is None:
                content = json.dumps(made(os_keyed() if rng is None else rng))
                stored = own.record(entry, np.frombuffer(content.encode(), dtype=np.uint8))
        finally:
            if ledger is None:
                own.close()
        return json.loads(np.asarray(stored).tobytes())

    def _all(self, plan: Plan, name: str, rng: np.random.Generator) -> list[tuple[str, str]]:
        texts, total = [], sum(plan.n_texts) * self.n_tokens
        meters: dict[tuple[int, int], _Meter] = {}
        for code, label in enumerate(self.classes):
            for number in range(plan.n_texts[code]):
                batch = number % plan.n_batches[code]
                if (meter := meters.get((code, batch))) is None:
                    meter = _Meter(plan.metered, self._log, f"{name} {code} {batch}", self.n_documents)
                    meters[code, batch] = meter
                tokens = self._one(
                    f"{name} {code} {number}",
                    plan.draw,
                    partial(self.position, code=code, batch=batch),
                    meter=meter,
                    rng=rng,
                )
                texts.append((label, text_of(tokens).split("\n")[0].strip()))
                if self.progress is not None:
                    self.progress("tokens", len(texts) * self.n_tokens, total)
        return texts

    def _one(
        self,
        name: str,
        draw: TokenDraw,
        position: Callable[[list[Token]], Position],
        *,
        meter: _Meter,
        rng: np.random.Generator,
    ) -> list[Token]:
        """The tokens of one text: those that are stored, and then those that are drawn."""
        tokens: list[Token] = []
        for t in range(self.n_tokens):
            stored = self._log.get(f"{name} {t}")
            if stored is None:
                place = position(tokens)
                counted, spent = meter.admit(draw.contributions(place.differences))
                private = Private(counted.sum(axis=0), self._adjacency(draw))
                here = draw.at(place.public)
                check_promise(here, private)
                token = place.candidates[int(here.release(private, rng=rng)[0])]
                drawn = json.dumps([token.piece.hex(), token.number]).encode()
                # what was spent is stored with the token: no crash leaves one without the other
                *_, stored = self._log.once_each(
                    [*meter.entries(f"{name} {t}", spent), (f"{name} {t}", drawn)]
                )
            piece, number = json.loads(stored)
            tokens.append(Token(bytes.fromhex(piece), number))
            if not tokens[-1].piece or _ENDS in tokens[-1].piece:
                break
        return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What writing costs. Public.

    Attributes
    ----------
    n_texts : tuple of int
        For each class.
    n_batches : tuple of int
        Disjoint batches of documents of each class.
    uses : int
        Draws that one document may take part in.
    draw : TokenDraw
    metered : MeteredDraws or None
    epsilon, delta : float
        The price for one document, nats, and at which delta.
    calls : int
        Prompts that the model computes at most.
    """

    n_texts: tuple[int, ...]
    n_batches: tuple[int, ...]
    uses: int
    draw: TokenDraw
    metered: MeteredDraws | None
    epsilon: float
    delta: float
    calls: int


class Written(NamedTuple):
    """A text that may leave, and its class."""

    label: str
    text: str


class Answer(NamedTuple):
    """A text that may leave, and what it cost: the price for one document, nats, at the writer's delta."""

    text: str
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that can be charged and then answered. All but what ``text`` reads is public.

    Attributes
    ----------
    name : str
        Of the question with all settings and documents: what is charged under it is charged once.
    draw : TokenDraw
    uses : int
        Draws of one answer.
    unit : str
        Who is protected, for the ledger.
    text : callable(Generator) -> str
        The answer, which may be asked for after the charge only. Tokens that are stored are not drawn again.
    """

    name: str
    draw: TokenDraw
    uses: int
    unit: str
    text: Callable[[np.random.Generator], str]


class Score(NamedTuple):
    """Bits per token of texts, of those tokens that are candidates. **Not protected**: for the owner only."""

    bits: float  # under the exact law of the draws
    public: float  # by the public prompt alone
    without_privacy: float  # by the mean of differences that are not clipped
    n_tokens: int
    candidates: float  # the share of tokens that are candidates


class Position(NamedTuple):
    """One place of a text: all but the differences is public."""

    candidates: list[Token]
    public: np.ndarray  # (n_candidates,), nats
    differences: np.ndarray  # (n_documents, n_candidates), nats; a document that is silent is zero


class _Meter:
    """What each document of one batch has spent, in the private store. Nothing of it leaves."""

    def __init__(self, metered: MeteredDraws | None, log: Log, name: str, n_documents: int) -> None:
        self._metered, self._log, self._name = metered, log, name
        self._spent = np.zeros(n_documents)
        for key, body in log.entries() if metered is not None else ():
            if key is not None and key.startswith(f"spent {name} "):
                self._spent = np.maximum(self._spent, np.frombuffer(body))

    def admit(self, contributions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What documents count, and what they have spent after it."""
        if self._metered is None:
            return contributions, self._spent
        counted, spent = self._metered.admit(contributions, self._spent[: len(contributions)])
        return counted, np.concatenate([spent, self._spent[len(contributions) :]])

    def entries(self, name: str, spent: np.ndarray) -> list[tuple[str, bytes]]:
        """What is spent with a token, for the store."""
        if self._metered is None:
            return []
        self._spent = spent
        return [(f"spent {self._name} {name}", spent.tobytes())]


def hashed_words(text: str) -> np.ndarray:
    """Features of one text by its words alone, shape (4096,): each is counted in the place of its hash."""
    return np.asarray(word_counts([text])[0])


def word_counts(texts: Sequence[str]) -> np.ndarray:
    """The same of several texts, each by itself, shape (n_texts, 4096)."""
    return np.asarray(_hashing().transform(texts).toarray())


@lru_cache(maxsize=1)
def _hashing() -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer  # noqa: PLC0415

    return HashingVectorizer(n_features=N_FEATURES, alternate_sign=False, norm=None)


def unit(features: np.ndarray) -> np.ndarray:
    """Features of length 1; those that are all zero, or not finite, are near to nothing."""
    row = np.asarray(features, dtype=np.float64).ravel()
    with np.errstate(over="ignore"):  # no warning tells of a document
        length = float(np.sqrt(row @ row))
    return row / length if 0 < length < math.inf else np.zeros_like(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDocuments:
    """Documents, and how questions about them are answered; the documents are private.

    Attributes
    ----------
    documents : tuple of str
        Private. One of each unit: a person's are joined.
    unit : {"document", "person"}
    model : str
        As :func:`~ostraka.text.open_model` takes it; it reads the documents.
    threads : int
        Of a local model.
    retrieve, near : int, float
        ``retrieve`` and ``at`` of :meth:`~ostraka.text.Writer.answer`. Public.
    epsilon, delta : float
        The price of one answer. Public.
    n_tokens, temperature, relation
        As of :class:`~ostraka.text.Writer`. Public.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> saved = SavedDocuments(documents=("the tea was cold",), unit="document", model="smollm2", retrieve=8)
    >>> folder = Path(tempfile.mkdtemp()) / "documents"
    >>> saved.save(folder)
    >>> SavedDocuments.load(folder).retrieve
    8
    """

    documents: tuple[str, ...]
    unit: str
    model: str
    threads: int = 1
    retrieve: int = 32
    near: float = 0.4
    epsilon: float = 1.0
    delta: float = 1e-5
    n_tokens: int = 32
    temperature: float = 1.0
    relation: str = "zero-out"

    def __post_init__(self) -> None:
        check.one_of(unit=self.unit, allowed=("document", "person"))
        check.integer(retrieve=self.retrieve, threads=self.threads, least=1)
        check.finite(near=self.near)

    def save(self, folder: Path) -> None:
        """Write a folder, which only its owner can read. One that holds other documents is replaced."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(folder / FILE, json.dumps(asdict(self)), private=True)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a folder.

        Raises
        ------
        ValueError
            It was not written by :meth:`save`, or others can read it.
        """
        path = check.path(folder=folder) / FILE
        if path.stat().st_mode & 0o077:
            raise ValueError(f"{path} is private, but others can read it: type chmod 600 {path}")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(**content | {"documents": tuple(map(str, content["documents"]))})
        except (KeyError, TypeError, ValueError):  # its message may quote a document
            raise ValueError(f"{path} is not as 'ostraka write … --keep-documents' writes it") from None

    def writer(self, store: Path) -> Writer:
        """A writer of these documents, with its model; ``store`` keeps the tokens of unfinished answers.

        Raises
        ------
        ValueError
            There is no such model, or others can read the store.
        """
        made = Writer(
            open_model(self.model, n_threads=self.threads),
            classes=[_ONE_CLASS],
            n_documents=self.retrieve,
            n_tokens=self.n_tokens,
            epsilon=self.epsilon,
            delta=self.delta,
            temperature=self.temperature,
            relation=self.relation,
            store=store,
        )
        n = len(self.documents)
        return made.fit(
            self.documents, [_ONE_CLASS] * n, groups=np.arange(n) if self.unit == "person" else None
        )


class CanaryLeak(NamedTuple):
    """What a text tells of one document: exact divergences of the draws' laws, no sampling. For the owner.

    Attributes
    ----------
    divergence : float
        Rényi divergence of the given order, the larger direction, summed along the text, nats.
    price : float
        What the curve of these draws allows at this order.
    losses : array of shape (n_tokens,)
        The range of the loss of each draw: at most the range that is paid for.
    """

    divergence: float
    price: float
    losses: np.ndarray


def audit_canary(
    writer: Writer, canary: str, tokens: Sequence[Token], *, plan: Plan, code: int = 0, order: float = 8.0
) -> CanaryLeak:
    """Plant a document in the first batch of a class, and compare the law of each token with and without it.

    Parameters
    ----------
    writer : Writer
        With its documents.
    canary : str
        The document, such as a rare string many times. It takes the first place of the batch.
    tokens : sequence of Token
        A text along which the laws are compared: one that was written, or the canary itself.
    plan : Plan
        Of :meth:`Writer.plan`: says how tokens are drawn.
    code : int
        The class.
    order : float > 1
        Of the divergence.

    Guarantees
    ----------
    Exact for this document, these others and this text: a lower bound on what the mechanism may leak, and at
    most its price. A number above the price is a defect.

    Examples
    --------
    >>> from ostraka.text import WordModel, Writer
    >>> model = WordModel(["zebra", "quartz", "tea"])
    >>> writer = Writer(model, classes=["note"], n_documents=8, n_tokens=4, clip=1.0)
    >>> writer = writer.fit(["tea"] * 8, ["note"] * 8)
    >>> leak = audit_canary(writer, "zebra quartz " * 9, model.tokens("zebra quartz"), plan=writer.plan(1))
    >>> 0 < leak.divergence <= leak.price
    True
    """
    check.positive(order=order - 1)
    divergence, losses = np.zeros(2), []
    for t in range(len(tokens)):
        place = writer.position(tokens[:t], code=code)
        silent = plan.draw.contributions(place.differences)
        silent[0] = 0
        planted = silent.copy()
        planted[0] = plan.draw.contributions(writer.differences(canary, tokens[:t], code=code)[None])[0]
        draw = plan.draw.at(place.public)
        p, q = (draw.log_outcomes(contributions.sum(axis=0)) for contributions in (planted, silent))
        for direction, (a, b) in enumerate(((p, q), (q, p))):
            divergence[direction] += logsumexp(order * a + (1 - order) * b) / (order - 1)
        losses.append(float(np.ptp(p - q)))
    curve = plan.draw.curve()
    price = len(tokens) * float(np.interp(order, curve.orders[:-1], curve.rdp[:-1]))
    return CanaryLeak(float(divergence.max()), price, np.array(losses))
