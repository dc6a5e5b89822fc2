"""The tables of a command as arrays to learn from; public rows alone decide what columns become.

Tables come in files (CSV, Excel, Parquet), in folders of Parquet files, or in ``.npz`` files with one array
of rows (numbers, images or sparse), labels, and optionally people.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ostraka.data import columns as encoding
from ostraka.data.findings import (
    Cells,
    findings,
    form_findings,
    gravity,
    label_findings,
    require_settled,
    target_findings,
)
from ostraka.data.labels import Coded, Labels
from ostraka.data.parquet import (
    ENDINGS,
    ParquetRows,
    Piece,
    Places,
    Reader,
    TextParts,
    files_of,
    pieces_of,
    row_groups,
    schema_of,
)
from ostraka.data.table import (
    EXCEL,
    MISSING,
    UNDECLARED,
    Format,
    Table,
    is_utf8,
    look,
    mark_of,
    opened,
    read,
    read_arrays,
    sheets,
    spans,
    text_form,
    titles_of,
    word,
)
from ostraka.data.units import People, count, numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ostraka.data.columns import Features, Shown
    from ostraka.data.findings import Finding
    from ostraka.data.schema import Dictionary

_MOST_CELLS, _MOST_BYTES = 2**25, 2**28  # of a Parquet file, or of text, whose rows are read into memory
_PART = 2**25  # bytes of text that are read at a time
_TEST = 0.2  # of the public rows, where their labels are known
_SPARSE = {"data", "indices", "indptr", "format", "shape"}  # as scipy.sparse.save_npz writes
_TOPICS = 32
_WIDE = 200  # columns of a sparse matrix, above which it is turned into few
_SAVE = "np.savez('rows.npz', X=X, y=y)"
UNLABELLED = "Which private rows have a label: those without one were left out before anything else."
LABELS_HELD_OUT = "The labels of the held-out rows: they measure accuracy."
HELD_OUT = "The held-out rows: their features are used as public questions, their labels to measure accuracy."


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The options about columns. Public.

    Attributes
    ----------
    label : str
        What to learn.
    person : str or None
        Whom a row belongs to; None: every row is its own unit.
    drop, text : sequence of str
        Columns to leave out; columns of kinds, even if they are written as numbers.
    classes : sequence of str
        The classes there may be; empty: those of the private labels, which then count as public. A private
        label that is none of them counts as the first.
    fill : bool
        Put the public median where a number is missing. Otherwise public rows must have all numbers, and the
        public mean stands for a missing private one.
    missing : sequence of str
        What stands for no number, beside the usual, and for no label.
    form : Format
        How the private file is read, where that is declared. Lines above the header of a public file are
        found.
    same : sequence of (str, str)
        Spellings of labels, and the class that each stands for.
    rows_are_people : bool
        Declares that no two rows are of one person, whatever a column looks like.
    drop_unlabelled : bool
        Leave out private rows without a label. Which rows have one is then public.
    bounds : (low, high) or None
        The label is a number between these, the target of a regression. None: it is a class.
    documented : sequence of str
        Further columns of kinds, by a data dictionary; the table need not have them.
    dictionary : Path or None
        Its file.
    """

    label: str
    person: str | None = None
    drop: Sequence[str] = ()
    text: Sequence[str] = ()
    classes: Sequence[str] = ()
    fill: bool = False
    missing: Sequence[str] = ()
    form: Format = UNDECLARED
    same: Sequence[tuple[str, str]] = ()
    rows_are_people: bool = False
    drop_unlabelled: bool = False
    bounds: tuple[float, float] | None = None
    documented: Sequence[str] = ()
    dictionary: Path | None = None

    def with_dictionary(self, known: Dictionary, path: Path) -> Columns:
        """The same, with the classes, kinds and missing values of a data dictionary; what is typed counts."""
        listed = known.columns.get(self.label, {}).get("categories", ())
        return replace(
            self,
            classes=self.classes or (listed if self.bounds is None else ()),
            missing=(*self.missing, *known.missing),
            documented=known.kinds(),
            dictionary=path,
        )

    @property
    def as_text(self) -> tuple[str, ...]:
        """Columns of kinds, even if they are written as numbers."""
        return (*self.text, *self.documented)

    @property
    def option(self) -> str:
        """The option that names the column to learn."""
        return "--label" if self.bounds is None else "--target"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Task:
    """Arrays to learn from. Its repr shows no values.

    Attributes
    ----------
    name : str
        Public.
    X_private, y_private, groups : arrays
        Private. ``groups`` is None when a row is the unit. Of a folder, ``X_private`` stays in the files.
    X_public : array of shape (n_public, n_features)
        Public rows to ask the teachers about.
    public_rows : integer array of shape (n_public,)
        Where these stand in their file, from 0.
    X_test, y_test : arrays or None
        Public rows with their true labels that are never asked about, to measure accuracy with.
    classes : array or None
        Public. None: the labels' own.
    bounds : (low, high) or None
        Labels are numbers, which are declared to be between these; NaN where there is none. Public.
    encoder : fitted transformer or None
        From a table's cells, in the order of ``columns``, to the features: learned from public rows.
    columns : tuple of str
        Public.
    not_protected : tuple of str
        Public sentences.
    said : tuple of str
        How the tables were read, where that is not the usual way.
    shown : Shown or None
        How the public table was read, for the files of the student.
    array : str
        Name of the array of rows in an ``.npz`` file; empty for tables.
    image_shape : (height, width) or None
        Rows are grey images.
    unread : dict
        How many private cells of a column held something else than it should, and were read as the missing
        value or the first class. For the owner alone; not counted in folders.
    findings : tuple of Finding
        What is wrong or doubtful. Those about private rows are for the owner alone.
    of_labels : bool
        The features of the private table are public, and one label is the unit.
    texts : (list of str, list of str) or None
        Private rows, and public ones to ask about, as texts for prompts; None where none were asked for.
    """

    name: str
    X_private: Any
    y_private: np.ndarray
    groups: np.ndarray | People | None
    X_public: np.ndarray
    public_rows: np.ndarray
    X_test: np.ndarray | None
    y_test: np.ndarray | None
    classes: np.ndarray | None
    encoder: Any
    columns: tuple[str, ...]
    bounds: tuple[float, float] | None = None
    not_protected: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    shown: Shown | None = None
    array: str = ""
    image_shape: tuple[int, int] | None = None
    unread: dict[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    of_labels: bool = False
    texts: tuple[list[str], list[str]] | None = None

    @property
    def sizes(self) -> dict[str, Any]:
        """Numbers of units, classes and public rows, by which a run is planned."""
        return {"n_units": self.n_units, "n_classes": self.n_classes, "n_public": len(self.X_public)}

    @property
    def shape(self) -> Shape:
        """Return the facts that may be printed about a task."""
        return Shape(
            name=self.name,
            n_rows=len(self.y_private),
            n_features=self.X_private.shape[1],
            n_public=len(self.X_public),
            unit="label" if self.of_labels else "row" if self.groups is None else "person",
            n_units=self.n_units,
            classes_declared=self.classes is not None or self.bounds is not None,
            bounds=self.bounds,
            said=self.said,
            not_protected=self.not_protected,
        )

    @property
    def n_units(self) -> int:
        """The number of rows, or of people."""
        return count(len(self.y_private) if self.groups is None else self.groups)

    @property
    def n_classes(self) -> int:
        """The number of classes declared, else of those in the labels; 1 where labels are numbers."""
        if self.bounds is not None:
            return 1
        return len(Labels.of(self.y_private, self.classes).classes)


class Shape(NamedTuple):
    """Public facts about a task, for printing."""

    name: str
    n_rows: int
    n_features: int
    n_public: int
    unit: str
    n_units: int
    classes_declared: bool
    bounds: tuple[float, float] | None
    said: tuple[str, ...]
    not_protected: tuple[str, ...]


def digits(*, seed: int) -> Task:
    """Return scikit-learn's digits: 1,150 as private rows, 450 as public ones, 197 to measure accuracy."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    test, public, private = np.split(np.random.default_rng(seed).permutation(len(y)), [197, 647])
    return Task(
        name="scikit-learn's digits",
        X_private=X[private],
        y_private=y[private],
        groups=None,
        X_public=X[public],
        public_rows=public,
        X_test=X[test],
        y_test=y[test],
        classes=np.arange(10),
        encoder=None,
        columns=tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
        image_shape=(8, 8),
    )


def tables(
    private: Path,
    public: Path | None,
    *,
    columns: Columns,
    holdout: float | None,
    seed: int,
    texts: bool = False,
    here: bool = False,
) -> Task:
    """Read a private table and a public one, or hold rows out of the private one; rows as ``texts``, too.

    Rows of a folder stay in their files, and those of one large file, unless something needs them ``here``.

    Raises
    ------
    ValueError
        The tables cannot be used: the message says what, where, and what to type.
    """
    require_public(private, public, holdout)
    if texts and (private.is_dir() or private.suffix.lower() == ".npz"):
        raise ValueError(
            f"prompts show cells of one table, and {private} is none: type a CSV or Parquet file"
        )
    if ".npz" in {path.suffix.lower() for path in (private, public) if path is not None}:
        return _of_arrays(private, public, columns=columns, holdout=holdout, seed=seed)
    questions, numbers = None, list[str]()
    if public is not None:
        questions = read(public, public=True, form=public_form(public, columns.form), missing=columns.missing)
        # what is a number there is likely one in the private rows; dates are left out here
        aside = {columns.label, columns.person, *columns.drop, *columns.as_text}
        names = [name for name in questions.names if name not in aside]
        numbers = [name for name in names if questions.type_of(name)[0] == "number"]
    if questions is None or not (private.is_dir() or (not (here or texts) and _is_large(private, columns))):
        return of_tables(
            read(
                private,
                public=False,
                form=columns.form,
                like=questions,
                numbers=numbers,
                missing=columns.missing,
            ),  # which nobody else holds: functools.partial would, while it is learned from
            questions,
            columns=columns,
            holdout=holdout,
            seed=seed,
            texts=texts,
        )
    store = Store.of(private, columns, like=questions, numbers=numbers)
    return of_tables(
        store.table(columns),
        questions,
        columns=columns,
        holdout=holdout,
        seed=seed,
        texts=texts,
        store=store,
    )


def labelled(
    private: Path, known: Path | None, *, columns: Columns, holdout: float | None, seed: int
) -> Task:
    """A table whose features are public and whose labels are private, and rows to measure accuracy with.

    Parameters
    ----------
    private : Path
    known : Path, optional
        Rows whose labels may be known.
    columns : Columns
    holdout : float in (0, 1), optional
        Instead: the share of rows whose labels are given up.
    seed : int

    Raises
    ------
    ValueError
        The tables cannot be used: the message says what, where, and what to type.
    """
    if private.suffix.lower() == ".npz":
        return _labelled_arrays(private, known, columns=columns, holdout=holdout, seed=seed)
    if private.is_dir():
        raise ValueError(f"{private} is a folder: type one file")
    table = read(private, public=False, form=columns.form, missing=columns.missing)
    names = _features(table, columns)
    table, n_unlabelled = _labelled(table, columns)
    remarks = _found(table, columns, questions=None)
    if not columns.rows_are_people:
        # in words for labels: who owns several of them pays for each
        remarks = [
            replace(
                remark,
                text=f"column {remark.column!r} looks like an identifier that repeats: epsilon is for one "
                "label, and whoever owns several pays it for each. Keep one row of each person, or "
                "accept that by --rows-are-people",
                options=("--rows-are-people",),
            )
            if remark.kind == "unit"
            else remark
            for remark in remarks
        ]
    require_settled(remarks)
    measured = None
    if holdout is not None:
        chosen = _held_out(len(table), None, share=holdout, seed=seed)
        table, measured = table.split(chosen)
    elif known is not None:
        measured = read(known, public=True, form=public_form(known, columns.form), missing=columns.missing)
    rows = replace(table, public=True)
    labels, strange, y = _learned(table, measured, columns)
    if measured is not None:
        _require_known(y, measured.path, f"column {columns.label!r}")
    unknown = _unknown_classes(y, labels, columns, where=known)
    features, type_notes = encoding.understood(rows, names, as_text=columns.as_text, fill=columns.fill)
    encoder = encoding.encoder(rows, features)
    X = encoding.matrix(rows, features, encoder)
    return Task(
        **_facts(private, columns, labels, strange, remarks),
        X_private=X,
        groups=None,
        X_public=X,
        public_rows=table.numbering - 1,
        X_test=None if measured is None else encoding.matrix(measured, features, encoder),
        y_test=y,
        encoder=encoder,
        columns=names,
        not_protected=((LABELS_HELD_OUT,) if holdout is not None else ())
        + ((UNLABELLED,) if n_unlabelled else ()),
        said=tuple(dict.fromkeys((*table.said, *unknown, *type_notes))),
        shown=encoding.Shown.of(rows, features),
        of_labels=True,
    )


def of_tables(
    table: Table,
    questions: Table | None,
    *,
    columns: Columns,
    holdout: float | None,
    seed: int,
    texts: bool = False,
    store: Store | None = None,
) -> Task:
    """A private table and a public one as arrays; without one, rows are held out.

    Of rows that stay in a ``store``, ``table`` has labels and people. A caller who keeps no other reference
    to ``table`` needs memory for little more than the arrays.

    Raises
    ------
    ValueError
        As for :func:`tables`.
    """
    private, public = table.path, None if questions is None else questions.path
    if columns.bounds is not None and private.is_dir():
        raise ValueError(f"the rows of {private} stay in their files: --target is for one file")
    names = _features(table, columns)
    table, n_unlabelled = _labelled(table, columns)
    remarks = _found(table, columns, questions=questions, store=store)
    require_settled(remarks)
    if questions is None:
        owners = encoding.people(table, columns.person)
        table, questions = table.split(_held_out(len(table), owners, share=holdout or 0.0, seed=seed))
        questions = replace(questions, public=True)
    labels, strange, y = _learned(table, questions, columns, coded=store is not None)
    facts = _facts(private, columns, labels, strange, remarks)
    unknown = _unknown_classes(y, labels, columns, where=public)
    test = _tested(len(questions), labelled=y is not None, seed=seed)
    features, type_notes = encoding.understood(questions, names, as_text=columns.as_text, fill=columns.fill)
    encoder = encoding.encoder(questions.split(test)[0], features)
    X = encoding.matrix(questions, features, encoder)
    groups = store.people[0] if store is not None and store.people else encoding.people(table, columns.person)
    notes = (*table.said, *questions.said, *unknown, *type_notes)
    shown = (_written(table, names), _written(questions.split(~test)[1], names)) if texts else None
    held_table = [table]
    del table  # so that its memory is free again while it is transformed
    X_private: Any
    if store is not None:
        X_private = store.rows(features, encoder, n_features=X.shape[1])
    else:
        X_private = encoding.matrix(held_table.pop(), features, encoder, unread=facts["unread"])
    return Task(
        **facts,
        X_private=X_private,
        groups=groups,
        X_public=X[~test],
        public_rows=questions.numbering[~test] - 1,
        X_test=X[test] if test.any() else None,
        y_test=y[test] if y is not None and test.any() else None,
        encoder=encoder,
        columns=names,
        not_protected=((HELD_OUT,) if public is None else ()) + ((UNLABELLED,) if n_unlabelled else ()),
        said=tuple(dict.fromkeys(notes)),
        shown=encoding.Shown.of(questions.split(test)[0], features),
        texts=shown,
    )


def require_public(private: Path, public: Path | None, holdout: float | None) -> None:
    """Refuse a command that names no public rows, or two kinds.

    Raises
    ------
    ValueError
        Neither a public table nor a share to hold out was given, or both, or no share.
    """
    if public is not None and holdout is not None:
        raise ValueError("--public and --holdout exclude each other: public rows come from one place")
    if public is None and holdout is None:
        raise ValueError(
            "the teachers need public rows to answer questions about, and none were named. Type --public "
            "FILE for unlabelled rows that may be known to anybody, or --holdout 0.2 to give up the privacy "
            f"of a fifth of {private}"
        )
    if holdout is not None and not 0 < holdout < 1:
        raise ValueError(f"--holdout must be > 0 and < 1, got {holdout!r}")


def public_form(path: Path, declared: Format) -> Format:
    """How a public file is read: as declared, but for the lines above its header, and with its own sheet.

    A declared code page is the private file's where the public one is UTF-8: no text is both by accident.
    """
    if path.suffix.lower() in ENDINGS:
        return declared
    sheet = declared.sheet
    if sheet is not None and (path.suffix.lower() not in EXCEL or sheet not in sheets(path)):
        sheet = None
    encoding = declared.encoding
    if encoding is not None and path.suffix.lower() not in EXCEL and is_utf8(path):
        encoding = None
    form = declared._replace(sheet=sheet, encoding=encoding)
    return form._replace(skip=titles_of(path, form))


def n_rows_of(path: Path, form: Format) -> int | None:
    """The number of rows, before one is read: as Parquet files state it, or of the lines of a text; or None.

    Each line of a private text is a row, but for blank ones and the header.
    """
    ending = path.suffix.lower()
    if ending in {*EXCEL, ".npz"}:
        return None
    if path.is_dir() or ending in ENDINGS:
        try:
            last = pieces_of(files_of(path))[-1]
        except (ValueError, OSError):
            return None  # who reads it says what is wrong with it
        return last.first + last.n_rows
    if _is_utf16(path, form):
        return None
    with opened(path) as file:
        lines = (bool(line.strip()) for line in file)
        return max(0, sum(itertools.islice(lines, form.skip or 0, None)) - 1)


def _is_large(path: Path, columns: Columns) -> bool:
    """Whether a file is so large that its rows stay there: by its number of cells, or of bytes of text."""
    ending = path.suffix.lower()
    if columns.bounds is not None or columns.drop_unlabelled or ending in {*EXCEL, ".gz"}:
        return False
    if ending not in ENDINGS:
        return path.stat().st_size > _MOST_BYTES and not _is_utf16(path, columns.form)
    import pyarrow as pa
    from pyarrow import parquet

    try:
        facts = parquet.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False  # who reads it says what is wrong with it
    return bool(facts.num_rows * facts.num_columns > _MOST_CELLS)


def _is_utf16(path: Path, form: Format) -> bool:
    """Whether lines of a text do not end with one byte: by its declared encoding, else by its first bytes."""
    with opened(path) as file:
        code = form.encoding or mark_of(file.read(4)) or ""
    return code.lower().replace("_", "-").startswith(("utf-16", "utf16"))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Store:
    """A private table whose rows stay in their files.

    Attributes
    ----------
    path : Path
        A file, or a folder of Parquet files.
    files : tuple of Path
    names : tuple of str
        Of the columns.
    pieces : list of Piece
        Those of a text have no number of rows before :meth:`table` has read them.
    read : callable
        As of :class:`~ostraka.data.parquet.ParquetRows`.
    form : Format
    missing : tuple of str
    notes : tuple of str
    people : list of People
        Whom each row belongs to, once :meth:`table` has read a column of people.
    """

    path: Path
    files: tuple[Path, ...]
    names: tuple[str, ...]
    pieces: list[Piece]
    read: Reader
    form: Format
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    people: list[People] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path, columns: Columns, *, like: Table, numbers: Sequence[str]) -> Store:
        """What the files' metadata and a text's first line say; no row is read."""
        missing = (*MISSING, *(text.strip().lower() for text in columns.missing))
        form = columns.form
        if not path.is_dir() and path.suffix.lower() not in ENDINGS:
            form, names = text_form(path, columns.form, like=like.form, public=False)
            used = tuple(name for name in names if name)
            reader = TextParts(
                form=form, names=tuple(names), numbers=tuple(numbers), missing=tuple(columns.missing)
            )
            pieces = [
                Piece(str(path.resolve()), number, 0, -1, span)
                for number, span in enumerate(spans(path, size=_PART))
            ]
            said = (f"{path} {form.said}",) if form.said else ()
            return cls(
                path=path,
                files=(path,),
                names=used,
                pieces=pieces,
                read=reader,
                form=form,
                missing=missing,
                notes=said,
            )
        files = files_of(path)
        entries = sorted({entry.name for entry in path.iterdir()} if path.is_dir() else ())
        others = [name for name in entries if name not in {file.name for file in files}]
        notes = tuple(
            f"{path} holds files which are not Parquet and are left out, such as {name}"
            for name in others[:1]
        )
        return cls(
            path=path,
            files=tuple(files),
            names=tuple(schema_of(files).names),
            pieces=list(pieces_of(files)),
            read=row_groups,
            form=form._replace(decimal=form.decimal or "."),
            missing=missing,
            notes=notes,
        )

    def table(self, columns: Columns) -> Table:
        """Labels of all rows, as codes of their texts; other columns are there by name alone."""
        import pyarrow as pa

        wanted = [name for name in dict.fromkeys((columns.label, columns.person)) if name in self.names]
        places = {name: Places() for name in wanted}
        pieces, first = list[Piece](), 0
        for piece, frame in self.read(self.pieces, wanted):
            part = Table(self.path, frame, np.arange(0), self.missing, form=self.form)
            for name in wanted:
                some, texts = part.kinds(name)
                places[name].add(texts, some)
            pieces.append(piece._replace(first=first))
            first += len(frame)
        if not first:
            raise ValueError(f"{self.path} has column names but no rows")
        if self.pieces[0].n_rows < 0:
            self.pieces[:] = [piece for piece in pieces if piece.n_rows]
        if columns.person in places and columns.person != columns.label:
            named = places.pop(columns.person)
            if "" in named:
                raise ValueError(encoding.NOBODY.format(self.path, columns.person))
            different, codes = np.array(list(named)), named.codes()
            named.clear()  # which takes more room than all that comes after
            self.people[:] = [People.joined(different, codes)]
        cells = {
            name: pa.DictionaryArray.from_arrays(places[name].codes(), pa.array(list(places[name])))
            if name in places
            else pa.nulls(first)
            for name in self.names
        }
        return Table(self.path, pa.table(cells), np.arange(0), self.missing, said=self.notes, form=self.form)

    def rows(self, features: Features, encoder: Any, *, n_features: int) -> ParquetRows:
        """The features of all rows, which workers compute from the files as public rows have decided."""
        work = partial(
            _piece_features, features=features, encoder=encoder, missing=self.missing, form=self.form
        )
        return ParquetRows(tuple(self.pieces), features.names, work, n_features, self.files, self.read)

    def sample(self) -> Table:
        """The first rows, with all columns."""
        frame = next(frame for _, frame in self.read(self.pieces, self.names))
        rows = np.arange(1, len(frame) + 1)
        return Table(self.path, frame, rows, self.missing, form=self.form)


def _piece_features(
    frame: Any, piece: Piece, *, features: Features, encoder: Any, missing: tuple[str, ...], form: Format
) -> np.ndarray:
    table = Table(Path(piece.path), frame, np.arange(0), missing, form=form)
    return encoding.matrix(table, features, encoder)


def _facts(
    private: Path, columns: Columns, labels: np.ndarray, strange: np.ndarray, remarks: Sequence[Finding]
) -> dict[str, Any]:
    """What every task has: its name, the labels with their classes, and what was found in the tables."""
    return {
        "name": private.name,
        "y_private": labels,
        "classes": encoding.spelled(columns.classes, labels.dtype) if columns.classes else None,
        "bounds": columns.bounds,
        "unread": {columns.label: int(strange.sum())} if strange.any() else {},
        "findings": tuple(remarks),
    }


def _learned(
    table: Table, questions: Table | None, columns: Columns, *, coded: bool = False
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Private labels, which of them could not be read, and those of the public rows if all have one."""
    name, y = columns.label, None
    public = questions if questions is not None and name in questions.names else None
    if columns.bounds is not None:
        numbers, strange = table.numbers(name)
        if public is not None and np.isfinite(targets := public.numbers(name)[0]).all():
            y = targets
        return numbers, strange, y
    codes, texts = table.kinds(name)
    where, same = f"{table.path}: column {name!r} (--label)", dict(columns.same)
    classes, unread = encoding.labels(where, texts, columns.classes, same=same, missing=columns.missing)
    labels: Any = Coded.joined(classes, codes) if coded else classes[codes]
    if public is not None:
        places, spellings = public.kinds(name)
        where = f"{public.path}: column {name!r}"
        known = encoding.known_labels(where, spellings, like=labels, same=same, missing=columns.missing)
        y = None if known is None else known[places]
    return labels, unread[codes], y


def _written(table: Table, names: Sequence[str]) -> list[str]:
    """Each row as a text: its cell, or the columns' names and cells."""
    columns = [table.text(name) for name in names]
    if len(columns) == 1:
        return columns[0]
    return [
        "; ".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True))
        for row in zip(*columns, strict=True)
    ]


