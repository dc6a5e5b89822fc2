"""Findings: what is wrong or doubtful about tables, all at once, before anything is spent.

What is found in a private table is for its owner, and decides nothing: the owner types what it takes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ostraka.data import columns as encoding
from ostraka.data.guards import row_digests, seems_repeated
from ostraka.data.table import MISSING, Table, number
from ostraka.data.units import numbered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ostraka.data.table import Format, Look
    from ostraka.data.task import Columns

REFUSED, DOUBT, NOTE = "refused", "doubt", "note"
# Spellings of "no value" beside those that are always read so; lower case. Those with blanks stand alone.
_NONE = """. - -- --- x xx k.a. k.a ka n.b. n.b n.a. n.a n.d. nd s.d. k.w. #n/a #n/v #nv #wert! #value! #ref!
    #div/0! <na> (null) nil missing unknown unbekannt fehlt fehlend leer unspecified"""
HOLES = frozenset(_NONE.split()) | {
    *("k. a.", "n. b.", "n. a.", "keine angabe", "nicht bekannt", "not known", "not available", "no data")
}
_LABEL_HOLES = (HOLES - {"x", "xx", "unknown", "unbekannt"}) | set(MISSING) - {"", "none"}
_SENTINEL = re.compile(r"-?9{2,6}|-1")
_COMMA = re.compile(r"[+-]?\d+(\.\d{3})*,\d+", re.ASCII)
_POINT_ZERO = re.compile(r"^([+-]?\d+)[.,]0+$", re.ASCII)  # a whole number, and no code such as E10.0
_UNITED = re.compile(r"[^\d+-]{0,4}[+-]?\d+([.,]\d+)?\s?[^\d\s.,:/-]{1,6}", re.ASCII)
_NUMBER = r"[+-]?\d+([.,]\d+)?"
# How cells of a column may be written that is read as text, and what to do about it.
_WRITTEN = (
    (
        re.compile(rf"{_NUMBER}|[+-]?\d{{1,3}}(['\u2019\u00a0\u202f .,]\d{{3}})+([.,]\d+)?", re.ASCII),
        "numbers as text",
        "holds numbers with signs of thousands: write them without, or leave it out",
    ),
    (
        re.compile(rf"{_UNITED.pattern}|[$€£¥]\s?{_NUMBER}", re.ASCII),
        "numbers as text",
        "holds numbers with a unit or a sign: write numbers alone, or leave it out",
    ),
    (
        re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{2,4})([T ].*)?", re.ASCII),
        "dates",
        "holds dates in several forms: write all alike, as in 2024-03-31, or leave it out",
    ),
    (
        re.compile(r"\s*(\{.*\}|\[.*\])\s*", re.DOTALL),
        "JSON",
        "holds JSON, which is read as words: give each of its values a column, or leave it out",
    ),
)
_WORDS = re.compile(r"[A-Z]?[a-zäöüß]+|[A-ZÄÖÜ]+(?![a-z])")
_PEOPLE = """patient patienten pat person people personen subject subj proband client customer kunde kunden
    user member mitglied versicherte versicherter versicherten insured employee mitarbeiter student pupil
    household haushalt participant teilnehmer respondent individual citizen resident donor passenger driver
    account konto device mrn ssn pid uid nhs ahv fall case who"""
