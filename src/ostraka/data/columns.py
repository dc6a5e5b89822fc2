"""The type of each column, decided by public rows, and the features that it gives.

Scales, categories, topics and formats of dates come from public rows alone. A private cell that holds no
number counts as the public median with ``fill``, else as the public mean.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ostraka.data import table as tables
from ostraka.data.labels import Labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ostraka.data.table import Format, Table

MOST_CLASSES = 1000
MOST_KINDS = 200
LONGEST_CODE = 12
_FEW_WORDS = 3
_ENOUGH = 200  # rows that hold different whole numbers: an identifier rather than a measurement
_MOST_OWN = 0.95  # share of public rows with a text of their own, above which it is an identifier
_NOT_MEASURED = {"-9", "-99", "-999", "-9999", "9999", "99999"}
_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 4, 1 << 13  # of a table of numbers: so many fit a processor's cache
_BUCKETS = 2**12  # of hashed words
_TOPICS = 32
_FARTHEST = 1e15  # public standard deviations from the public mean: a feature beyond counts as that
_UNKNOWN = "\0 no text of the public rows"
_DIGITS = 18  # of a whole number, with its sign
_TRIALS = 64  # rows on which the two encoders of a service must agree to the bit
_MOST_CHECKED = 2000  # public rows on which a model is compared with its copy
NOBODY = "{}: column {!r} (--person) is empty in some rows: every row must name its person"


class Features(NamedTuple):
    """The columns to learn from. Public.

    ``numeric`` says for each column whether it holds numbers; ``fill`` puts the public median where one is
    missing; ``dates`` are columns of dates, read as days since 1970, with their formats; ``codes`` and
    ``texts`` name columns of codes with many kinds, and of sentences.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    fill: bool
    dates: tuple[tuple[str, str | None], ...] = ()
    codes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Columns with a feature for each category."""
        pairs = zip(self.names, self.numeric, strict=True)
        return tuple(name for name, numeric in pairs if not numeric and name not in self.texts)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers and dates."""
        return tuple(name for name, numeric in zip(self.names, self.numeric, strict=True) if numeric)


def understood(
    public: Table, names: tuple[str, ...], *, as_text: Sequence[str], fill: bool
) -> tuple[Features, list[str]]:
    """Return the type of each feature in the public rows, and notes for the user about it.

    Raises
    ------
    ValueError
        A column is not there, or empty, or holds names; or a number is missing and nothing is put instead.
    """
    notes: list[str] = []
    dates: list[tuple[str, str | None]] = []
    numeric: list[bool] = []
    many: list[str] = []  # columns of codes
    sentences: list[str] = []
    for name in names:
        if name not in public.names:
            raise ValueError(
                f"{public.path} (public) lacks the column {name!r} of the private table: "
                f"add it, or type --drop {name}"
            )
        codes, texts = public.kinds(name)
        if all(text.lower() in public.missing for text in texts):
            raise ValueError(f"{public.path} (public): column {name!r} is empty: type --drop {name}")
        kind, form = ("text", None) if name in as_text else public.type_of(name)
        numeric.append(kind != "text")
        if kind == "date":
            dates.append((name, form))
            notes.append(f"column {name!r} holds dates{date_note(form)}: it counts days since 1970-01-01")
        elif kind == "number":
            # values that stand, or may stand, for a missing number
            absent = sorted({text for text in texts if text and text.lower() in public.missing})
            odd = sorted({text for text in texts if text in _NOT_MEASURED} - {*public.missing})
            if absent:
                notes.append(f"column {name!r}: {', '.join(map(repr, absent))} is read as no number")
            if len(texts) == len(public) >= _ENOUGH and all(text.isdecimal() for text in texts):
                notes.append(
                    f"column {name!r} holds another whole number in every row: if it only numbers the rows, "
                    f"it teaches nothing and adds noise: type --drop {name}"
                )
            notes += [
                f"column {name!r} holds {text}: if that means no number, type --missing={text}"
                for text in odd
            ]
        else:  # few kinds, codes or sentences; columns of names are refused
            n_rows, words = len(codes), float(np.mean([len(text.split()) for text in texts]))
            if words > _FEW_WORDS and len(texts) > min(MOST_KINDS, n_rows / 2):
                sentences.append(name)
                notes.append(
                    f"column {name!r} holds sentences: hashed words and pairs of words, in the directions "
                    "that vary most among public rows (a language model reads more: docs/prompts.md)"
                )
            elif len(texts) > MOST_KINDS:
                code = words <= 1 and max(map(len, texts)) <= LONGEST_CODE
                if len(texts) > n_rows * (_MOST_OWN if code else 0.5):
                    raise ValueError(
                        f"{public.path} (public): column {name!r} holds more than {MOST_KINDS} different "
                        f"texts, so it looks like names rather than kinds: type --drop {name}"
                    )
                many.append(name)
                notes.append(
                    f"column {name!r} holds {len(texts):,} different texts: they are read as codes, by their "
                    "first characters, and whole where they are frequent in the public rows"
                )
    features = Features(names, tuple(numeric), fill, tuple(dates), tuple(many), tuple(sentences))
    for name in () if fill else features.numbers:  # of public rows; private ones are never refused
        values, _ = column(public, name, features)
        if np.isnan(values).any():
            raise ValueError(
                f"{public.path}: column {name!r} has no number in data row {public.row(np.isnan(values))}: "
                f"type --fill to put the public median there, or --drop {name}"
            )
    return features, notes