def _labelled(table: Table, columns: Columns) -> tuple[Table, int]:
    """The rows with a label, where the others are to be left out; and how many these are."""
    if not columns.drop_unlabelled:
        return table, 0
    if table.path.is_dir():
        raise ValueError(
            f"the rows of {table.path} stay in their files: --drop-unlabelled is for one file, so write the "
            "rows with labels to files of their own"
        )
    codes, texts = table.kinds(columns.label)
    empty = [not text for text in encoding.joined(texts, same={}, missing=columns.missing)]
    keep = ~np.array(empty, dtype=bool)[codes]
    if not keep.any():
        raise ValueError(f"{table.path}: no row has a label in column {columns.label!r} ({columns.option})")
    return table.split(keep)[1], int((~keep).sum())


def _found(
    table: Table, columns: Columns, *, questions: Table | None, store: Store | None = None
) -> list[Finding]:
    """What is wrong or doubtful; of rows in a store in all labels, and of one file in its first rows, too."""
    if store is None:
        remarks = findings(table, columns, public=questions)
    else:
        remarks = list(label_findings(Cells.of(table, columns.label), columns))
        if not store.path.is_dir():
            of_first = findings(store.sample(), columns, public=questions)
            remarks += [remark for remark in of_first if remark.column != columns.label]
            remarks.sort(key=gravity)
    if not table.path.is_file() or table.path.suffix.lower() in ENDINGS:
        return remarks
    shape = look(table.path, columns.form, like=None if questions is None else questions.form)
    declared = (
        table.form if table.form.sheet or not shape.sheets else table.form._replace(sheet=shape.usual.sheet)
    )
    return form_findings(shape, declared) + remarks