_PERSONS = frozenset(_PEOPLE.split())
_NAMES = "id ids nr no num number nummer key uuid guid hash identifier kennung pseudonym ident name"
_IDENTIFIERS = frozenset(_NAMES.split())
_JOINED = re.compile(
    rf"({'|'.join(sorted(_PERSONS, key=len, reverse=True))})(s|en)?(id|nr|no|num|nummer|key)"
)
_SHAPED = re.compile(r"(?P<head>[^\W\d_]{0,6})[-_ /]?\d{3,}", re.ASCII)
_HEXADECIMAL = re.compile(r"[0-9a-f]{8,}(-[0-9a-f]{4,}){0,4}", re.ASCII | re.IGNORECASE)
_LONG = 5  # digits of a number that may name somebody
_FEW_NAMES, _SHARE_OF_NAMES = 20, 0.02  # an identifier has at least so many values, and so many of the rows
_SHARE_OF_SHAPES = 0.05  # the same for a column of which only the shape says so
_SHARE_OF_ONE = 0.02  # of the rows, which one of these has at most
_OWN = 0.95  # share of rows with a value of their own
_ENOUGH, _ENOUGH_NUMBERS = 50, 200  # rows to judge a column by
_ROWS_OF_A_KIND = 10  # on average: a kind of fewer teaches nothing
_RARE = 0.01  # share of a class
_MANY_CLASSES = 50
_MOST_NUMBERS = 10  # whole numbers that are taken for classes without being declared
_MOSTLY = 0.6  # share of numbers in a column of numbers with holes
_GRAVE = 0.5  # share of cells of a column that cannot be read
_UNLABELLED = 0.01  # share of rows without a label that is no accident
_GIVES_AWAY, _BINS = 0.995, 64
_SENTENCE = 3  # words
_APART = 3  # times the largest other number
_SHOWN = 6
_WIDE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong or doubtful about a table.

    Attributes
    ----------
    kind : str
        What it is about, such as ``"unit"`` or ``"label"``.
    weight : str
        ``"refused"``: nothing is learned before it is settled. ``"doubt"``: look at it. ``"note"``.
    text : str
        A sentence without any cell of the table.
    column : str or None
    options : tuple of str
        What to type after ``ostraka learn``; empty where nothing settles it.
    values : tuple of str
        Spellings in the table.
    private : bool
        Computed from private rows, and so for their owner alone.

    Examples
    --------
    >>> finding = Finding(kind="unit", weight="refused", text="…", column="patient no",
    ...                   options=("--person", "patient no"))
    >>> finding.hint
    "--person 'patient no'"
    """

    kind: str
    weight: str
    text: str
    column: str | None = None
    options: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    private: bool = True

    @property
    def hint(self) -> str:
        """What to type, quoted for a shell."""
        return " ".join(map(shlex.quote, self.options))

    def sentence(self, *, cells: bool) -> str:
        """The text, and with ``cells`` the spellings in the table."""
        listed = ", ".join(map(repr, self.values[:_SHOWN])) + ", …" * (len(self.values) > _SHOWN)
        return f"{self.text}: {listed}" if cells and self.values else self.text

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "options": list(self.options), "values": list(self.values), "hint": self.hint}


def remark(
    kind: str,
    weight: str,
    text: str,
    *options: str,
    column: str | None = None,
    role: str = "",
    values: Iterable[str] = (),
    private: bool = True,
) -> Finding:
    """A finding, whose text begins with its column and what that is, where it is about one."""
    if role or column is not None:
        text = f"column {column!r} {role}{text}"
    return Finding(
        kind=kind,
        weight=weight,
        text=text,
        column=column,
        options=options,
        values=tuple(values),
        private=private,
    )


def gravity(finding: Finding) -> int:
    """The key by which findings are sorted, gravest first."""
    return (REFUSED, DOUBT, NOTE).index(finding.weight)


class Cells(NamedTuple):
    """One column: the different texts, how often each occurs, and the text of each row by its place."""

    texts: list[str]
    counts: np.ndarray
    codes: np.ndarray

    @classmethod
    def of(cls, table: Table, name: str) -> Cells:
        """The cells of a column of a table."""
        codes, texts = table.kinds(name)
        return cls(texts, np.bincount(codes, minlength=len(texts)), codes)

    def share(self, mask: Sequence[bool] | np.ndarray) -> float:
        """The share of rows whose text is of a mask."""
        return float(self.counts[np.asarray(mask, dtype=bool)].sum() / max(1, self.counts.sum()))


def findings(table: Table, columns: Columns, *, public: Table | None) -> list[Finding]:
    """All findings about a private table, and about the public one, gravest first.

    ``public`` is None where public rows are held out of the private ones.
    """
    import pyarrow as pa

    aside = {columns.label, columns.person, *columns.drop}
    features = [name for name in table.names if name not in aside]
    remarks: list[Finding] = []
    floats = {field.name for field in table.frame.schema if pa.types.is_floating(field.type)}
    cells = {name: Cells.of(table, name) for name in table.names if name not in {*columns.drop, *floats}}
    remarks += _units(table, columns, cells)
    remarks += _rows(table, columns, cells)
    label: np.ndarray | None = None  # codes of what is learned
    if columns.label in table.names and columns.bounds is None:
        spelled = Cells.of(table, columns.label)
        remarks += label_findings(spelled, columns)
        place = {text: k for k, group in enumerate(_alike(spelled.texts)) for text in group}
        label = np.array([place[text] for text in spelled.texts])[spelled.codes]
    elif columns.label in table.names:
        numbers = table.numbers(columns.label)[0]
        remarks += target_findings(numbers, columns)
        # in which quarter of all each number is, where missing ones count as the smallest
        values = np.where(np.isfinite(numbers), numbers, -np.inf)
        label = np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75], method="lower"), values)
    n_rows = len(table)
    if label is not None and (n_rows < _ENOUGH or np.bincount(label).max() / n_rows > _GIVES_AWAY - 0.05):
        label = None  # too few rows, or labels that are mostly one, follow from anything
    for name in features:
        column = cells.get(name)
        if column is not None:
            remarks += _column(table, name, column, columns, public=public)
        if label is None:
            continue
        if column is None or len(column.texts) > _BINS:
            if column is not None and table.type_of(name)[0] != "number":
                continue
            values = np.nan_to_num(table.numbers(name)[0])
            cuts = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1]))
            codes = np.searchsorted(cuts, values)
        else:
            codes = column.codes
        counts = np.zeros((int(codes.max()) + 1, int(label.max()) + 1), dtype=np.int64)
        np.add.at(counts, (codes, label), 1)
        if counts.max(axis=1).sum() / n_rows >= _GIVES_AWAY:
            text = "says the label nearly always: is it known when the model is used?"
            remarks.append(remark("gives the label away", DOUBT, text, "--drop", name, column=name))
    if len(features) > _WIDE:
        text = f"{len(features)} columns: those that say nothing add noise; --drop leaves one out"
        remarks.append(remark("wide", NOTE, text, private=False))
    if public is not None:
        remarks += _public(public, features, columns)
    source = table if public is None else public
    # public numbers that are missing, where nothing is put instead
    for name in () if columns.fill else features:
        if name not in source.names or name in columns.as_text:
            continue
        kind, form = source.type_of(name)
        if kind == "text":
            continue
        values = source.days(name, form)[0] if kind == "date" else source.numbers(name)[0]
        if np.isnan(values).any():
            row = "some rows" if public is None else f"data row {source.row(np.isnan(values))}"
            remarks.append(
                Finding(
                    kind="missing numbers",
                    weight=DOUBT if public is None else REFUSED,
                    text=f"{source.path}: column {name!r} has no number in {row}: type --fill to put the "
                    f"public median there, or --drop {shlex.quote(name)}",
                    column=name,
                    options=("--fill",),
                    private=public is None,
                )
            )
    return sorted(remarks, key=gravity)


def form_findings(shape: Look, declared: Format) -> list[Finding]:
    """What a private file seems to need that it is not read with, and what to type for it."""
    remarks = []

    def say(kind: str, text: str, *options: str, weight: str | None = None) -> None:
        remarks.append(remark(kind, weight or (DOUBT if options else NOTE), text, *options))

    form = shape.form
    if form.skip and form.skip != (declared.skip or 0):
        many = "a line stands" if form.skip == 1 else f"{form.skip} lines stand"
        say("title lines", f"{many} above the header", "--skip-lines", str(form.skip), weight=REFUSED)
    if form.sheet is not None and form.sheet != (declared.sheet or form.sheet):
        text = f"the table seems to be on sheet {form.sheet!r}, not on {declared.sheet!r}"
        say("sheets", text, "--sheet", form.sheet)
    elif len(shape.sheets) > 1:
        say("sheets", f"{len(shape.sheets)} sheets, of which {form.sheet!r} is read")
    if shape.trailing:
        say("trailing delimiter", "lines end with a delimiter, which makes no column")
    if shape.broken:
        text = "lines end inside quotes, and each line counts as a row: write these cells without line ends"
        say("line ends", text, weight=DOUBT)
    encoding = form.encoding or "utf8"
    if encoding != (declared.encoding or "utf8") and not encoding.startswith("utf"):
        say("encoding", f"the file is not {declared.encoding}, but may be {encoding}", "--encoding", encoding)
    if form.decimal == "," != declared.decimal:
        say("decimal sign", "numbers are written with decimal commas", "--decimal", ",", weight=REFUSED)
    return remarks


class _Labels(NamedTuple):
    """How often each label occurs, as it is spelled or declared to be, and how many rows have none."""

    name: str
    counts: dict[str, int]
    empty: int

    @classmethod
    def of(cls, cells: Cells, columns: Columns) -> _Labels:
        words = encoding.joined(cells.texts, same=dict(columns.same), missing=columns.missing)
        counts: dict[str, int] = {}
        for word, count in zip(words, cells.counts.tolist(), strict=True):
            counts[word] = counts.get(word, 0) + count
        return cls(columns.label, counts, counts.pop("", 0))

    @property
    def n_rows(self) -> int:
        return self.empty + sum(self.counts.values())

    def rows(self, classes: Iterable[str]) -> int:
        return sum(self.counts[text] for text in classes)

    def finding(self, kind: str, weight: str, text: str, *options: str, **details: Any) -> Finding:
        return remark(kind, weight, text, *options, column=self.name, role="(--label) ", **details)


def label_findings(cells: Cells, columns: Columns) -> Iterator[Finding]:
    """Spellings, holes, numbers, rare classes and rows without a label."""
    it = _Labels.of(cells, columns)
    declared = list(columns.classes)
    holes = [text for text in it.counts if text.lower() in _LABEL_HOLES and text not in declared]
    n_empty = it.empty + it.rows(holes)
    if n_empty and not columns.drop_unlabelled:
        grave = not declared and (n_empty >= _UNLABELLED * it.n_rows or holes)
        options = [word for text in holes for word in _missing_option(text)]
        yield it.finding(
            "rows without a label",
            REFUSED if grave else DOUBT,
            "lacks a label in some rows, which would count as the first class"
            + (", or what stands for none would be a class" if holes else ""),
            *options,
            "--drop-unlabelled",
            values=holes,
        )
    if declared:
        strange = sorted(set(it.counts) - {*declared, *holes})
        if strange:
            yield it.finding(
                "labels that are no class",
                DOUBT,
                f"holds labels that --classes does not name, in {it.rows(strange):,} rows: they count as the "
                "first class",
                values=strange,
            )
        return
    # classes that nobody has declared, and of these the ones that are equal but for case, spaces and zeros
    classes = [text for text in it.counts if text not in holes]
    twins = [group for group in _alike(classes) if len(group) > 1]
    if twins:
        options = []
        for first, *others in twins:
            if not any(set(",=") & set(text) for text in (first, *others)):
                options += ["--same", f"{first}={','.join(others)}"]
        yield it.finding(
            "label spellings",
            REFUSED,
            f"has {sum(map(len, twins))} classes which are {len(twins)} but for case, spaces and zeros",
            *options,
            values=(text for group in twins for text in group),
        )
    values = np.array(
        [number(text.replace(",", ".") if _COMMA.fullmatch(text) else text) for text in classes]
    )
    numeric = np.isfinite(values).all()
    if len(classes) < 2:
        yield it.finding("one class", REFUSED, "holds one class only: is it the right column?")
    elif numeric and (len(classes) > _MOST_NUMBERS or not np.array_equal(values, np.rint(values))):
        yield it.finding(
            "numeric label",
            REFUSED,
            f"holds {len(classes):,} different numbers: to learn a number, type --target "
            f"{shlex.quote(it.name)} --bounds LOW:HIGH instead of --label, with the lowest and the highest "
            "number that there can be; if they are classes, name all of them, as in --classes 0..25",
        )
    elif len(classes) > encoding.MOST_CLASSES:
        text = f"holds more than {encoding.MOST_CLASSES:,} different classes"
        yield it.finding("too many classes", REFUSED, text)
    elif rare := sorted(text for text in classes if it.counts[text] < _RARE * it.n_rows):
        if len(classes) > _MANY_CLASSES:
            text = f"holds {len(classes)} classes: each needs rows of its own to be heard through the noise"
        else:
            text = (
                f"has {len(rare)} of {len(classes)} classes with less than 1 % of the rows: the model seldom "
                "says them; rank rows by predict_proba"
            )
        yield it.finding("rare classes", NOTE, text, values=rare)


def target_findings(numbers: np.ndarray, columns: Columns) -> Iterator[Finding]:
    """What is wrong with numbers to predict, NaN where there is none."""
    low, high = columns.bounds or (-np.inf, np.inf)
    known = numbers[np.isfinite(numbers)]
    n_missing, n_beyond = len(numbers) - len(known), int(((known < low) | (known > high)).sum())

    finding = partial(remark, column=columns.label, role="(--target) ")
    if not len(known) or known.min() == known.max():
        yield finding("one number", REFUSED, "holds no numbers, or only one: is it the right column?")
    elif n_missing and not columns.drop_unlabelled:
        text = f"lacks a number in {n_missing:,} rows, which add nothing: what is learned is weaker for them"
        yield finding("rows without a label", DOUBT, text, "--drop-unlabelled")
    if n_beyond:
        text = f"holds {n_beyond:,} numbers beyond --bounds, which count as the nearest bound"
        yield finding("numbers beyond bounds", DOUBT, text)


def _missing_option(text: str) -> tuple[str, ...]:
    return (f"--missing={text}",) if text.startswith("-") else ("--missing", text)


def _rows(table: Table, columns: Columns, cells: dict[str, Cells]) -> Iterator[Finding]:
    """Rows that are the header once more, and rows that occur twice."""
    if len(cells) < len(set(table.names) - {*columns.drop}) or len(table) < _ENOUGH:
        return  # some columns are numbers already
    again = np.ones(len(table), dtype=bool)
    for name, column in cells.items():
        again &= np.array([text == name for text in column.texts], dtype=bool)[column.codes]
    if again.any():
        many = f"{int(again.sum()):,} rows hold" if again.sum() > 1 else "a row holds"
        text = f"{many} the names of the columns, as if they were cells: take them out of the file"
        yield remark("header", DOUBT, text)
    codes = np.column_stack([column.codes for column in cells.values()]).astype(np.float64)
    if columns.person is None and not columns.rows_are_people and seems_repeated(codes, row_digests(codes)):
        yield remark(
            "repeated rows",
            DOUBT,
            "most rows occur twice or more: if these are one person's, take the copies out of the file, "
            "because only one of them would be protected",
        )


def _units(table: Table, columns: Columns, cells: dict[str, Cells]) -> Iterator[Finding]:
    """Whose rows these are: identifiers that repeat."""
    names = [name for name in cells if name not in {columns.label, columns.person, *columns.drop}]
    if columns.person is not None:
        people, named = cells.get(columns.person), []
        if people is not None and "" in people.texts:
            text = "(--person) is empty in some rows: every row must name its person"
            yield remark("unit", REFUSED, text, column=columns.person)
        elif people is not None:
            n_people = numbered(people.texts)[1]
            yield Finding(
                kind="unit",
                weight=NOTE,
                text=f"{n_people:,} people with {people.counts.sum() / max(1, n_people):.1f} rows on "
                f"average, at most {people.counts.max():,}: each has one vote, however many rows",
                column=columns.person,
            )
    else:
        named = [name for name in names if _repeats(name, cells[name], len(table))]
    order = sorted(named, key=lambda name: (not _names_people(name), len(cells[name].texts)))
    for place, name in enumerate(order):
        if place == 0 and not columns.rows_are_people:
            yield remark(
                "unit",
                REFUSED,
                "looks like an identifier that repeats: if several rows are one person's, type --person "
                f"{shlex.quote(name)} to protect people; if each row is another person's, type "
                "--rows-are-people",
                "--person",
                name,
                column=name,
            )
        else:
            why = ": it teaches nothing" if columns.rows_are_people else ", too"
            text = f"looks like an identifier{why}"
            yield remark("identifier", DOUBT, text, "--drop", name, column=name)


def words_of(name: str) -> list[str]:
    """The words of a column's name, lower case: ``patientId`` and ``PATIENT_ID`` have two."""
    return [word.lower() for word in _WORDS.findall(name)]


