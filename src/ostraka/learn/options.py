"""What can be typed after ``ostraka learn``, ``labels`` and ``check``, and which of it goes together."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ostraka.console import argument, option, usage
from ostraka.voters.named import DIGITS, TABLES, Defaults, Engine, Relation, Student, Teacher, Way

if TYPE_CHECKING:
    from ostraka.data.schema import Dictionary
    from ostraka.data.task import Columns

_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)", re.ASCII)
_MOST_CLASSES = 1000


class Method(StrEnum):
    """How private labels are learned from."""

    ALIBI = "alibi"
    LP_MST = "lp-mst"
    RESPONSE = "response"
    PATE_FM = "pate-fm"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Options about tables with classes: which columns there are, and how they are read."""

    label: str | None = option(None, "Column of classes to learn.", "COLUMN")
    public: Path | None = option(None, "Public rows, unlabelled, for the teachers to vote on.", "FILE")
    holdout: float | None = option(
        None, "Instead of --public: give up the privacy of this share of the rows.", "SHARE"
    )
    rows_are_people: bool = option(False, "Each row is another person's, whatever a column looks like.")
    drop: list[str] | None = option(None, "Column to leave out; may be repeated.", "COLUMN")
    text: list[str] | None = option(
        None, "Column of kinds that are written as numbers; may be repeated.", "COLUMN"
    )
    classes: str | None = option(
        None, "All classes there may be, or 0..25. Default: those of the label.", "A,B,…"
    )
    same: list[str] | None = option(
        None, "A class and other spellings of it, such as ja=Ja,JA; may be repeated.", "A=B,C"
    )
    drop_unlabelled: bool = option(False, "Leave out rows without a label; which have one is then public.")
    fill: bool = option(False, "Put the public median where a number is missing.")
    missing: list[str] | None = option(
        None, "What stands for a missing number or label, such as -999; may be repeated.", "TEXT"
    )
    dictionary: Path | None = option(
        None,
        "What is documented of the columns, in Frictionless, CSVW, DDI, SDMX or TOML: classes of the label, "
        "columns of kinds, what stands for a missing value, bounds of --target.",
        "FILE",
    )
    encoding: str | None = option(
        None, "Of CSV files, such as cp1252. Default: that of the public file, else UTF-8.", "NAME"
    )
    delimiter: str | None = option(
        None, "Between the cells of CSV files. Default: as in the first line.", "SIGN"
    )
    decimal: str | None = option(
        None, "Decimal sign. Default: a point, or a comma where none is between cells.", "SIGN"
    )
    skip_lines: int | None = option(None, "Lines above the header of the private file.", "N", min=0)
    sheet: str | None = option(None, "Sheet of a workbook. Default: the first.", "NAME")

    def require_in_range(self, *, epsilon: float | None, delta: float | None) -> None:
        """Refuse a budget or a share that cannot be, before any file is read.

        Raises
        ------
        click.UsageError
            Epsilon is not positive, or delta or the share held out is not between 0 and 1.
        """
        typed = ((epsilon, math.inf), (delta, 1.0), (self.holdout, 1.0))
        if all(value is None or 0 < value < end for value, end in typed):
            return  # without numpy, which takes a tenth of a second
        from ostraka.core import check

        if epsilon is not None:
            with usage("--epsilon"):
                check.positive(epsilon=epsilon)
        for name, value in (("delta", delta), ("holdout", self.holdout)):
            if value is not None:
                with usage(f"--{name}"):
                    check.share(zero=False, one=False, **{name: value})

    def require_files(self, private: Path) -> None:
        """Open the tables that are read, of which only the private one may be a folder.

        Raises
        ------
        OSError
            One cannot be opened.
        """
        for path in (private, self.public):
            if path is not None and not (path is private and path.is_dir()):
                path.open("rb").close()

    def columns(self) -> Columns:
        """What these options say about columns and files.

        Raises
        ------
        click.UsageError
            One of them is not of its form.
        """
        from ostraka.data.table import Format
        from ostraka.data.task import Columns

        with usage():
            form = Format(self.delimiter, self.encoding, self.decimal, self.skip_lines, self.sheet).checked()
        same: list[tuple[str, str]] = []
        for text in self.same or ():
            name, _, others = text.partition("=")
            spellings = [other.strip() for other in others.split(",") if other.strip()]
            if not name.strip() or not spellings:
                raise click.UsageError(
                    f"--same {text}: type a class, '=', and other spellings of it: ja=Ja,JA"
                )
            same += [(other, name.strip()) for other in spellings]
        columns = Columns(
            label=self.label or "",
            drop=self.drop or (),
            text=self.text or (),
            classes=classes_of(self.classes or ""),
            fill=self.fill,
            missing=self.missing or (),
            form=form,
            same=same,
            rows_are_people=self.rows_are_people,
            drop_unlabelled=self.drop_unlabelled,
        )
        if self.dictionary is None:
            return columns
        return columns.with_dictionary(self.documented(), self.dictionary)

    def documented(self) -> Dictionary:
        """The data dictionary; one without columns if none was named.

        Raises
        ------
        click.UsageError
            It cannot be read as one.
        """
        from ostraka.data.schema import Dictionary, read_dictionary

        if self.dictionary is None:
            return Dictionary({}, ())
        with usage("--dictionary"):
            return read_dictionary(self.dictionary)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(TableOptions):
    """Options about the tables of people, of whom a class or a number is learned."""

    target: str | None = option(None, "Instead of --label: column of numbers to learn.", "COLUMN")
    bounds: str | None = option(
        None,
        "With --target: the lowest and highest number there can be, such as 0:20000. Public.",
        "LOW:HIGH",
    )
    person: str | None = option(None, "Column that says whom a row belongs to; protects people.", "COLUMN")

    def columns(self) -> Columns:
        """What these options say about columns and files.

        Raises
        ------
        click.UsageError
            One of them is not of its form, or they contradict each other.
        """
        self.require_one_label()
        columns = TableOptions.columns(self)  # not super(): a class with slots is made twice
        if self.target is None:
            return replace(columns, person=self.person)
        bounds = self.bounds
        if bounds is None:
            documented = self.documented().columns.get(self.target, {})
            if "range" not in documented:
                raise click.UsageError(
                    f"{self.dictionary} documents no range of {self.target!r}: type --bounds"
                )
            bounds = "{}:{}".format(*documented["range"])
        return replace(columns, label=self.target, bounds=bounds_of(bounds), classes=(), person=self.person)

    def require_one_label(self) -> None:
        """Refuse both kinds of a label, and what the other kind has.

        Raises
        ------
        click.UsageError
            Options that contradict each other.
        """
        if self.label is not None and self.target is not None:
            raise click.UsageError("--label is for classes and --target for numbers: type one of them")
        if self.target is not None and self.bounds is None and self.dictionary is None:
            raise click.UsageError(
                "type --bounds LOW:HIGH with --target: the lowest and the highest number that there can be. "
                "They are public, so do not look them up in the private rows"
            )
        if self.target is None and self.bounds is not None:
            raise click.UsageError("--bounds are of numbers: type --target and their column")
        if self.target is not None and (self.classes or self.same):
            raise click.UsageError("--classes and --same are for --label: leave them out")