def _features(table: Table, columns: Columns) -> tuple[str, ...]:
    """Return the columns to learn from, after a check that all columns named by options exist."""
    named = [(columns.label, columns.option), (columns.person, "--person")]
    named += [(name, "--drop") for name in columns.drop] + [(name, "--text") for name in columns.text]
    for name, option in named:
        if name is not None:
            table.require(name, option=option)
    aside = {columns.label, columns.person, *columns.drop}
    features = tuple(name for name in table.names if name not in aside)
    if not features:
        raise ValueError(
            f"{table.path} has no columns besides {columns.option}, --person and --drop: nothing to learn "
            "from"
        )
    return features


def _known_of_array(rows: Rows, columns: Columns, *, like: np.ndarray) -> np.ndarray | None:
    """Public labels of an array, as the private ones are written; None where some row has none."""
    if rows.labels is None:
        return None
    if columns.bounds is not None:
        numbers = rows.labels.astype(np.float64)
        return numbers if np.isfinite(numbers).all() else None
    names, codes = _array_kinds(rows.labels)
    known = encoding.known_labels(
        f"{rows.path}: array {columns.label!r}",
        [word(name) for name in names],
        like=like,
        same=dict(columns.same),
        missing=columns.missing,
    )
    return None if known is None else known[codes]