def _names_people(name: str) -> bool:
    words = words_of(name)
    return bool(set(words) & _PERSONS) or bool(_JOINED.fullmatch("".join(words)))


def _repeats(name: str, cells: Cells, n_rows: int) -> bool:
    """Whether a column looks like an identifier, by its name or its shape, and some value repeats."""
    filled = np.array([bool(text) and text.lower() not in MISSING for text in cells.texts], dtype=bool)
    n_names, n_filled = int(filled.sum()), int(cells.counts[filled].sum())
    if n_rows < _ENOUGH or n_names == n_filled or n_names < max(_FEW_NAMES, _SHARE_OF_NAMES * n_filled):
        return False
    texts = [text for text, is_filled in zip(cells.texts, filled, strict=True) if is_filled]
    words = words_of(name)
    # texts built like numbers of people, such as P00123, or long numbers
    heads = {match["head"] if (match := _SHAPED.fullmatch(text)) else None for text in texts}
    hexadecimal = all(map(_HEXADECIMAL.fullmatch, texts)) and not all(map(str.isdecimal, texts))
    if hexadecimal or (len(heads) == 1 and not {None, ""} & heads):
        shape = "text"
    else:
        shape = "number" if heads == {""} and min(map(len, texts)) >= _LONG else ""
    joined = bool(_JOINED.fullmatch("".join(words)))
    is_named = joined or bool({*words} & _IDENTIFIERS) or (len(words) == 1 and words[0] in _PERSONS)
    if is_named or (shape and _names_people(name)):
        return True
    even = bool(cells.counts[filled].max() <= max(_FEW_NAMES, _SHARE_OF_ONE * n_filled))  # codes are not
    return shape == "text" and even and n_names >= _SHARE_OF_SHAPES * n_filled


