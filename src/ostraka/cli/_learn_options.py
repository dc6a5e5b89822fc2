"""The options of ``ostraka learn``, and their defaults for tables and for the digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ostraka.cli._models import DIGITS, TABLES, Defaults, Engine, Relation, Student, Teacher, Way, chosen_way

__all__ = ["LearnOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnOptions:
    """Options of ``ostraka learn``, and the defaults that depend on the data."""

    context: typer.Context
    private: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Private rows: CSV, Excel, .npz, Parquet (file or folder). Default: scikit-learn's digits.",
        ),
    ] = None
    label: Annotated[str | None, typer.Option(help="Column to learn.", metavar="COLUMN")] = None
    public: Annotated[
        Path | None,
        typer.Option(help="Public rows, unlabelled, for the teachers to vote on.", metavar="FILE"),
    ] = None
    holdout: Annotated[
        float | None,
        typer.Option(
            help="Instead of --public: give up the privacy of this share of the rows.", metavar="SHARE"
        ),
    ] = None
    allow_overlap: Annotated[
        bool,
        typer.Option(
            "--allow-overlap", help="Accept public rows that are private rows, too; the label says so."
        ),
    ] = False
    person: Annotated[
        str | None,
        typer.Option(help="Column that says whom a row belongs to; protects people.", metavar="COLUMN"),
    ] = None
    drop: Annotated[
        list[str] | None, typer.Option(help="Column to leave out; may be repeated.", metavar="COLUMN")
    ] = None
    text: Annotated[
        list[str] | None,
        typer.Option(help="Column of kinds that are written as numbers; may be repeated.", metavar="COLUMN"),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(help="All classes there may be. Default: those of the label.", metavar="A,B,…"),
    ] = None
    fill: Annotated[bool, typer.Option("--fill", help="Put the public median where a number is missing.")] = (
        False
    )
    missing: Annotated[
        list[str] | None,
        typer.Option(help="What stands for a missing number, such as -999; may be repeated.", metavar="TEXT"),
    ] = None
    teachers: Annotated[
        int | None,
        typer.Option(
            help="How many. Default: one for 13 units, at most 250; 100 for the digits.", metavar="N"
        ),
    ] = None
    teacher: Annotated[Teacher, typer.Option(help="What is trained on each shard.")] = Teacher.AUTO
    student: Annotated[
        Student,
        typer.Option(
            help="What learns from the answers. fixmatch is for many images by counts, and needs torch."
        ),
    ] = Student.AUTO
    way: Annotated[
        Way | None,
        typer.Option(
            help="argmax: teachers answer questions. counts: every row casts one ballot in all. rounds: "
            "every row votes twelve times for what the model so far gets wrong, for many rows of numbers. "
            "auto: what does better on public rows with made-up labels. Default: counts, or argmax where "
            "options of teachers are given."
        ),
    ] = None
    relation: Annotated[
        Relation,
        typer.Option(
            help="What epsilon is about. replace-one: a row becomes any other. zero-out, by counts or in "
            "rounds only: a row is left out, which promises less and takes less noise."
        ),
    ] = Relation.REPLACE_ONE
    epsilon: Annotated[
        float | None,
        typer.Option(help="Budget. Default: 1; with argmax 2, or 3.2 for the digits.", metavar="NATS"),
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="Default: 1e-5 or 0.1 / units, the smaller.", metavar="P")
    ] = None
    answers: Annotated[
        int | None, typer.Option(help="Questions to ask. Default: 100, or ten a class.", metavar="N")
    ] = None
    sigma: Annotated[
        float | None,
        typer.Option(help="Noise, in votes. Default: what the budget pays for.", metavar="VOTES"),
    ] = None
    screen: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Answer only where a noisy plurality reaches AT votes.", metavar="AT SIGMA"),
    ] = None
    auto: Annotated[
        bool,
        typer.Option("--auto", help="Choose teachers, noise, screen and questions as 'ostraka plan' does."),
    ] = False
    out: Annotated[Path, typer.Option(help="Folder to write.", metavar="FOLDER")] = Path("run")
    seed: Annotated[
        int, typer.Option(help="Of training and splitting; never of noise.", min=0, metavar="N")
    ] = 0
    keep_teachers: Annotated[
        bool,
        typer.Option(
            "--keep-teachers", help="Also write the teachers, for 'ostraka serve'; they are private."
        ),
    ] = False
    engine: Annotated[Engine, typer.Option(help="Where the teachers train.")] = Engine.JOBLIB
    jobs: Annotated[int | None, typer.Option(help="Processes. Default: all cores.", metavar="N")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the public record as JSON.")] = False
    owner: Annotated[bool, typer.Option("--owner", help="With --json: the owner's part too.")] = False

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
        if way in {Way.COUNTS, Way.ROUNDS} and self.student is Student.AUTO:
            return None
        if way is Way.ROUNDS:
            raise typer.BadParameter("--way rounds has a student of its own: leave out --student")
        if way is not Way.COUNTS and self.student is Student.FIXMATCH:
            raise typer.BadParameter("--student fixmatch learns from counts: leave out --way and teachers")
        return self.student.estimator(default=self.defaults.student)

    def chosen_way(self) -> Way:
        """The way in the options, else the default."""
        way = chosen_way(
            self.way,
            named=(*self.of_teachers, self.auto or None, self.keep_teachers or None),
            models=(self.teacher is not Teacher.AUTO, self.student not in {Student.AUTO, Student.FIXMATCH}),
            default=self.defaults.way,
        )
        if self.relation is Relation.ZERO_OUT and way not in {Way.COUNTS, Way.ROUNDS}:
            raise typer.BadParameter(
                "--relation zero-out is for --way counts and --way rounds: type one of them, and leave out "
                "options of teachers"
            )
        if way is Way.ROUNDS and self.person is not None:
            raise typer.BadParameter(
                "--way rounds protects rows, not people: type --way counts; or keep one row of each person, "
                "and leave out --person"
            )
        return way