def _unknown_classes(
    y: np.ndarray | None, labels: np.ndarray, columns: Columns, *, where: Path | None
) -> tuple[str, ...]:
    """Say that public labels are no classes, or refuse where most are: accuracy would be measured wrongly."""
    if (
        y is None or where is None or columns.bounds is not None
    ):  # held-out rows, whose labels are of the private table
        return ()
    classes = (
        encoding.spelled(columns.classes, labels.dtype) if columns.classes else Labels.of(labels).classes
    )
    y = y.astype(labels.dtype) if labels.dtype.kind != "U" else y
    lost = ~np.isin(y, classes)
    if not lost.any():
        return ()
    examples = ", ".join(repr(str(label)) for label in np.unique(y[lost])[:3])
    sentence = (
        f"{where}: {lost.sum():,} of {len(lost):,} public rows have a label in column {columns.label!r} "
        f"that is none of the {len(classes)} classes, such as {examples}"
    )
    if 2 * lost.sum() > len(lost):
        raise ValueError(
            f"{sentence}: spell labels as in the private file, or remove the column, and no accuracy is "
            "measured"
        )
    return (f"{sentence}; these rows count as wrong",)


def _held_out(n_rows: int, people: np.ndarray | None, *, share: float, seed: int) -> np.ndarray:
    """Return a mask of held-out rows; all rows of a person are held out together."""
    units, n_units, _ = numbered(n_rows if people is None else people)
    n_held = round(share * n_units)
    if not 0 < n_held < n_units:
        raise ValueError(f"--holdout {share:g} leaves one side empty: there are {n_units} units")
    chosen = np.random.default_rng(seed).permutation(n_units)[:n_held]
    return np.isin(units, chosen)