class _Feature(NamedTuple):
    """A column to learn from: which of its different texts stand for no value, always or perhaps."""

    table: Table
    name: str
    cells: Cells
    absent: np.ndarray
    hole: np.ndarray

    @classmethod
    def of(cls, table: Table, name: str, cells: Cells) -> _Feature:
        absent = _absent(cells, table)
        hole = np.array([text.lower() in HOLES for text in cells.texts], dtype=bool) & ~absent
        return cls(table, name, cells, absent, hole)

    @property
    def holes(self) -> list[str]:
        """The spellings that perhaps stand for no value."""
        return sorted(text for text, is_hole in zip(self.cells.texts, self.hole, strict=True) if is_hole)

    def finding(self, kind: str, weight: str, text: str, *options: str, **details: Any) -> Finding:
        return remark(kind, weight, text, *options, column=self.name, **details)


def _column(
    table: Table, name: str, cells: Cells, columns: Columns, *, public: Table | None
) -> Iterator[Finding]:
    """Holes, numbers as text, dates and values of their own in one feature."""
    it = _Feature.of(table, name, cells)
    if it.absent.all():
        yield it.finding("empty column", DOUBT, "is empty", "--drop", name)
        return
    if len(cells.texts) == 1:
        yield it.finding("constant column", NOTE, "holds the same in every row")
        return
    kind = "text" if name in columns.as_text else _kind(table, name, cells, it.absent, public)
    if kind == "date":
        note = encoding.date_note(table.type_of(name)[1])
        yield it.finding("dates", NOTE, f"holds dates{note}: it counts days since 1970-01-01")
    elif kind == "number":
        commas = cells.share([bool(_COMMA.fullmatch(text)) for text in cells.texts])
        holes = cells.share(it.hole)
        unread = float(table.numbers(name)[1].mean()) - holes
        values = np.array([number(text.replace(",", ".")) for text in cells.texts])
        if holes:
            options = [word for text in it.holes for word in _missing_option(text)]
            yield it.finding("holes", DOUBT, "has spellings of no number", *options, values=it.holes)
        if table.form.decimal != "," and commas > _RARE:
            text = "holds numbers with decimal commas"
            yield it.finding("numbers as text", REFUSED, text, "--decimal", ",")
        elif unread > _GRAVE:
            text = "holds no numbers where the public rows do: write them alike, or leave it out"
            yield it.finding("numbers as text", REFUSED, text, "--drop", name)
        elif unread > 0:
            strange = sorted(np.array(cells.texts, dtype=object)[np.isnan(values) & ~(it.absent | it.hole)])
            n_cells = round(unread * len(table))
            many = (
                f"{n_cells:,} cells that are no number, and count"
                if n_cells > 1
                else "a cell that is no number, and counts"
            )
            united = bool(strange) and all(_UNITED.fullmatch(text) for text in strange[:_ENOUGH])
            yield it.finding(
                "numbers as text",
                DOUBT,
                f"holds {many} as missing" + (": some are written with a unit" if united else ""),
                values=strange[:_SHOWN],
            )
        if len(cells.texts) == len(table) >= _ENOUGH_NUMBERS and all(map(str.isdecimal, cells.texts)):
            text = "holds another whole number in every row: if it only numbers the rows, it teaches nothing"
            yield it.finding("values of their own", DOUBT, text, "--drop", name)
        # numbers such as -999 that lie apart from all others, and may stand for none
        declared = {text.strip() for text in columns.missing}
        for text, count in zip(cells.texts, cells.counts.tolist(), strict=True):
            if count == 1 or text in declared or not _SENTINEL.fullmatch(text):
                continue
            value = float(text)
            others = values[np.isfinite(values) & (values != value)]
            if others.size and (value < 0 <= others.min() or value > _APART * others.max() > 0):
                doubt = f"holds {text} apart from all other numbers: does it mean none?"
                yield it.finding("holes", DOUBT, doubt, *_missing_option(text))
    else:
        yield from _of_kinds(it, declared=name in columns.as_text)