@dataclass(frozen=True, kw_only=True)  # without slots, so that it goes beside a class that has some
class RunOptions:
    """Options of a run that spends a budget and writes a folder."""

    delta: float | None = option(None, "Default: 1e-5 or 0.1 / units, the smaller.", "P")
    ledger: Path | None = option(
        None, "Folder of the ledgers of tables. Default: ostraka-ledgers, beside FILE.", "FOLDER"
    )
    yes: bool = option(False, "Spend without being asked, as scripts do.")
    out: Path = option(Path("run"), "Folder to write.", "FOLDER")
    seed: int = option(0, "Of training and splitting; never of noise.", "N", min=0)
    jobs: int | None = option(None, "Processes. Default: all cores.", "N")
    as_json: bool = option(False, "Print the public record as JSON.", name="--json")
    owner: bool = option(False, "With --json: the owner's part too.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions(RunOptions, ReadOptions):
    """Options of ``ostraka learn``, and the defaults that depend on the data."""

    private: Path | None = argument(
        None,
        "Private rows: CSV, Excel, .npz, Parquet (file or folder). Default: scikit-learn's digits.",
        "FILE",
    )
    allow_overlap: bool = option(False, "Accept public rows that are private rows, too; the label says so.")
    teachers: int | None = option(
        None, "How many. Default: one for 13 units, at most 250; 100 for the digits.", "N"
    )
    teacher: Teacher = option(
        Teacher.AUTO,
        "What is trained on each shard. network needs torch. prompts: nothing is, and a language model "
        "(--model) answers with a few rows of the shard before its eyes.",
    )
    model: str | None = option(
        None,
        "With --teacher prompts: smollm2, a GGUF file, or the URL of an endpoint, with # and a model's name. "
        "It reads private rows.",
        "NAME",
    )
    key_env: str | None = option(None, "Environment variable with the key of --model URL.", "NAME")
    shots: int | None = option(
        None, "With --teacher prompts: private rows in a prompt. Default: 3.", "N", min=1
    )
    student: Student = option(
        Student.AUTO, "What learns from the answers. fixmatch is for many images by counts, and needs torch."
    )
    way: Way | None = option(
        None,
        "argmax: teachers answer questions. counts: every row casts one ballot in all. rounds: "
        "every row votes twelve times for what the model so far gets wrong, for many rows of numbers. "
        "filter: five rounds over a public spectrum, with probabilities, for tables of any width. "
        "auto: what does better on public rows with made-up labels. Default: filter; counts for images, or "
        "argmax where options of teachers are given.",
    )
    relation: Relation = option(
        Relation.REPLACE_ONE,
        "What epsilon is about. replace-one: a row becomes any other. zero-out, by counts, in "
        "rounds or by the filter: a row is left out, which promises less and takes less noise.",
    )
    epsilon: float | None = option(None, "Budget. Default: 1; with argmax 2, or 3.2 for the digits.", "NATS")
    answers: int | None = option(None, "Questions to ask. Default: 100, or ten a class.", "N")
    sigma: float | None = option(None, "Noise, in votes. Default: what the budget pays for.", "VOTES")
    screen: tuple[float, float] | None = option(
        None, "Answer only where a noisy plurality reaches AT votes.", "AT SIGMA"
    )
    auto: bool = option(False, "Choose teachers, noise, screen and questions as 'ostraka plan' does.")
    keep_teachers: bool = option(False, "Also write the teachers, for 'ostraka serve'; they are private.")
    engine: Engine = option(Engine.JOBLIB, "Where the teachers train.")

    @property
    def defaults(self) -> Defaults:
        """The defaults of the options that are not given."""
        return DIGITS if self.private is None else TABLES

    @property
    def of_teachers(self) -> tuple[object, ...]:
        """The values of the options that ``--auto`` chooses."""
        return (self.teachers, self.answers, self.sigma, self.screen)

    def student_for(self, way: Way) -> Any:
        """The student in the options; None: the one that suits the counts or the rounds."""
        if way in {Way.COUNTS, Way.ROUNDS, Way.FILTER} and self.student is Student.AUTO:
            return None
        if way in {Way.ROUNDS, Way.FILTER}:
            raise click.UsageError(f"--way {way} has a student of its own: leave out --student")
        if way is not Way.COUNTS and self.student is Student.FIXMATCH:
            raise click.UsageError("--student fixmatch learns from counts: leave out --way and teachers")
        return self.student.estimator(default=self.defaults.student)

    def chosen_way(self) -> Way | None:
        """The way in the options; None: what suits the rows. Options of teachers imply an argmax."""
        of_teachers = (
            any(choice is not None for choice in self.of_teachers) or self.auto or self.keep_teachers
        )
        models = self.teacher is not Teacher.AUTO or self.student not in {Student.AUTO, Student.FIXMATCH}
        if self.target is not None:
            if self.way is not None or of_teachers or models or self.student is not Student.AUTO:
                raise click.UsageError(
                    "--target has a way of its own, in rounds: leave out --way, --student and options of "
                    "teachers"
                )
            return Way.FILTER
        way = self.way or (Way.ARGMAX if of_teachers or models else None)
        if way is None and self.student is Student.FIXMATCH:
            way = Way.COUNTS
        if self.way not in {None, Way.ARGMAX} and of_teachers:
            raise click.UsageError(
                "--way counts, rounds, filter and auto choose for themselves: leave out --teachers, "
                "--answers, --sigma, --screen, --auto and --keep-teachers"
            )
        if (self.teacher is Teacher.PROMPTS) != (self.model is not None):
            raise click.UsageError("--teacher prompts and --model NAME need each other")
        if self.model is None and (self.shots is not None or self.key_env is not None):
            raise click.UsageError("--shots and --key-env are for --teacher prompts: leave them out")
        if self.teacher is Teacher.PROMPTS and (self.keep_teachers or self.private is None):
            raise click.UsageError(
                "--teacher prompts is for a table: type its FILE, and leave out --keep-teachers"
            )
        if self.relation is Relation.ZERO_OUT and way in {Way.ARGMAX, Way.AUTO}:
            raise click.UsageError(
                "--relation zero-out is for --way counts, rounds and filter: type one of them, and leave out "
                "options of teachers"
            )
        if way is Way.ROUNDS and self.person is not None:
            raise click.UsageError(
                "--way rounds protects rows, not people: type --way counts; or keep one row of each person, "
                "and leave out --person"
            )
        return way


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsOptions(RunOptions, TableOptions):
    """Options of ``ostraka labels``."""

    private: Path = argument(
        ..., "Rows: public features, private labels. CSV, Excel, .npz or Parquet.", "FILE"
    )
    public: Path | None = option(None, "Rows whose labels may be known, to measure accuracy with.", "FILE")
    holdout: float | None = option(
        None, "Instead of --public: give up the privacy of this share of the labels.", "SHARE"
    )
    method: Method = option(
        Method.ALIBI,
        "alibi: every label answers once, with noise, and each step of training corrects the answers. "
        "lp-mst: the same in two stages. response: randomised response, taken as labels. pate-fm: teachers "
        "of few labels each vote, for few labels of many rows.",
    )
    epsilon: float = option(2.0, "Budget.", "NATS")
    epochs: int | None = option(None, "Of each training. Default: what suits the number of rows.", "N", min=1)
    teachers: int | None = option(None, "With pate-fm: how many. Default: 20.", "N", min=1)
    answers: int | None = option(None, "With pate-fm: labels to answer. Default: ten a class.", "N", min=1)
    sigma: float | None = option(None, "With pate-fm: noise. Default: what the budget pays for.", "VOTES")
    screen: tuple[float, float] | None = option(
        None, "With pate-fm: answer only where a noisy plurality reaches AT votes.", "AT SIGMA"
    )

    @property
    def of_teachers(self) -> list[str]:
        """The options that only ``pate-fm`` has, as far as they were typed."""
        names = ("teachers", "answers", "sigma", "screen")
        return [f"--{name}" for name in names if getattr(self, name) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(ReadOptions):
    """Options of ``ostraka check``."""

    private: Path = argument(..., "Private rows: CSV, Excel or Parquet.", "FILE")
    epsilon: float | None = option(None, "Budget. Default: 1.", "NATS")
    delta: float | None = option(None, "Default: 1e-5 or 0.1 / units, the smaller.", "P")
    report: Path | None = option(None, "Also write a page with pictures, for the owner alone.", "FILE")
    as_json: bool = option(False, "Print JSON, with cells of the table: for the owner alone.", name="--json")


def bounds_of(text: str) -> tuple[float, float]:
    """The numbers in ``LOW:HIGH``.

    >>> bounds_of("0:20000"), bounds_of("-2.5:1e3")
    ((0.0, 20000.0), (-2.5, 1000.0))
    """
    low, _, high = text.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = math.nan, math.nan
    if not (math.isfinite(bounds[1] - bounds[0]) and bounds[0] < bounds[1]):
        raise click.UsageError(f"--bounds {text}: type two numbers, the lower first, as in 0:20000")
    return bounds


def classes_of(text: str) -> list[str]:
    """The classes in ``A,B,C`` or ``0..25``.

    >>> classes_of("yes, no"), classes_of("0..3")
    (['yes', 'no'], ['0', '1', '2', '3'])
    """
    if match := _RANGE.fullmatch(text.strip()):
        first, last = map(int, match.groups())
        if not 0 < last - first < _MOST_CLASSES:
            raise click.UsageError(f"--classes {text}: the second number must be larger, by 999 at most")
        return [str(number) for number in range(first, last + 1)]
    return [name.strip() for name in text.split(",") if name.strip()]