def _tested(n_rows: int, *, labelled: bool, seed: int) -> np.ndarray:
    """Choose the public rows that measure accuracy and are not asked about."""
    test = np.zeros(n_rows, dtype=bool)
    if labelled:
        test[np.random.default_rng(seed).permutation(n_rows)[: round(_TEST * n_rows)]] = True
    return test


def _of_arrays(
    private: Path, public: Path | None, *, columns: Columns, holdout: float | None, seed: int
) -> Task:
    """Return a task from ``.npz`` files, with rows held out of the private one if there is no public one."""
    rows = _arrays(private, columns, private=True)
    if public is None:
        chosen = _held_out(rows.X.shape[0], rows.people, share=holdout or 0.0, seed=seed)
        rows, questions = rows.part(~chosen), rows.part(chosen)
        _checked(private, rows.name, questions.X, private=False)
        places = np.flatnonzero(chosen)
    else:
        questions = _arrays(public, columns, private=False)
        places = np.arange(questions.X.shape[0])
    X, X_public, step = _dense(rows, questions)
    facts = _array_facts(rows, columns)
    y = _known_of_array(questions, columns, like=facts["y_private"])
    test = _tested(len(X_public), labelled=y is not None, seed=seed)
    return Task(
        **facts,
        X_private=X,
        groups=rows.people,
        X_public=X_public[~test],
        public_rows=places[~test],
        X_test=X_public[test] if test.any() else None,
        y_test=y[test] if y is not None and test.any() else None,
        encoder=step,
        not_protected=(HELD_OUT,) if public is None else (),
        said=_unknown_classes(y, facts["y_private"], columns, where=public),
    )