def _of_kinds(it: _Feature, *, declared: bool) -> Iterator[Finding]:
    """Cells that are all written alike, values of their own, holes and spellings in a column of kinds."""
    cells = it.cells
    if len(cells.texts) > _FEW_NAMES and not declared:
        many = len(it.table) < _ROWS_OF_A_KIND * len(cells.texts)
        for sign, what, text in _WRITTEN:
            if cells.share([bool(sign.fullmatch(cell)) for cell in cells.texts]) > _OWN:
                yield it.finding(what, DOUBT, text, *(("--drop", it.name) if many else ()))
                return
    filled = ~it.absent & ~it.hole
    n_kinds, n_filled = int(filled.sum()), int(cells.counts[filled].sum())
    sentences = np.mean([len(text.split()) for text in cells.texts]) > _SENTENCE
    if n_filled >= _ENOUGH and n_kinds > _OWN * n_filled and not sentences:
        text = "holds another value in nearly every row, as identifiers and names do"
        yield it.finding("values of their own", DOUBT, text, "--drop", it.name)
    elif it.hole.any():
        text = "has spellings of no value, which are a kind of its own"
        yield it.finding("holes", NOTE, text, values=it.holes)
    is_short = n_kinds <= encoding.MOST_KINDS
    alike = [group for group in _alike(cells.texts) if len(group) > 1] if is_short else []
    if alike:
        yield it.finding(
            "spellings",
            DOUBT,
            "holds kinds that are equal but for case and spaces, and count as different",
            values=(text for group in alike for text in group),
        )


