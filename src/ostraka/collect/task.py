"""The task: everything public about a collection, in one canonical form that every message is bound to.

Its question says what people are asked, by whom, why, and what their answer costs them.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from ostraka.collect.encodings import Encoding, Histogram, read, written
from ostraka.collect.validity import TIMES, Form, form_of
from ostraka.core import check
from ostraka.core.mechanisms.skellam import SkellamSum
from ostraka.secure.agreement import canonical

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Z]{2})?")
_LONGEST = 2_000  # letters of one text
_MOST_CHOICES = 1_000
_TEXTS = ("text", "title", "purpose", "unit")
_VERSION = 1
_WITH_QUESTION = 2  # the version of tasks that have one; others keep the form, and the fingerprint, of before
_CHECKED = 3  # the version of tasks whose reports are checked
_LEAST = 3  # of two, each would know the other's vector from the sum
_MOST_KEEPERS = 100
_MOST_CLIENTS = 100_000_000
_MOST_OPENED = 2**28
_MOST_MASKING_CLIENTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The words of a collection, in one language or several, and what it promises.

    Parameters
    ----------
    text, title, purpose : mapping of str to str
        By language (``"en"``, ``"de"``, ``"pt-BR"``): the question, the heading, what the answers are for.
    controller, contact : str
        Who is responsible, and how to reach them.
    epsilon, series : float > 0, nats
        The most that one round and all rounds of the task cost one client, at ``delta``. A task is refused
        whose rounds cost more.
    delta : float in (0, 1)
    unit : mapping of str to str, default empty
        What a number counts, by language: ``{"en": "minutes"}``.
    choices : mapping of str to sequence of str, default empty
        The answers to choose from, by language. Then an answer is the number of a choice, from 0, and the
        task's encoding is ``Histogram(0, n, cells=n)``. Empty: the answer is what the encoding takes.
    keep_days : int >= 0, default 0
        After so many days the controller promises to delete masked messages; nothing here does it.
    protects : {"client"}
        The unit of protection: everything that one client answers.

    Raises
    ------
    ValueError
        A text that is empty, too long or lacks a language; choices that are fewer than two or equal.

    Examples
    --------
    >>> question = Question(
    ...     text={"en": "How do you get to work?"}, title={"en": "Ways to work"},
    ...     purpose={"en": "To plan bus lines."}, controller="City of Example", contact="data@example.org",
    ...     choices={"en": ["by bus", "by bicycle", "on foot"]}, epsilon=1.0, series=1.0, delta=1e-6)
    >>> question.number("by bicycle"), question.languages
    (1, ('en',))
    """

    text: Mapping[str, str]
    title: Mapping[str, str]
    purpose: Mapping[str, str]
    controller: str
    contact: str
    epsilon: float
    series: float
    delta: float
    unit: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    keep_days: int = 0
    protects: str = "client"

    def __post_init__(self) -> None:
        for name in _TEXTS:
            by_language = getattr(self, name)
            if not isinstance(by_language, Mapping) or not (by_language or name == "unit"):
                raise ValueError(f"{name} must have a text for each language, such as {{'en': '…'}}")
            for language, text in by_language.items():
                if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
                    raise ValueError(f"{name}: a language must be written as en, de or pt-BR")
                _is_text(name, text)
            object.__setattr__(self, name, dict(getattr(self, name)))
        languages = self.text.keys()
        for name in ("title", "purpose", "unit", "choices"):
            texts = getattr(self, name)
            if not isinstance(texts, Mapping) or (texts and texts.keys() != languages):
                raise ValueError(
                    f"{name} must be there in the languages of the question: {', '.join(languages)}"
                )
        _is_text("controller", self.controller)
        _is_text("contact", self.contact)
        check.positive(epsilon=self.epsilon, series=self.series)
        check.delta(self.delta)
        check.integer(keep_days=self.keep_days, least=0)
        check.one_of(protects=self.protects, allowed=("client",))
        if self.series < self.epsilon:
            raise ValueError("series must not be below epsilon: all rounds cost at least what one costs")
        for choices in self.choices.values():
            if not isinstance(choices, list | tuple) or not 2 <= len(choices) <= _MOST_CHOICES:
                raise ValueError(f"choices must be 2 to {_MOST_CHOICES:,} texts in each language")
            for choice in choices:
                _is_text("a choice", choice)
        numbers = {len(choices) for choices in self.choices.values()}
        if len(numbers) > 1 or any(len(set(choices)) < len(choices) for choices in self.choices.values()):
            raise ValueError("choices must be as many in each language, and differ")
        choices = {language: tuple(texts) for language, texts in self.choices.items()}
        object.__setattr__(self, "choices", choices)
        for name in ("epsilon", "series", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages in which it is asked, in alphabetical order."""
        return tuple(sorted(self.text))

    @property
    def n_choices(self) -> int:
        """How many answers there are to choose from; 0 where the answer is no choice."""
        return len(next(iter(self.choices.values()), ()))

    def number(self, answer: Any) -> Any:
        """Return the number of a choice that is given by its text in any language; anything else as it is."""
        if isinstance(answer, str):
            for choices in self.choices.values():
                if answer in choices:
                    return choices.index(answer)
            raise ValueError("the answer must be one of the choices of the question")
        if self.choices and (type(answer) is not int or not 0 <= answer < self.n_choices):
            raise ValueError(
                f"the answer must be a choice: its text, or its number from 0 to {self.n_choices - 1}"
            )
        return answer

    def written(self) -> dict[str, Any]:
        """Return the question as a plain object for canonical JSON."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def read(cls, record: Any) -> Question:
        """Return the question that :meth:`written` wrote; ValueError for anything else."""
        names = {item.name for item in fields(cls)}
        if not isinstance(record, dict) or set(record) != names:
            raise ValueError(f"a question has the fields {', '.join(sorted(names))}")
        try:
            return cls(**record)
        except TypeError:
            raise ValueError("a field of the question is of the wrong kind") from None


@dataclass(frozen=True, slots=True)
class Task:
    """The definition of a collection: encoding, noise, roles and rounds. All of it is public.

    Parameters
    ----------
    encoding : Histogram, Tree, Sum, Vector or another of ``ostraka.collect.encodings``
        How a client's value becomes a vector.
    sigma : float > 0
        Standard deviation of the noise on each cell of the sum.
    tally : str
        Public key of the tally, which adds up.
    keepers : sequence of str, default empty
        Public keys of the keepers (``Keeper.key``), two or more with ``trust="keepers"``.
    trust : {"keepers", "clients"}, optional
        ``"keepers"``: one message a client; hidden from everybody but all keepers together.
        ``"clients"``: four exchanges; hidden from the tally and from ``colluding`` of the clients.
        None: keepers if there are any.
    noise : {"keepers", "clients", "tally"}, optional
        Who adds the noise. None: those who are trusted. ``"tally"``: the tally sees exact sums and is
        trusted to show them to nobody but :func:`ostraka.release`.
    least : int >= 3, default 3
        A round with fewer clients is refused by everybody.
    most : int, optional
        A round takes no more clients. None: with keepers 1,000,000, or 100,000 and fewer for long vectors
        where reports are ``checked``; with clients 10,000, or fewer if so many could hold ``least`` that
        collude.
    rounds : int >= 1, default 1
        How many rounds there are; a client reports at most once in each.
    honest : int >= 1, default 1
        With ``noise="keepers"``: this many keepers together add noise of ``sigma``.
    colluding, missing : float in [0, 1), default 0.1
        With ``trust="clients"``: the share of clients that may tell the tally all they know, and the
        share that may vanish. They size the shares of noise and the graph of neighbours.
    lying : bool, default False
        With ``trust="clients"``: the tally may break the protocol, not only look at what it sees. Clients
        then sign the set of survivors, and ``enrolment`` is needed.
    enrolment : str, optional
        Public key that signs the key of every client. None: whoever reaches the tally is a client.
    checked : bool, default False
        With keepers: they and the tally refuse each report that is no answer, and see nothing else of it. For
        Histogram, Histograms, Tree, Sum, Grid with one cell of a client, and Vector with up to 11,109 entries
        (grid 64). Half as much fits into the sums.
    question : Question, optional
        What people are asked, and what it costs them, in words that are part of the fingerprint.

    Attributes
    ----------
    sha256 : str
        The task's fingerprint, to compare over another channel. Every message is bound to it.

    Raises
    ------
    ValueError
        A field out of range, keys given twice, sums that would not fit into 32 bits, rounds that cost more
        than the question says, choices that are not the cells of the encoding.

    Examples
    --------
    >>> from ostraka.collect import Tree
    >>> from ostraka.voters import Identity
    >>> task = Task(Tree(0, 1024), sigma=24.0, tally=Identity.fresh().public_key, least=100)
    >>> Task.from_json(task.to_json()).sha256 == task.sha256
    True
    >>> task.trust, task.noise, task.encoding.cells
    ('clients', 'clients', 1092)
    """

    encoding: Encoding
    sigma: float = field(kw_only=True)
    tally: str = field(kw_only=True)
    keepers: tuple[str, ...] = field(default=(), kw_only=True)
    trust: Literal["keepers", "clients"] | None = field(default=None, kw_only=True)
    noise: Literal["keepers", "clients", "tally"] | None = field(default=None, kw_only=True)
    least: int = field(default=_LEAST, kw_only=True)
    most: int | None = field(default=None, kw_only=True)
    rounds: int = field(default=1, kw_only=True)
    honest: int = field(default=1, kw_only=True)
    colluding: float = field(default=0.1, kw_only=True)
    missing: float = field(default=0.1, kw_only=True)
    lying: bool = field(default=False, kw_only=True)
    enrolment: str | None = field(default=None, kw_only=True)
    checked: bool = field(default=False, kw_only=True)
    question: Question | None = field(default=None, kw_only=True)
    sha256: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.encoding, Encoding):
            raise ValueError(f"encoding must be an encoding of ostraka.collect, got {self.encoding!r}")  # noqa: TRY004
        if not isinstance(self.keepers, tuple | list):
            raise ValueError("keepers must be a sequence of keys")  # noqa: TRY004  (bad data of a file)
        trust = self.trust or ("keepers" if self.keepers else "clients")
        self._set(keepers=tuple(self.keepers), trust=trust, noise=self.noise or trust)
        self._check_trust()
        self._check_numbers()
        keys = [self.tally] if self.enrolment is None else [self.tally, self.enrolment]
        if not all(check.is_hexadecimal(key) for key in keys):
            raise ValueError("tally and enrolment must be keys of 64 lower-case hexadecimal digits")
        if not all(check.is_hexadecimal(key, digits=128) for key in self.keepers):
            raise ValueError("keepers must be keys of 128 lower-case hexadecimal digits: Keeper.key")
        keys += [part for key in self.keepers for part in (key[:64], key[64:])]
        if len(set(keys)) < len(keys):
            raise ValueError("the tally, the enrolment and every keeper must have keys of their own")
        self._set(sigma=float(self.sigma), colluding=float(self.colluding), missing=float(self.missing))
        for name in ("least", "most", "rounds", "honest"):
            self._set(**{name: int(getattr(self, name))})
        _ = self.mechanism  # raises if the noise cannot be priced
        bits = 30 if self.checked else 31  # below half of the prime, or of 2^32
        if self.limit * self.encoding.largest + self.noise_room(self.limit) >= 2**bits - 1:
            raise ValueError(
                f"most clients' sums, with the noise, must stay below 2^{bits}: take a smaller most"
            )
        self._check_question()
        self._set(sha256=hashlib.sha256(self.to_json().encode()).hexdigest())

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_numbers(self) -> None:
        check.positive(sigma=self.sigma)
        check.share(zero=True, colluding=self.colluding, missing=self.missing)
        if (
            isinstance(self.least, bool)
            or not isinstance(self.least, int | np.integer)
            or self.least < _LEAST
        ):
            raise ValueError(f"least must be a whole number >= {_LEAST}, got {self.least!r}")
        if self.most is None and self.trust == "keepers":
            form, usual = self.form, 100_000 if self.checked else 1_000_000
            if self.checked and form is not None and form.entries:  # openings of vectors, of 256 MiB
                usual = min(usual, _MOST_OPENED // (4 * TIMES * len(form.sizes)))
            self._set(most=max(self.least, usual) if self.checked else usual)
        elif self.most is None:  # so few that those who may collude cannot be ``least``
            free = math.floor((self.least - 1) / self.colluding) if self.colluding else 10_000
            self._set(most=max(self.least, min(10_000, free)))
        check.integer(most=self.limit, rounds=self.rounds, honest=self.honest, least=1)
        ceiling = _MOST_CLIENTS if self.trust == "keepers" else _MOST_MASKING_CLIENTS
        if not self.least <= self.limit <= ceiling:
            raise ValueError(f"most must be from least to {ceiling:,}, got {self.most!r}")
        if self.trust == "clients" and self.least <= self.n_colluding(self.limit):
            raise ValueError(
                f"least must be above {self.n_colluding(self.limit)}: so many of {self.limit} may collude"
            )
        if not isinstance(self.lying, bool):
            raise ValueError("lying must be True or False")  # noqa: TRY004  (bad data of a file)

    def _check_question(self) -> None:
        question, encoding = self.question, self.encoding
        if question is None:
            return
        if not isinstance(question, Question):
            raise ValueError("question must be a Question")  # noqa: TRY004  (bad data of a file)
        n = question.n_choices
        if n and encoding != Histogram(0, n, cells=n):
            raise ValueError(f"a question with {n} choices needs the encoding Histogram(0, {n}, cells={n})")
        curve = self.mechanism.curve()
        for name, cost in (("epsilon", curve), ("series", self.rounds * curve)):
            stated, price = getattr(question, name), cost.epsilon(delta=question.delta)
            if not price <= stated:
                raise ValueError(f"the question states {name} = {stated:g}, and the price is {price:.6g}")

    def _check_trust(self) -> None:
        check.one_of(trust=str(self.trust), allowed=("keepers", "clients"))
        check.one_of(noise=str(self.noise), allowed=(str(self.trust), "tally"))
        if self.trust == "keepers" and not 2 <= len(self.keepers) <= _MOST_KEEPERS:
            raise ValueError(f"trust in keepers needs 2 to {_MOST_KEEPERS} of them, got {len(self.keepers)}")
        if self.trust == "clients" and self.keepers:
            raise ValueError("with trust in clients there are no keepers")
        if self.honest > max(1, len(self.keepers)):
            raise ValueError(f"honest must be at most the number of keepers, got {self.honest}")
        if not isinstance(self.checked, bool):
            raise ValueError("checked must be True or False")  # noqa: TRY004  (bad data of a file)
        if self.checked and (self.trust != "keepers" or self.form is None):
            raise ValueError(
                "checked=True needs keepers, and a Histogram, Histograms, a Tree, a Sum, a Grid with "
                "at_most=1, or a Vector of fewer entries or a smaller grid: nothing else can be checked"
            )
        if self.lying and (self.trust != "clients" or self.enrolment is None):
            raise ValueError(
                "lying=True needs trust='clients' and an enrolment key that signs the clients' keys"
            )

    @property
    def limit(self) -> int:
        """The largest number of clients, ``most``, as a number."""
        return self.least if self.most is None else self.most

    @property
    def form(self) -> Form | None:
        """What a valid answer is, where keepers can check it."""
        return form_of(self.encoding)

    @property
    def report_size(self) -> int:
        """Numbers of four bytes in a report: the cells, or the answer with its proof."""
        return self.form.length if self.checked and self.form is not None else self.encoding.cells

    @property
    def checks(self) -> str:
        """What is checked of a report before it counts, as a sentence."""
        if self.checked:
            return "Keepers and tally together refuse reports that are no answers; an untrue answer counts."
        return (
            "Nothing of a report is checked but its form: a client that lies can spoil a sum, and read none."
        )

    def __hash__(self) -> int:
        return hash(self.sha256)

    @property
    def mechanism(self) -> SkellamSum:
        """The mechanism that releases the sums."""
        encoding = self.encoding
        return SkellamSum(sigma=self.sigma, l1=encoding.l1, l2=encoding.l2, adds=self.noise == "tally")

    def encoded(self, answer: Any) -> np.ndarray:
        """Return the vector of an answer: what the encoding takes, or the text or number of a choice."""
        return self.encoding.encode(answer if self.question is None else self.question.number(answer))

    def n_colluding(self, n_clients: int) -> int:
        """Return how many of ``n_clients`` clients may collude."""
        return math.ceil(self.colluding * n_clients - 1e-9)

    def share(self, n_clients: int) -> float:
        """Variance that each keeper, or each of ``n_clients`` clients, adds to a cell.

        Shares are sized for the fewest who may be honest: ``honest`` keepers, or ``least`` clients less
        those who collude.
        """
        if self.noise == "tally":
            return 0.0
        if self.noise == "keepers":
            return self.sigma**2 / self.honest
        return self.sigma**2 / (self.least - self.n_colluding(n_clients))

    def variance(self, *, n_survivors: int, n_clients: int | None = None) -> float:
        """Variance of the noise in each cell, if all follow the protocol."""
        if self.noise == "tally":
            return self.sigma**2
        if self.noise == "keepers":
            return len(self.keepers) * self.share(0)
        return n_survivors * self.share(n_clients or n_survivors)

    def noise_room(self, n_clients: int) -> int:
        """The largest change of a cell by the noise of all who add it."""
        n_shares = len(self.keepers) if self.noise == "keepers" else n_clients
        share = self.share(n_clients)
        return 0 if share == 0 else math.ceil(n_shares * (share / 2 + 40 * math.sqrt(share) + 100))

    def transcript(self, purpose: str, *, round: int) -> bytes:  # noqa: A002  (the field's word)
        """Return the digest of 32 bytes to which messages of one kind in one round are bound."""
        return hashlib.sha256(canonical([self.sha256, round, purpose]).encode()).digest()

    def to_json(self) -> str:
        """Return the task as canonical JSON."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        values |= {"encoding": written(self.encoding), "ostraka_task": _VERSION}
        if self.question is not None:
            values |= {"question": self.question.written(), "ostraka_task": _WITH_QUESTION}
        elif not self.checked:
            del values["question"]
        if self.checked:
            values |= {"ostraka_task": _CHECKED}
        else:
            del values["checked"]
        return canonical(_one_spelling(values))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Parse a task that :meth:`to_json` wrote; ValueError for anything else."""
        record = check.parsed(text)
        version = record.pop("ostraka_task", None) if isinstance(record, dict) else None
        later = {_VERSION: {"question", "checked"}, _WITH_QUESTION: {"checked"}, _CHECKED: set[str]()}
        if version not in later or isinstance(version, bool):
            raise ValueError(f"not a task of version {_VERSION}, {_WITH_QUESTION} or {_CHECKED}")
        names = {item.name for item in fields(cls) if item.init} - later[version]
        if set(record) != names:
            raise ValueError(f"a task has the fields {', '.join(sorted(names))}")
        question = None if record.get("question") is None else Question.read(record["question"])
        if (version == _WITH_QUESTION and question is None) or record.get("checked", True) is not True:
            raise ValueError("a task of this version must have what its version says")
        try:
            return cls(**{**record, "encoding": read(record["encoding"]), "question": question})
        except TypeError:
            raise ValueError("a field of the task is of the wrong kind") from None


def _is_text(name: str, text: Any) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"{name} must be a text of one line and at most {_LONGEST:,} letters")


def _one_spelling(value: Any) -> Any:
    """Write whole numbers as integers: 6 and 6.0 are one task, which must have one fingerprint."""
    if isinstance(value, dict):
        return {name: _one_spelling(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_one_spelling(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