def _labelled_arrays(
    private: Path, known: Path | None, *, columns: Columns, holdout: float | None, seed: int
) -> Task:
    """As :func:`labelled`, of ``.npz`` files."""
    rows, others = _arrays(private, columns, private=True), None
    if holdout is not None:
        chosen = _held_out(rows.X.shape[0], None, share=holdout, seed=seed)
        rows, others = rows.part(~chosen), rows.part(chosen)
    elif known is not None:
        others = _arrays(known, columns, private=False)
        if others.labels is None:
            raise ValueError(f"{known} has no array {columns.label!r}: no accuracy can be measured")
    _checked(private, rows.name, rows.X, private=False)  # features are public
    X_test, X, step = _dense(rows if others is None else others, rows)
    facts = _array_facts(rows, columns)
    y = None if others is None else _known_of_array(others, columns, like=facts["y_private"])
    if others is not None:
        _require_known(y, others.path, f"array {columns.label!r}")
    return Task(
        **facts,
        X_private=X,
        groups=None,
        X_public=X,
        public_rows=np.arange(len(X)),
        X_test=None if others is None else X_test,
        y_test=y,
        encoder=step,
        not_protected=(LABELS_HELD_OUT,) if holdout is not None else (),
        said=_unknown_classes(y, facts["y_private"], columns, where=known),
        of_labels=True,
    )