def date_note(form: str | None) -> str:
    """Return a note if a date format can be misread."""
    return {"%d/%m/%Y": ", the day first", "%m/%d/%Y": ", the month first"}.get(form or "", "")


def encoder(public: Table, features: Features) -> Any:
    """Fit the encoder: scaled numbers, one-hot categories, prefixes of codes, topics of texts."""
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    scaled = StandardScaler()
    if features.fill:
        scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    kinds = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_KINDS, sparse_output=False
    )
    place = features.names.index
    steps: list[tuple[str, Any, Any]] = [
        ("numbers", scaled, [place(name) for name in features.numbers]),
        ("kinds", kinds, [place(name) for name in features.kinds]),
    ]
    for name in features.codes:
        # the shortest and the longest beginning with two groups or more, and not too many
        texts = public.kinds(name)[1]
        lengths = [
            length
            for length in range(1, LONGEST_CODE)
            if 1 < len({text[:length] for text in texts if len(text) >= length}) <= MOST_KINDS
        ]
        for length in sorted({*lengths[:1], *lengths[-1:]}):  # the only word is the start of a code
            start = CountVectorizer(token_pattern=rf"(?s)^.{{{length}}}", lowercase=False, dtype=np.float64)
            steps.append((f"code {place(name)}:{length}", start, place(name)))
    for name in features.texts:
        hashed = HashingVectorizer(n_features=_BUCKETS, ngram_range=(1, 2), alternate_sign=False)
        svd = TruncatedSVD(n_components=max(1, min(_TOPICS, len(public) - 1)), random_state=0)
        topics = make_pipeline(hashed, TfidfTransformer(sublinear_tf=True), svd, StandardScaler())
        steps.append((f"text {place(name)}", topics, place(name)))
    return ColumnTransformer(steps, sparse_threshold=0).fit(cells(public, features))