def _alike(texts: Sequence[str]) -> list[list[str]]:
    """Texts that are equal but for case, spaces and zeros after the point; all lower case comes first."""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(_POINT_ZERO.sub(r"\1", " ".join(text.casefold().split())), []).append(text)
    return [sorted(group, key=lambda text: (not text.islower(), text)) for group in groups.values()]


def _kind(table: Table, name: str, cells: Cells, absent: np.ndarray, questions: Table | None) -> str:
    """What a feature is: as the public rows have it, else as most of its cells look."""
    if questions is not None and name in questions.names:
        public = Cells.of(questions, name)
        return _kind(questions, name, public, _absent(public, questions), None)
    kind = table.type_of(name)[0]
    if kind != "text":
        return kind
    numeric = [
        not is_absent
        and bool(np.isfinite(number(text)) or (_COMMA.fullmatch(text) and len(cells.texts) > _SHOWN))
        for text, is_absent in zip(cells.texts, absent, strict=True)
    ]
    others = cells.counts.sum() - cells.counts[absent].sum()
    return "number" if cells.counts[np.array(numeric)].sum() > _MOSTLY * others else "text"


def _public(public: Table, features: Sequence[str], columns: Columns) -> Iterator[Finding]:
    """What is wrong with the public table, column by column."""
    for name in features:
        if name in public.names and name not in columns.as_text and public.type_of(name)[0] == "text":
            it = _Feature.of(public, name, Cells.of(public, name))
            if not it.absent.all() and _kind(public, name, it.cells, it.absent, None) == "number":
                # public numbers with other texts among them, for which the column would be taken for kinds
                strange = public.numbers(name)[1] & ~it.hole[it.cells.codes]
                options = [word for text in it.holes for word in _missing_option(text)]
                if public.form.decimal != "," and any(map(_COMMA.fullmatch, it.cells.texts)):
                    options += ["--decimal", ","]
                what = "has spellings that are read as text"
                if not options:
                    what = (
                        f"a text in data row {public.row(strange)}: mend it, type --missing with what stands "
                        f"for no number, or --text {shlex.quote(name)}"
                    )
                if options or strange.any():
                    yield Finding(
                        kind="holes" if options else "numbers as text",
                        weight=REFUSED,
                        text=f"{public.path}: column {name!r} holds numbers, but {what}",
                        column=name,
                        options=tuple(options),
                        values=tuple(it.holes) if options else (),
                        private=False,
                    )
                continue
        try:
            encoding.understood(public, (name,), as_text=columns.as_text, fill=True)
        except ValueError as error:
            yield Finding(
                kind="public rows",
                weight=REFUSED,
                text=str(error),
                column=name,
                options=("--drop", name),
                private=False,
            )


def _absent(cells: Cells, table: Table) -> np.ndarray:
    return np.array([text.lower() in table.missing for text in cells.texts], dtype=bool)


def require_settled(remarks: Sequence[Finding]) -> None:
    """Refuse where something must be settled first, with all of it in one message.

    Raises
    ------
    ValueError
        Some finding is refused.
    """
    refused = [finding for finding in remarks if finding.weight == REFUSED]
    if refused:
        listed = "; ".join(
            finding.text + (f" [{finding.hint}]" if finding.options and not finding.values else "")
            for finding in refused
        )
        raise ValueError(f"nothing was spent. To settle first: {listed}")