def _require_known(y: np.ndarray | None, path: Path, place: str) -> None:
    if y is None:
        raise ValueError(
            f"{path}: some rows have no label in {place}, and so no accuracy can be measured: leave such "
            "rows out, or leave out --public"
        )


def _array_facts(rows: Rows, columns: Columns) -> dict[str, Any]:
    """As :func:`_facts`, and what a task has of arrays."""
    where, labels = f"{rows.path}: array {columns.label!r} ({columns.option})", rows.labels
    if columns.bounds is not None:
        if labels is None or labels.dtype.kind not in "biuf":
            raise ValueError(f"{where} must hold numbers")
        y = labels.astype(np.float64)
        strange, remarks = np.isinf(y), tuple(target_findings(y, columns))
        require_settled(remarks)
    elif labels is None or labels.dtype.kind not in "biufU":
        raise ValueError(f"{where} must hold classes: whole numbers or texts")
    else:
        names, codes = _array_kinds(labels)
        counts = np.bincount(codes, minlength=len(names))
        remarks = tuple(label_findings(Cells([word(name) for name in names], counts, codes), columns))
        require_settled(remarks)
        classes, unread = encoding.labels(
            where, names, columns.classes, same=dict(columns.same), missing=columns.missing
        )
        y, strange = classes[codes], unread[codes]
    return {
        **_facts(rows.path, columns, y, strange, remarks),
        "columns": tuple(f"{rows.name}_{place}" for place in range(rows.X.shape[1])),
        "array": rows.name,
        "image_shape": rows.image_shape,
    }