def matrix(
    table: Table, features: Features, fitted: Any, *, unread: dict[str, int] | None = None
) -> np.ndarray:
    """Transform a table column by column, which gives bit for bit the same as the encoder and is faster.

    A caller who keeps no other reference to the table needs memory for little more than the result.
    ``unread`` takes the number of cells of each column that hold something else than it: for the owner alone.
    """
    import pyarrow as pa

    steps = fitted.named_transformers_
    scaler: Any = steps["numbers"]
    medians = None
    if hasattr(scaler, "named_steps"):
        imputer, scaler = scaler.named_steps.values()
        medians = imputer.statistics_
    X = np.zeros((len(table), max(part.stop for part in fitted.output_indices_.values())))
    for first in range(0, len(features.numbers), _COLUMNS_AT_ONCE):
        columns_of = list(enumerate(features.numbers))[first : first + _COLUMNS_AT_ONCE]
        numbers = []
        for at, name in columns_of:
            values, strange = column(table, name, features)
            if unread is not None and strange.any():
                unread[name] = int(strange.sum())
            if medians is not None:
                values[np.isnan(values)] = medians[at]
            with np.errstate(over="ignore"):
                values -= scaler.mean_[at]
                values /= scaler.scale_[at]
            values[np.isnan(values)] = 0.0  # the public mean
            numbers.append((at, values.clip(-_FARTHEST, _FARTHEST)))
        for start in range(0, len(X), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            for at, values in numbers:
                X[rows, at] = values[rows]
        table = table.without([name for _, name in columns_of])
        pa.default_memory_pool().release_unused()  # what the columns held goes back to the system
    start = len(features.numbers)
    for place, name in enumerate(features.kinds):
        codes, texts = table.kinds(name)
        block = one_hot(texts, place, steps["kinds"], n_kinds=len(features.kinds))
        X[:, start : start + block.shape[1]] = block[codes]
        start += block.shape[1]
    for _, step, place in fitted.transformers_[2:]:
        if isinstance(place, int):
            codes, texts = table.kinds(features.names[place])
            encoded = step.transform(np.array(texts, dtype=object))
            block = encoded.toarray() if hasattr(encoded, "toarray") else encoded
            X[:, start : start + block.shape[1]] = block[codes]
            start += block.shape[1]
    return X


def column(table: Table, name: str, features: Features) -> tuple[np.ndarray, np.ndarray]:
    """A column as numbers, NaN where there is none; and the cells that hold something else."""
    forms = dict(features.dates)
    return table.days(name, forms[name]) if name in forms else table.numbers(name)


def one_hot(texts: Sequence[str], place: int, kinds: Any, *, n_kinds: int) -> np.ndarray:
    """Return the encoded columns of one categorical feature, one row for each different text."""
    table = np.empty((len(texts), n_kinds), dtype=object)
    for k, categories in enumerate(kinds.categories_):
        table[:, k] = texts if k == place else categories[0]
    spread = kinds.transform(table)
    widths = [_width(kinds, k) for k in range(n_kinds)]
    start = sum(widths[:place])
    block: np.ndarray = spread[:, start : start + widths[place]]
    return block


def _width(kinds: Any, place: int) -> int:
    """Return a categorical feature's number of columns: one per category, and one for all rare ones."""
    rare = kinds.infrequent_categories_[place] if hasattr(kinds, "infrequent_categories_") else None
    return len(kinds.categories_[place]) - (0 if rare is None else len(rare) - 1)


def cells(table: Table, features: Features, *, rows: slice = slice(None)) -> np.ndarray:
    """Return the features as numbers and text side by side, shape (n_rows, n_columns)."""
    part = table.part(rows)
    mixed = np.empty((len(part), len(features.names)), dtype=object)
    for place, (name, numeric) in enumerate(zip(features.names, features.numeric, strict=True)):
        mixed[:, place] = column(part, name, features)[0] if numeric else part.text(name)
    return mixed


def labels(
    where: str,
    values: Sequence[Any],
    declared: Sequence[str],
    *,
    same: Mapping[str, str] | None = None,
    missing: Sequence[str] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """The label of each of some values, whole numbers if all classes are, else text; and which have none.

    ``same`` has the class that each other spelling stands for, ``missing`` what stands for no label.

    A value that is missing or not declared counts as the first class: it must not end the run of all rows.
    If nothing is declared, the classes are those of the values, in order, and count as public.

    Raises
    ------
    ValueError
        The classes are too many, or one only.
    """
    words = joined(map(tables.word, values), same=same or {}, missing=missing)
    classes = list(dict.fromkeys(declared)) or sorted({*words} - {""})
    integral = all(map(_is_whole, classes))
    codec = Labels(spelled(classes, np.dtype(np.int64 if integral else np.str_)))
    n_classes = len({*codec.classes.tolist()})
    if n_classes < 2:
        raise ValueError(f"{where} holds one class only; there must be two or more: is it the right column?")
    if n_classes > MOST_CLASSES:
        raise ValueError(f"{where} holds more than {MOST_CLASSES:,} different values: it must hold classes")
    fits = np.array([not integral or _is_whole(text) for text in words])
    typed = spelled(
        [text if fit else classes[0] for text, fit in zip(words, fits, strict=True)], codec.classes.dtype
    )
    codes = np.where(fits, codec.places(typed), -1)
    return codec.decode(np.maximum(codes, 0)), codes < 0


def joined(words: Iterable[str], *, same: Mapping[str, str], missing: Sequence[str]) -> list[str]:
    """Labels in the spelling that was declared for each; empty where none was."""
    none = {text.strip().lower() for text in missing}
    return ["" if word.lower() in none else same.get(word, word) for word in words]


def known_labels(
    where: str, texts: Sequence[str], *, like: np.ndarray, same: Mapping[str, str], missing: Sequence[str]
) -> np.ndarray | None:
    """Public labels as the private ones are written, ``like`` them; None if any is missing."""
    words = joined(texts, same=same, missing=missing)
    if "" in words:
        return None
    if like.dtype.kind == "i" and not all(map(_is_whole, words)):
        raise ValueError(f"{where} must hold whole numbers, as the private one does")
    return spelled(words, like.dtype)


def people(table: Table, person: str | None) -> np.ndarray | None:
    """Return the identifier of each row's person."""
    if person is None:
        return None
    codes, texts = table.kinds(person)
    if "" in texts:
        raise ValueError(NOBODY.format(table.path, person))
    return np.asarray(np.array(texts)[codes])


def _is_whole(text: str) -> bool:
    """Whether a text is a whole number that 64 bits hold: a longer one is no class, and ends no run."""
    return text.removeprefix("-").isdecimal() and len(text) <= _DIGITS


def spelled(texts: Sequence[str], dtype: Any) -> np.ndarray:
    """Convert texts to whole numbers if the type is that of whole numbers."""
    return np.array([int(text) for text in texts] if dtype.kind == "i" else list(texts))


class Shown(NamedTuple):
    """How the public table was read, and some of its rows. Public.

    ``form`` is that of the file; ``numbers`` are the columns of numbers without dates; ``missing`` are the
    texts, in lower case, that stand for no number, empty where that is refused; ``cells`` are the first
    public rows as the encoder reads them.
    """

    form: Format
    numbers: tuple[str, ...]
    dates: tuple[tuple[str, str | None], ...]
    missing: tuple[str, ...]
    cells: np.ndarray

    @classmethod
    def of(cls, public: Table, features: Features) -> Self:
        """Describe a public table."""
        dated = dict(features.dates)
        return cls(
            public.form,
            numbers=tuple(name for name in features.numbers if name not in dated),
            dates=features.dates,
            missing=public.missing if features.fill else (),
            cells=cells(public, features, rows=slice(_MOST_CHECKED)),
        )


class _Numbers(NamedTuple):
    """Columns of numbers with their means and scales."""

    places: list[int]
    mean: np.ndarray
    scale: np.ndarray


class _Kind(NamedTuple):
    """A column of categories: the index of each text's feature; -1 if all features are 0."""

    place: int
    features: dict[str, int]
    unknown: int


class CompiledEncoder:
    """A fitted ``ColumnTransformer`` of scaled numbers and one-hot kinds, as arrays and dictionaries.

    scikit-learn takes 270 us a call for checks of its input, which the service has made already.
    """

    def __init__(self, numbers: _Numbers, kinds: Sequence[_Kind], width: int) -> None:
        self._numbers, self._kinds, self._width = numbers, tuple(kinds), width
        self._n = len(numbers.places)
        self._all = numbers.places == list(range(self._n)) and not kinds

    @classmethod
    def of(cls, encoder: Any, n_columns: int) -> Self | None:
        """Compile a fitted encoder so that results agree to the bit; None for an unknown type."""
        numbers, kinds, width = _Numbers([], np.zeros(0), np.ones(0)), list[_Kind](), 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for _, step, columns in encoder.transformers_:  # those of numbers, then those of categories
                    places = list(columns)
                    if not places or step == "drop":
                        continue
                    if hasattr(step, "categories_"):
                        group, width = _kinds(step, places, width)
                        kinds += group
                    elif width:
                        return None  # numbers after kinds are not known
                    else:  # an imputer is skipped, because the numbers of a request are finite
                        scaler = step.named_steps["standardscaler"] if hasattr(step, "named_steps") else step
                        width = len(places)
                        mean = np.asarray(scaler.mean_ if scaler.with_mean else np.zeros(width), np.float64)
                        scale = np.asarray(scaler.scale_ if scaler.with_std else np.ones(width), np.float64)
                        numbers = _Numbers(places, mean, scale)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        # rows that contain every text at least once, and numbers around the public ones
        rng = np.random.default_rng(0)
        n = max(_TRIALS, *(len(kind.features) for kind in kinds), 1)
        rows: list[list[Any]] = [[0.0] * n_columns for _ in range(n)]
        for column, place in enumerate(numbers.places):
            values = numbers.mean[column] + numbers.scale[column] * rng.normal(size=n) * 3
            for number, row in enumerate(rows):
                row[place] = float(values[number])
        for kind in kinds:
            texts = list(kind.features)
            for number, row in enumerate(rows):
                row[kind.place] = texts[number % len(texts)]
        compiled = cls(numbers, kinds, width)
        cells = np.empty((len(rows), n_columns), dtype=object)
        cells[:] = rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            right = np.asarray(encoder.transform(cells), dtype=np.float64)
        return compiled if np.array_equal(compiled(rows), right) else None

    def __call__(self, rows: Sequence[list[Any]]) -> np.ndarray:
        """Features of checked rows, shape (n_rows, n_features)."""
        if self._all:
            values = np.array(rows, dtype=np.float64)
        else:
            values = np.zeros((len(rows), self._width))
            if self._n:
                places = self._numbers.places
                values[:, : self._n] = [[row[place] for place in places] for row in rows]
            for kind in self._kinds:
                features, place, unknown = kind.features, kind.place, kind.unknown
                for number, row in enumerate(rows):
                    feature = features.get(row[place], unknown)
                    if feature >= 0:
                        values[number, feature] = 1.0
        part = values[:, : self._n]
        part -= self._numbers.mean
        part /= self._numbers.scale
        return values


def _kinds(step: Any, places: list[int], start: int) -> tuple[list[_Kind], int]:
    """Return the index of each text's feature, found by encoding one text at a time."""
    kinds = []
    for column, (place, texts) in enumerate(zip(places, step.categories_, strict=True)):
        unknown = texts[0] if step.handle_unknown == "error" else _UNKNOWN
        block = one_hot([*texts, unknown], column, step, n_kinds=len(places))
        features = [start + int(row.argmax()) if row.any() else -1 for row in block]
        kinds.append(_Kind(place, dict(zip(map(str, texts), features, strict=False)), features[-1]))
        start += block.shape[1]
    return kinds, start
