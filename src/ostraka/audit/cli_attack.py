"""``ostraka attack``: what a log of answers reveals, and the outputs of a model or a collaboration."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ostraka import console
from ostraka.audit.cli import EXIT, make_mechanism, read_arrays
from ostraka.console import JSON, Group, argument, option, verb
from ostraka.core import files

if TYPE_CHECKING:
    import numpy as np

    from ostraka.audit.answers import AnswerLog
    from ostraka.audit.attacks.votes import RecoveredVotes
    from ostraka.audit.bound import Finding
    from ostraka.core.mechanisms.law import BallotMechanism
    from ostraka.core.scores import Scores


class Kind(enum.StrEnum):
    """The mechanism that gave the answers."""

    GNMAX = "gnmax"
    LNMAX = "lnmax"


class Method(enum.StrEnum):
    """The method that recovers votes."""

    POSTERIOR = "posterior"
    LIKELIHOOD = "maximum-likelihood"
    WANG2022 = "wang2022"


class Statistic(enum.StrEnum):
    """The statistic by which rows are scored."""

    HIERARCHICAL = "hierarchical"
    LIRA = "lira"
    LIRA_FIXED = "lira-fixed"
    RMIA = "rmia"
    STUDENT_T = "student-t"
    LOSS = "loss"


class _Words(NamedTuple):
    """What an attack scores, which of them it looks for, and what that says."""

    question: str
    things: str = "rows"
    sought: str = "members"
    thing: str = "row"
    note: str = ""


app = Group(
    "Attack a log of answers, a model, a generator or a collaboration. With a claim, exit code 0: "
    "consistent, 4: violated, 5: inconclusive."
)
_SAVED = argument(..., "An .npz file of plain arrays.", "FILE")
_SAMPLES = argument(
    ...,
    "An .npz file of plain arrays, or a folder with the folders members, others and samples of images.",
    "FILE",
)
_DEFENDED = option(None, "The same of a defended model; may be repeated.", "NAME=FILE")
_REPORT = option(None, "HTML page with the curves and the most suspected rows.", "FILE")
_ROWS = option(20, "How many suspected rows are on the page.", "N", min=0)
_CLAIM = option(None, "The claim to compare with.", "NATS")
_DELTA = option(1e-5, "The delta of the claim.", "P")
_RATES = (0.001, 0.01, 0.1)
_COUNT = "Monte Carlo count"
_WORDS = {
    "membership": _Words("It looks for the rows that a model was trained on."),
    "generator": _Words(
        "It looks for the rows that a generator was trained on.",
        note=f"Where there are samples alone, rows near a sample are suspected; under “{_COUNT}”, rows which "
        "many samples are near, within the median distance of rows to their nearest sample.",
    ),
    "property": _Words(
        "It looks for the rounds in which another party's batch held rows with the property.",
        "rounds",
        "with the property",
        "round",
    ),
}
_IMAGES = (".png", ".jpg", ".jpeg")
_MEMBERSHIP = ("confidences", "included", "target", "member")
_WHITE, _BLACK = ("realness", "member"), ("candidates", "samples", "member")
_PROPERTY = ("observed", "has_property", "with_property", "without")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of all attacks on a log of answers."""

    answers: Path = argument(..., "The log, CSV or Parquet: one row an answer.", "FILE")
    mechanism: Kind = option(Kind.GNMAX, "The mechanism that gave the answers.")
    sigma: float | None = option(None, "Gaussian noise, in votes. Needed for gnmax.", "VOTES")
    scale: float | None = option(None, "Laplace scale, in votes. Needed for lnmax.", "VOTES")
    screen: tuple[float, float] | None = option(
        None, "Questions were answered where a noisy plurality reached AT votes (gnmax).", "AT SIGMA"
    )
    classes: str | None = option(None, "How many there are, or A,B,… Default: those in the log.", "N|A,B")
    query: str = option("query", "Column that says which question it was.", "COLUMN")
    label: str = option("label", "Column with the answer; -1 where there was none.", "COLUMN")
    method: Method = option(Method.POSTERIOR, "The method that recovers votes.")
    as_json: bool = option(False, "Print JSON on stdout.", name="--json")

    def read(self) -> tuple[BallotMechanism, AnswerLog]:
        """The mechanism, and what it answered."""
        from ostraka.audit import answers

        screened = self.screen is not None
        name = "confident" if self.mechanism is Kind.GNMAX and screened else self.mechanism.value
        ballot = make_mechanism(name, sigma=self.sigma, scale=self.scale, screen=self.screen)
        query, label, classes = self.query, self.label, self.classes
        log = answers.read(self.answers, query=query, label=label, classes=classes, screened=screened)
        return ballot, log

    def recovered(
        self, log: AnswerLog, ballot: BallotMechanism, teachers: int | None
    ) -> list[RecoveredVotes]:
        """The votes on each question; ``teachers`` is their number, where it is known."""
        from ostraka.audit.attacks.votes import recover_votes

        estimates: list[RecoveredVotes] = []
        with console.Stages({"recover": "questions"}) as stages:
            for row in log.answers:
                estimates.append(
                    recover_votes(row, n_teachers=teachers, mechanism=ballot, method=self.method.value)
                )
                stages("recover", len(estimates), len(log.answers))
        return estimates