def _array_kinds(labels: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """The different labels of an array, in order, and the place of each row's."""
    values = labels.astype(np.int64) if labels.dtype.kind == "b" else labels
    names, codes = np.unique(values, return_inverse=True)
    return names.tolist(), codes


class Rows(NamedTuple):
    """Arrays of one file, whose values may be private.

    ``X`` has shape (n_rows, n_columns), dense or sparse; ``image_shape`` is that of grey images; ``name`` is
    the array's name; ``labels`` and ``people`` are None where the file has none.
    """

    path: Path
    X: Any
    labels: np.ndarray | None
    people: np.ndarray | None
    name: str
    image_shape: tuple[int, int] | None

    def __repr__(self) -> str:
        return f"Rows({self.path}, shape={self.X.shape})"

    def part(self, rows: np.ndarray) -> Rows:
        """Return the selected rows."""
        labels = None if self.labels is None else self.labels[rows]
        people = None if self.people is None else self.people[rows]
        return self._replace(X=self.X[rows], labels=labels, people=people)


def _arrays(path: Path, columns: Columns, *, private: bool) -> Rows:
    """Read the rows of a file.

    Raises
    ------
    ValueError
        No ``.npz`` file of plain arrays, no or several arrays of rows, or not a label for each row.
    """
    arrays: dict[str, Any] = read_arrays(path, how=_SAVE)
    aside = {name: arrays.pop(name, None) for name in (columns.label, columns.person) if name is not None}
    for name, option in ((columns.label, columns.option), (columns.person, "--person")):
        if private and name is not None and aside[name] is None:
            raise ValueError(
                f"{path} has no array {name!r} ({option}); it has {', '.join(arrays) or 'none'}: write one "
                f"file by {_SAVE}"
            )
    for name in columns.drop:
        arrays.pop(name, None)
    if set(arrays) >= _SPARSE:
        from scipy import sparse

        kinds = {b"csr": sparse.csr_array, b"csc": sparse.csc_array}
        kind = kinds.get(arrays["format"].item())
        if kind is None:
            raise ValueError(f"{path} holds a sparse matrix of another kind than CSR or CSC: write X.tocsr()")
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        rows_name, X = "X", kind(parts, shape=tuple(arrays["shape"].tolist())).tocsr()
    else:
        tables_of = {name: array for name, array in arrays.items() if array.ndim >= 2}
        if len(tables_of) != 1:
            raise ValueError(
                f"{path} must have one array of rows beside the labels, has {', '.join(tables_of) or 'none'}"
                f": leave others out by --drop, or write it by {_SAVE}"
            )
        ((rows_name, X),) = tables_of.items()
    for column, option in ((columns.label, columns.option), (columns.person or "", "--person")):
        values = aside.get(column)
        if values is not None and values.shape != (X.shape[0],):
            raise ValueError(
                f"{path}: {option} must have one value for each of {X.shape[0]:,} rows, has shape "
                f"{values.shape}"
            )
    shape = X.shape[1:3] if X.ndim == 3 or (X.ndim == 4 and X.shape[3] == 1) else None
    labels, people = aside[columns.label], aside.get(columns.person or "")
    flat = X if X.ndim == 2 else X.reshape(len(X), -1)
    return Rows(path, _checked(path, rows_name, flat, private=private), labels, people, rows_name, shape)


def _dense(private: Rows, public: Rows) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return both as dense arrays, and the step, fitted on public rows, which reduced wide sparse rows.

    Where a private number is not finite stands the public mean of its column, or zero in a sparse matrix.
    """
    if private.X.shape[1] != public.X.shape[1]:
        raise ValueError(
            f"{private.path} has {private.X.shape[1]:,} numbers a row and {public.path} "
            f"{public.X.shape[1]:,}: both must have the same"
        )
    if hasattr(private.X, "toarray"):
        private.X.data[~np.isfinite(private.X.data)] = 0.0
    else:
        means = np.asarray(public.X.mean(axis=0)).ravel()
        private = private._replace(X=np.where(np.isfinite(private.X), private.X, means))
    sparse = [hasattr(part.X, "toarray") for part in (private, public)]
    if not any(sparse) or private.X.shape[1] <= _WIDE:
        parts = zip((private, public), sparse, strict=True)
        return *(part.X.toarray() if is_sparse else part.X for part, is_sparse in parts), None
    from sklearn.decomposition import TruncatedSVD
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n_topics = max(1, min(_TOPICS, public.X.shape[0] - 1))
    step = make_pipeline(TruncatedSVD(n_components=n_topics, random_state=0), StandardScaler()).fit(public.X)
    return step.transform(private.X), step.transform(public.X), step


def _checked(path: Path, name: str, X: Any, *, private: bool) -> Any:
    values = X.data if hasattr(X, "toarray") else X
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{path}: array {name!r} must hold numbers, has dtype {values.dtype}")
    if not X.shape[0]:
        raise ValueError(f"{path} has no rows")
    if not (private or np.isfinite(values.astype(np.float64, copy=False)).all()):
        raise ValueError(
            f"{path}: array {name!r} has cells that are missing or infinite: put public numbers there, such "
            "as the public median"
        )
    return X.astype(np.float64)