@dataclass(frozen=True, slots=True, kw_only=True)
class VotesOptions(LogOptions):
    """Options of ``ostraka attack votes``."""

    teachers: int | None = option(
        None, "How many there are. Default: unknown, votes are relative.", "N", min=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributesOptions(LogOptions):
    """Options of ``ostraka attack attributes``."""

    members: Path = option(..., "Table that says which query is about a member of the group.", "FILE")
    teachers: int = option(..., "How many there are.", "N", min=1)
    member: str = option("member", "Column of that table: 1 or 0.", "COLUMN")
    at: float = option(0.75, "Agreement below which somebody is called a member.", "SHARE")


@verb(app)
def votes(typed: VotesOptions) -> None:
    """Recover the teachers' votes on each question from how often it got each label.

    Example: ostraka attack votes answers.csv --teachers 250 --sigma 40
    """
    ballot, log = typed.read()
    recovered = typed.recovered(log, ballot, typed.teachers)
    first = recovered[0]
    if typed.as_json:
        ends = ("mean", "lower", "upper")
        questions = [
            {"query": name, "answers": row.tolist()}
            | {end: [v if math.isfinite(v) else None for v in getattr(votes, end).tolist()] for end in ends}
            | {"mode": votes.mode.tolist(), "note": votes.note}
            for name, row, votes in zip(log.queries, log.answers, recovered, strict=True)
        ]
        record = {
            "mechanism": repr(ballot),
            "n_teachers": typed.teachers,
            "classes": list(log.classes),
            "method": first.method,
            "relative": first.relative,
            "queries": questions,
        }
        click.echo(json.dumps(record, indent=2))
        return
    rows = []
    for name, row, estimate in zip(log.queries, log.answers, recovered, strict=True):
        cells = [
            f"{mean:.1f}" if math.isnan(low) else f"{mean:.1f} ({low:.0f}–{high:.0f})"
            for mean, low, high in zip(estimate.mean, estimate.lower, estimate.upper, strict=True)
        ]
        rows.append([name, f"{row.sum():,}", *cells])
    console.table(["query", "answers", *log.classes], rows)
    kind = "relative to the mean count" if first.relative else "votes"
    click.echo(f"{kind}: estimate and 95 % interval, by {first.method}")
    for note in sorted({estimate.note for estimate in recovered if estimate.note}):
        click.echo(f"note: {note}", err=True)


@verb(app)
def attributes(typed: AttributesOptions) -> None:
    """Infer who belongs to a group from how little the teachers agree, and score the guesses.

    Example: ostraka attack attributes answers.csv --members members.csv --teachers 250 --sigma 40
    """
    at = typed.at
    if not 0 < at < 1:
        raise click.UsageError(f"--at must be > 0 and < 1, got {at!r}")
    import numpy as np

    from ostraka.audit.answers import read_members
    from ostraka.audit.attacks.votes import consensus_test

    ballot, log = typed.read()
    columns = {"query": typed.query, "member": typed.member}
    member_of = read_members(typed.members, **columns, queries=log.queries)
    estimates = typed.recovered(log, ballot, typed.teachers)
    recovered = np.array([estimate.mean for estimate in estimates]).clip(min=0)
    test = consensus_test(recovered, member_of, at=at)
    if typed.as_json:
        rates = {
            name: getattr(test, name) for name in ("recall", "false_alarm", "at", "n_members", "n_others")
        }
        rates = {"precision_balanced": test.precision, **rates, "advantage": test.scores.advantage()}
        low = (recovered.max(axis=1) / recovered.sum(axis=1) < at).tolist()
        called = dict(zip(log.queries, low, strict=True))
        click.echo(json.dumps({**rates, "called_member": called}, indent=2))
        return
    click.echo(f"below {test.at:.0%} agreement: {test.recall:.1%} of {test.n_members} members")
    click.echo(f"                     {test.false_alarm:.1%} of {test.n_others} others")
    right = "nobody was called a member" if test.precision is None else f"{test.precision:.1%}"
    click.echo(f"called a member and is one, with as many members as others: {right}")


@verb(app)
def membership(
    file: Path = _SAVED,
    *,
    method: Statistic = option(Statistic.HIERARCHICAL, "Choose it before you see the rates."),
    defended: list[str] | None = _DEFENDED,
    claimed_epsilon: float | None = _CLAIM,
    delta: float = _DELTA,
    report: Path | None = _REPORT,
    rows: int = _ROWS,
    as_json: bool = JSON,
) -> None:
    """Infer who was in a model's training data, from confidences of reference models.

    Example: ostraka attack membership model.npz --claimed-epsilon 3
    """
    targets = _targets(file, defended, report=report)
    attacked = {name: attack_membership(path, method=method.value) for name, path in targets.items()}
    finding = _finding(attacked["target"].scores, claimed_epsilon, delta)
    tell("membership", attacked, finding=finding, report=report, rows=rows, as_json=as_json)


@verb(app)
def generator(
    file: Path = _SAMPLES,
    *,
    defended: list[str] | None = _DEFENDED,
    claimed_epsilon: float | None = _CLAIM,
    delta: float = _DELTA,
    report: Path | None = _REPORT,
    rows: int = _ROWS,
    as_json: bool = JSON,
) -> None:
    """Infer who was in a generator's training data, from its discriminator or its samples.

    Samples are attacked in two ways; the first one is compared with a claim.

    Example: ostraka attack generator generator.npz
    """
    attacked = {}
    for name, path in _targets(file, defended, report=report).items():
        for attack, scored in attack_generator(path).items():
            attacked[f"{name}, {attack}" if attack else name] = scored
    finding = _finding(attacked["target"].scores, claimed_epsilon, delta)
    tell("generator", attacked, finding=finding, report=report, rows=rows, as_json=as_json)


@verb(app, name="property")
def property_(
    file: Path = _SAVED,
    *,
    defended: list[str] | None = _DEFENDED,
    seed: int = option(0, "Of the forest.", "N", min=0),
    report: Path | None = _REPORT,
    rows: int = _ROWS,
    as_json: bool = JSON,
) -> None:
    """Infer in which rounds of a collaboration others' batches had a property, from changes.

    Example: ostraka attack property changes.npz
    """
    targets = _targets(file, defended, report=report)
    attacked = {name: attack_property(path, seed=seed) for name, path in targets.items()}
    tell("property", attacked, finding=None, report=report, rows=rows, as_json=as_json)


def tell(
    name: str,
    attacked: dict[str, Attacked],
    *,
    finding: Finding | None,
    report: Path | None,
    rows: int,
    as_json: bool,
) -> None:
    """Print the findings, write the page if requested, and exit with the code of the verdict."""
    results: dict[str, dict[str, Any]] = {}
    for label, attack in attacked.items():
        rates = [attack.scores.rate(fpr=fpr) for fpr in _RATES]
        results[label] = {
            "rows": len(attack.member),
            "left_out": attack.left_out,
            "members": int(attack.member.sum()),
            "auc": attack.scores.auc(),
            "rates": [{"fpr": r.fpr, "tpr": r.tpr, "low": r.low, "high": r.high} for r in rates],
        }
    if report is not None:
        from ostraka.report.figures import receiver_operating_curves

        first = next(iter(attacked.values()))
        suspects = [
            (int(first.numbers[row]), f"{first.statistics[row]:#.3g}", "yes" if first.member[row] else "no")
            for row in (-first.statistics).argsort(kind="stable")[:rows]
        ]
        page = files.environment().get_template("attack.html.j2")
        text = page.render(
            name=name,
            words=_WORDS[name],
            found=results,
            sentence=None if finding is None else finding.sentence,
            drawing=receiver_operating_curves({label: attack.scores for label, attack in attacked.items()}),
            suspects=suspects,
        )
        files.write(report, text, private=True)
    if as_json:
        record = {"attack": name, "found": results, "finding": None if finding is None else finding.to_dict()}
        click.echo(json.dumps(record, indent=2))
    else:
        things, sought = _WORDS[name].things, _WORDS[name].sought
        for label, figures in results.items():
            click.echo(
                f"{label}: {figures['members']} {sought} among {figures['rows']} {things}, "
                f"AUC {figures['auc']:.3f}"
            )
            if figures["left_out"]:
                click.echo(f"  {figures['left_out']} {things} in which nothing was seen are left out")
            for rate in figures["rates"]:
                click.echo(
                    f"  finds {rate['tpr']:.1%} ({rate['low']:.1%} to {rate['high']:.1%}) of them while it "
                    f"accuses {rate['fpr']:.1%} of the others"
                )
        if finding is not None:
            click.echo(finding.sentence)
    if finding is not None:
        raise click.exceptions.Exit(EXIT[finding.verdict])


def _targets(file: Path, defended: list[str] | None, *, report: Path | None) -> dict[str, Path]:
    """The files of the target and of the defended models, by name; a ``report`` must not exist yet."""
    console.require_new(report, option="--report")
    targets = {"target": file}
    for text in defended or []:
        name, equals, path = text.partition("=")
        if not (name and equals and path) or name in targets:
            raise click.UsageError(f"--defended must be NAME=FILE with a new name, got {text!r}")
        targets[name] = Path(path)
    return targets


def _finding(scores: Scores, claimed: float | None, delta: float) -> Finding | None:
    if claimed is None:
        return None
    from ostraka.audit.one_run import audit_canaries

    with console.usage("--claimed-epsilon"):
        return audit_canaries(scores, claimed_epsilon=claimed, delta=delta)


class Attacked(NamedTuple):
    """A statistic for each row (or round), and whether it is a member."""

    statistics: np.ndarray
    member: np.ndarray
    scores: Scores
    numbers: np.ndarray  # of the rows in the file, from 0
    left_out: int = 0  # rounds in which nothing was seen


def attack_membership(file: Path, *, method: str) -> Attacked:
    """Score the rows of one target model by the confidences of reference models."""
    import numpy as np

    from ostraka.audit.attacks.membership import ReferenceModels

    arrays = read_arrays(file, _MEMBERSHIP)
    references = ReferenceModels.from_confidences(arrays["confidences"], _flags(file, arrays, "included"))
    member = _flags(file, arrays, "member")
    scores = references.scores(arrays["target"], member, method=method)
    statistics = references.statistics(arrays["target"], method=method)
    return Attacked(statistics, member, scores, np.arange(len(statistics)))


def attack_generator(file: Path) -> dict[str, Attacked]:
    """Score candidates by the realness that a target and a reference give them, or by samples of both.

    By name of the attack, "" for the first.
    """
    import numpy as np

    from ostraka.audit.attacks.generators import OF_SAMPLES, closeness, residual
    from ostraka.core import check

    if file.is_dir():  # of folders of images of one shape
        check.require("PIL", extra="plots")
        from PIL import Image

        parts: dict[str, np.ndarray] = {}
        for name in ("members", "others", "samples", "reference_samples"):
            paths = sorted(path for path in (file / name).glob("*") if path.suffix.lower() in _IMAGES)
            if name == "reference_samples" and not (file / name).is_dir():
                continue
            if len(paths) < 2:
                raise ValueError(
                    f"{file / name} must hold two images or more (.png or .jpg), got {len(paths)}: put "
                    "images that the generator was trained on into members, like ones that it was not into "
                    "others, and what it gave out into samples"
                )
            images = []
            for path in paths:
                try:
                    images.append(np.asarray(Image.open(path).convert("RGB"), dtype=np.float32) / 255)
                except OSError as error:
                    raise ValueError(f"{path} is no image that can be read: replace or remove it") from error
            if len({image.shape for image in images}) > 1:
                raise ValueError(f"{file / name} must hold images of one size: resize them")
            parts[name] = np.stack([image.ravel() for image in images])
        if len({part.shape[1] for part in parts.values()}) > 1:
            raise ValueError(f"{file}: all images must be of one size: resize them")
        members, others = parts.pop("members"), parts.pop("others")
        candidates = np.concatenate([members, others])
        arrays = parts | {"candidates": candidates, "member": np.arange(len(candidates)) < len(members)}
    else:
        arrays = read_arrays(file, _WHITE, _BLACK, optional=("reference", "reference_samples"))
    if "realness" in arrays:
        values = [
            np.asarray(arrays[name], dtype=np.float64) for name in ("realness", "reference") if name in arrays
        ]
        if values[0].ndim != 1 or values[-1].shape != values[0].shape:
            raise ValueError(f"{file}: realness, and reference, must hold one number a row")
        statistics = {"": values}
    else:
        samples = [arrays[name] for name in ("samples", "reference_samples") if name in arrays]
        if any(
            part.ndim != 2 or part.shape[1:] != samples[0].shape[1:]
            for part in (arrays["candidates"], *samples)
        ) or not all(map(len, samples)):
            raise ValueError(
                f"{file}: candidates and samples must be rows of the same columns, one sample or more: "
                "reshape what is no table to (n_rows, -1)"
            )
        statistics = {
            name: [closeness(arrays["candidates"], part, attacker=attacker) for part in samples]
            for attacker, name in zip(OF_SAMPLES, ("", _COUNT), strict=True)
        }
    return {
        name: _attacked(file, values[0] if len(values) == 1 else residual(*values), arrays, "member")
        for name, values in statistics.items()
    }


def attack_property(file: Path, *, seed: int) -> Attacked:
    """Score rounds by their observed changes, with a forest trained on the observer's own changes."""
    import numpy as np
    from sklearn.ensemble import RandomForestClassifier

    from ostraka.audit.attacks.properties import changed_sizes

    arrays = read_arrays(file, _PROPERTY)
    parts = [arrays[name] for name in ("with_property", "without", "observed")]
    if any(part.ndim != 2 or part.shape[1] != parts[0].shape[1] for part in parts):
        raise ValueError(f"{file}: observed, with_property and without must have one row a change, as wide")
    for name in ("with_property", "without"):
        if len(arrays[name]) < 2:
            raise ValueError(
                f"{file}: {name} must hold two or more changes of the observer's own, got {len(arrays[name])}"
            )
    has = _flags(file, arrays, "has_property")
    changed: np.ndarray = (arrays["observed"] != 0).any(axis=1)  # rounds that hold a change
    if not changed.any():
        raise ValueError(
            f"{file}: observed must hold rounds in which others changed something, but all {len(changed)} "
            "rounds are 0: is there a party beside the observer?"
        )
    if has.shape == changed.shape and (has[changed].all() or not has[changed].any()):
        raise ValueError(
            f"{file}: the property is in {'every' if has[changed].all() else 'no'} round, but has_property "
            "must hold rounds with it and rounds without it"
        )
    parts = [changed_sizes(part) for part in parts]
    labels = np.arange(len(parts[0]) + len(parts[1])) < len(parts[0])
    forest = RandomForestClassifier(50, random_state=seed).fit(np.concatenate(parts[:2]), labels)
    chances = forest.predict_proba(parts[2])[:, 1]
    return _attacked(file, chances, arrays, "has_property", informative=changed)


def _attacked(
    file: Path,
    statistics: np.ndarray,
    arrays: dict[str, np.ndarray],
    name: str,
    *,
    informative: np.ndarray | None = None,
) -> Attacked:
    import numpy as np

    from ostraka.audit.attacks.membership import read_members
    from ostraka.core.scores import Scores

    member = read_members(_flags(file, arrays, name), name=f"{file}: {name}", n_rows=len(statistics))
    rows = np.arange(len(statistics)) if informative is None else np.flatnonzero(informative)
    left_out, statistics, member = len(statistics) - len(rows), statistics[rows], member[rows]
    scores = Scores.of(members=statistics[member], others=statistics[~member])
    return Attacked(statistics, member, scores, rows, left_out)


def _flags(file: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    values = arrays[name]
    if values.dtype != bool and not ((values == 0) | (values == 1)).all():
        raise ValueError(f"{file}: {name} must be 0 or 1")
    return values.astype(bool)
