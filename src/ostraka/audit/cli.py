"""``ostraka audit``: compare what is seen to leak with what was promised; the exit code is for CI."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ostraka import console
from ostraka.console import JSON, Group, Stages, argument, option, verb
from ostraka.voters.named import Teacher

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ostraka.audit.bound import Finding

    Score = Mapping[str, tuple[str, ...]]

EXIT = {"consistent": 0, "violated": 4, "inconclusive": 5}
app = Group(
    "Compare what is seen to leak with what was promised. Exit code 0: consistent, 4: violated, "
    "5: inconclusive."
)
_SHOWN_DELTA = option(
    None, "Also show each number converted to epsilon at this delta, as an illustration.", "P"
)
_CONFIDENCE = option(0.95, "Probability that the lower bound holds.", "P")
_SIGMA = option(None, "Gaussian noise, in votes.", "VOTES")
_SCALE = option(None, "Laplace noise of lnmax, in votes.", "VOTES")
_AT = option(None, "Where the threshold lies, in votes.", "VOTES")
_SCREEN = option(None, "For confident: answer where a noisy plurality reaches AT votes.", "AT SIGMA")
_FIGURE = option(None, "SVG file to draw the promise, the exact value and the bound.")
_HELD_OUT = 0.2  # of the rows, from which no teacher learns: questions are asked about them
_PILOT = 10  # one answer in so many chooses the set of outcomes
_OTHER_PARTITIONS = (
    "These answers say nothing of one target unless both deployments dealt all other rows to the same "
    "teachers, with the same seeds: honest deployments with partitions of their own differ by many ballots. "
    "Say --same-partition if they did. Of the two deployments as they are:"
)
_NEEDS = {
    "gnmax": ("sigma",),
    "lnmax": ("scale",),
    "threshold": ("at", "sigma"),
    "confident": ("screen", "sigma"),
}
_TYPED = {
    "sigma": "--sigma VOTES",
    "scale": "--scale VOTES",
    "at": "--at VOTES",
    "screen": "--screen AT SIGMA",
}


@verb(app)
def mechanism(
    name: str = argument(..., "gnmax, lnmax, threshold or confident.", "NAME"),
    *,
    votes: str = option(..., "Votes of each class, such as 14,12,10.", "COUNTS"),
    neighbour: str = option(..., "The same with one ballot moved, such as 13,13,10.", "COUNTS"),
    sigma: float | None = _SIGMA,
    scale: float | None = _SCALE,
    at: float | None = _AT,
    screen: tuple[float, float] | None = _SCREEN,
    trials: float = option(1e6, "Answers to draw in each world, such as 1e6.", "N"),
    method: str = option("k-cut", "k-cut, 2-cut or 2-cut-anytime.", "NAME"),
    until: float | None = option(
        None, "Stop as soon as this share of the promise is seen to leak, such as 0.9.", "SHARE"
    ),
    delta: float | None = _SHOWN_DELTA,
    confidence: float = _CONFIDENCE,
    figure: Path | None = _FIGURE,
    as_json: bool = JSON,
) -> None:
    """Sample a mechanism of this library in two neighbouring worlds.

    Example: ostraka audit mechanism gnmax --sigma 2 --votes 14,12 --neighbour 13,13
    """
    from ostraka.audit.bound import Measure
    from ostraka.audit.claims import AUDIT_ORDERS, audit_mechanism, audit_until, sample_outcomes
    from ostraka.audit.cuts import Method
    from ostraka.core.curve import Curve

    _require_delta(delta)
    _require_svg(figure)
    n_trials, allowed = _whole(trials, until), get_args(Method)
    ballot = make_mechanism(name, sigma=sigma, scale=scale, at=at, screen=screen)
    if method not in allowed:
        raise click.UsageError(f"--method must be one of {', '.join(allowed)}, got {method!r}")
    worlds = [_votes(votes, "--votes"), _votes(neighbour, "--neighbour")]
    settings: dict[str, Any] = {"trials": 1000 if until else n_trials, "method": method}
    with console.usage("--votes, --neighbour"):
        finding = audit_mechanism(ballot, *worlds, confidence=confidence, **settings)
    if until is not None:  # sample until this share of the promise is seen to leak; what leaks is known above

        def ask(world: list[float], n: int) -> np.ndarray:
            return sample_outcomes(ballot, world, trials=n)

        exact = {m.what: m.exact for m in finding.measures}
        with console.usage("--votes, --neighbour"), Stages({"answers": "answers in each world"}) as progress:
            seen = audit_until(
                *(partial(ask, world) for world in worlds),
                promise=ballot.curve(),
                wanted=until,
                max_trials=n_trials,
                confidence=confidence,
                progress=partial(progress, "answers"),
            )
            progress("answers", seen.trials, seen.trials)
        measures = tuple(replace(m, exact=exact[m.what]) for m in seen.measures)
        finding = replace(seen, name=finding.name, measures=measures)
    if delta is not None and finding.measures:
        # the epsilon to which each column would convert, in one way, were it an upper bound
        columns = {
            "upper": [m.upper for m in finding.measures],
            "exact": [m.exact or 0.0 for m in finding.measures],
            "lower": [m.lower for m in finding.measures],
        }
        epsilons = {name: Curve(AUDIT_ORDERS, tuple(c)).epsilon(delta) for name, c in columns.items()}
        line = Measure(what=f"epsilon at delta {delta:g} (illustration, no lower bound)", **epsilons)
        finding = replace(finding, measures=(*finding.measures, line))
    tell((finding,), figure=figure, as_json=as_json)


@verb(app)
def answers(
    with_target: Path = argument(..., "Answers seen with the target: CSV or Parquet, one a row.", "WITH"),
    without_target: Path = argument(..., "Answers seen without it.", "WITHOUT"),
    *,
    claimed_epsilon: float = option(..., "The claim.", "NATS"),
    delta: float = option(..., "The delta of the claim.", "P"),
    column: str | None = option(None, "Column of the answers, where the files have several.", "NAME"),
    group: int = option(1, "Units in which the two files differ; the bound is for one.", "N"),
    confidence: float = _CONFIDENCE,
    as_json: bool = JSON,
) -> None:
    """Compare two files of answers of a black box with a claim.

    Example: ostraka audit answers with.csv without.csv --claimed-epsilon 3 --delta 1e-5
    """
    import numpy as np

    from ostraka.audit.claims import audit_answers
    from ostraka.data import table as tables

    worlds = []
    for file in (with_target, without_target):
        table = tables.read(file, public=True)
        if column is None and len(table.names) != 1:
            raise click.UsageError(f"{file} has {len(table.names)} columns: say --column NAME")
        name = column or table.names[0]
        table.require(name, option="--column")
        if len(table) < 2:
            raise ValueError(f"{file} must hold two answers or more, got {len(table)}")
        values, strange = table.numbers(name)
        if not strange.any() and (values != values.round()).any():
            raise click.UsageError(
                f"{file}: column {name!r} holds numbers that are not whole, and answers are classes: cut "
                "them into a few, or audit scores with ostraka audit canaries"
            )
        worlds.append(table.text(name))
    names = sorted({*worlds[0], *worlds[1]})
    if len(names) < 2:
        raise ValueError(
            "both files hold one and the same answer only: there is nothing to tell worlds apart by"
        )
    place = {name: number for number, name in enumerate(names)}
    counts = [np.bincount([place[label] for label in world], minlength=len(names)) for world in worlds]
    claim: dict[str, Any] = {"claimed_epsilon": claimed_epsilon, "delta": delta}
    with console.usage("the claim"):
        finding = audit_answers(*counts, **claim, confidence=confidence, group=group)
    tell((finding,), as_json=as_json)


@verb(app)
def deployment(
    url: str = argument(..., "A deployment whose data hold the target.", "URL"),
    neighbour_url: str = argument(..., "The same, without the target.", "NEIGHBOUR"),
    *,
    question: Path = option(..., "The row to ask repeatedly: a JSON list or a CSV file.", "FILE"),
    claimed_epsilon: float = option(..., "The claim.", "NATS"),
    delta: float = option(..., "The delta of the claim.", "P"),
    trials: float = option(10_000, "Answers to draw in each world, such as 1e6.", "N"),
    until: float = option(
        1.0, "Stop as soon as this share of the promise is seen to leak, such as 0.9.", "SHARE"
    ),
    same_partition: bool = option(
        False,
        "Both deployments dealt all other rows to the same teachers, with the same seeds. Else "
        "the verdict is at most inconclusive.",
    ),
    confidence: float = _CONFIDENCE,
    key_variable: str = option(
        "OSTRAKA_AUDIT_KEY", "Environment variable that holds the key, sent as a bearer token.", "NAME"
    ),
    record: Path | None = option(
        None, "CSV file that keeps every answer; the same command goes on from it.", "FILE"
    ),
    batch: int = option(100, "Rows in a request.", "N"),
    rate: float | None = option(None, "Requests a second at most, to each deployment.", "N"),
    as_json: bool = JSON,
) -> None:
    """Ask two deployments over HTTP the same question.

    Example: ostraka audit deployment https://a.example https://b.example --question row.json
    --claimed-epsilon 3 --delta 1e-5
    """
    import numpy as np

    from ostraka.audit.answers import Deployment
    from ostraka.audit.claims import audit_until

    n_trials = _whole(trials, until)
    if n_trials < 2 * _PILOT or batch < 1 or (rate is not None and not rate > 0):
        raise click.UsageError(f"--trials must be {2 * _PILOT} or more, --batch 1 or more, --rate above 0")
    if not 0 <= delta < 1 or not claimed_epsilon >= 0:
        raise click.UsageError("--delta must be at least 0 and below 1, --claimed-epsilon at least 0")
    row, key = _row(question), os.environ.get(key_variable)
    settings: dict[str, Any] = {"key": key, "record": record, "batch": batch, "rate": rate}
    with console.usage("URL, NEIGHBOUR, --record"):
        worlds = [
            Deployment(address, row, world=world, **settings)
            for address, world in ((url, "with"), (neighbour_url, "without"))
        ]
    with contextlib.ExitStack() as stack:
        for world in worlds:
            stack.callback(world.close)
        n_pilot = n_trials // _PILOT
        pilot = [world.ask(n_pilot) for world in worlds]
        # what was not seen in the pilot is one outcome, the last: the outcomes are fixed before any trial
        names = sorted({*pilot[0], *pilot[1]})
        place = {name: number for number, name in enumerate(names)}

        def tally(answers: list[str]) -> np.ndarray:
            counts = Counter(place.get(answer, len(names)) for answer in answers)
            return np.array([counts[number] for number in range(len(names) + 1)])

        with Stages({"answers": "answers of each deployment"}) as progress:
            finding = audit_until(
                *(lambda n, world=world: tally(world.ask(n)) for world in worlds),
                promise=claimed_epsilon,
                delta=delta,
                wanted=until,
                confidence=confidence,
                max_trials=n_trials - n_pilot,
                first=min(100, n_trials - n_pilot),
                pilot=(tally(pilot[0]), tally(pilot[1])) if min(map(len, pilot)) >= 2 else None,
                progress=partial(progress, "answers"),
            )
            progress("answers", finding.trials, finding.trials)
    spent = [
        f"The deployment {name} the target: {world.refused}."
        for name, world in zip(("with", "without"), worlds, strict=True)
        if world.refused
    ]
    title = f"two deployments, {len(names)} answers seen"
    finding = replace(finding, name=title, note=" ".join([finding.note, *spent]))
    if not same_partition and finding.verdict != "inconclusive":
        sentence = f"{_OTHER_PARTITIONS} {finding.sentence}"
        finding = replace(finding, verdict="inconclusive", sentence=sentence)
    tell((finding,), as_json=as_json)


@verb(app)
def adversaries(
    private: Path = argument(..., "Rows to learn from: CSV or Parquet.", "FILE"),
    *,
    label: str = option(..., "The column to learn.", "COLUMN"),
    drop: list[str] | None = option(None, "A column to leave out; may be repeated.", "COLUMN"),
    mechanism_name: str = option("gnmax", "gnmax, lnmax or confident.", "NAME", name="--mechanism"),
    sigma: float | None = _SIGMA,
    scale: float | None = _SCALE,
    screen: tuple[float, float] | None = _SCREEN,
    teacher: Teacher = option(Teacher.AUTO, "What is trained on each shard."),
    teachers: int = option(50, "Number of shards.", "N"),
    trainings: int = option(10, "Trainings from which the laws of the ballots are estimated.", "N"),
    questions: int = option(10, "Held-out rows to ask about.", "N"),
    trials: float = option(1e8, "Answers to draw in each world, such as 1e6.", "N"),
    delta: float | None = _SHOWN_DELTA,
    confidence: float = _CONFIDENCE,
    seed: int = option(0, "Of the trainings and the trials.", min=0),
    figure: Path | None = _FIGURE,
    as_json: bool = JSON,
) -> None:
    """Play every adversary against teachers of your own data.

    Example: ostraka audit adversaries private.csv --label ill --sigma 40
    """
    import numpy as np

    from ostraka.audit.adversaries import Adversary, audit_adversary
    from ostraka.audit.worlds import Retraining, TeacherWorlds
    from ostraka.data import task as _data

    ballot = make_mechanism(mechanism_name, sigma=sigma, scale=scale, screen=screen)
    _require_delta(delta)
    _require_svg(figure)
    n_trials = _whole(trials)
    if min(teachers, trainings, questions) < 1:
        raise click.UsageError("--teachers, --trainings and --questions must be 1 or more")
    columns = _data.Columns(label=label, drop=drop or [], rows_are_people=True)
    task = _data.tables(private, None, columns=columns, holdout=_HELD_OUT, seed=seed)
    if len(task.y_private) < teachers:
        raise click.UsageError(f"--teachers must be at most the rows to learn from, {len(task.y_private)}")
    classes, y = np.unique(task.y_private, return_inverse=True)
    truth = np.asarray(task.y_test)
    answerable = np.flatnonzero(np.isin(truth, classes))[:questions]
    queries, labels = np.asarray(task.X_test)[answerable], np.searchsorted(classes, truth[answerable])
    shards: dict[str, Any] = {"X": np.asarray(task.X_private), "y": y, "n_teachers": teachers}
    settings: dict[str, Any] = {"delta": delta, "trials": n_trials, "confidence": confidence}
    findings: list[Finding] = []
    with Stages({"audits": "adversaries played"}) as progress:
        for name, fixed in (("PATE", False), ("CaPC", True)):  # shards dealt anew, and fixed parties
            estimator = teacher.estimator(default=Teacher.TREE)
            training = Retraining(estimator=estimator, **shards, n_classes=len(classes), fixed=fixed)
            world = ballot, queries, labels
            system = TeacherWorlds(training, n_trainings=trainings, seed=seed)
            for adversary in get_args(Adversary):
                rng = np.random.default_rng(seed)
                findings.append(audit_adversary(adversary, system, *world, name=name, **settings, rng=rng))
                progress("audits", len(findings), 2 * len(get_args(Adversary)))
    tell(tuple(findings), figure=figure, as_json=as_json)


@verb(app)
def canaries(
    file: Path = argument(
        ..., "An .npz file: probabilities, trained and decoys; or scores of members and others.", "FILE"
    ),
    *,
    claimed_epsilon: float | None = option(None, "The claim.", "NATS"),
    claimed_mu: float | None = option(None, "The claim is Gaussian differential privacy.", "MU"),
    delta: float = option(0.0, "The delta of the claim.", "P"),
    at: float | None = option(None, "Labels: confidence below which nothing is guessed.", "P"),
    guesses: int | None = option(None, "How many to guess, fixed before they were seen.", "N"),
    confidence: float = _CONFIDENCE,
    as_json: bool = JSON,
) -> None:
    """Compare canaries in a training, with other labels or in or out, with the claim.

    Example: ostraka audit canaries model.npz --claimed-epsilon 3
    """
    import numpy as np

    from ostraka.audit.attacks.membership import Canaries
    from ostraka.audit.one_run import audit_canaries
    from ostraka.core.curve import Curve
    from ostraka.core.scores import Scores

    if (claimed_epsilon is None) == (claimed_mu is None):
        raise click.UsageError("the claim must be either --claimed-epsilon or --claimed-mu")
    arrays = read_arrays(file, ("probabilities", "trained", "decoys"), ("members", "others"))
    inclusion = "members" in arrays
    if inclusion:
        scores = Scores.of(**arrays)
    else:
        probabilities, labels, decoys = (arrays[name] for name in ("probabilities", "trained", "decoys"))
        if probabilities.ndim != 2:
            raise ValueError(
                f"{file}: probabilities must be of shape (n_canaries, n_classes), got {probabilities.shape}"
            )
        decoys = decoys[:, None] if decoys.ndim == 1 else decoys
        sizes: dict[str, Any] = {"positions": np.arange(labels.size), "n_classes": probabilities.shape[1]}
        scores = Canaries(labels=labels, decoys=decoys, **sizes).scores(probabilities)
    settings: dict[str, Any] = {"delta": delta, "confidence": confidence, "at": at, "guesses": guesses}
    with console.usage("the claim"):
        curve = None if claimed_mu is None else Curve.gaussian(sensitivity=claimed_mu, sigma=1.0)
        claim: dict[str, Any] = {"claimed_epsilon": claimed_epsilon, "curve": curve}
        finding = audit_canaries(scores, game="inclusion" if inclusion else "labels", **claim, **settings)
    tell((finding,), as_json=as_json)


@verb(app)
def library(
    *,
    trials: float = option(1e6, "Answers to draw in each world, such as 1e6.", "N"),
    planted: bool = option(False, "Audit broken builds, too, and count how many are detected."),
    as_json: bool = JSON,
) -> None:
    """Audit this installation: noise, price, shards, door and ledger.

    Example: ostraka audit library --planted
    """
    from ostraka.audit.library import audit_library, mutation_score

    findings = audit_library(trials=_whole(trials))
    tell(findings, score=mutation_score() if planted else None, as_json=as_json)


def tell(
    findings: tuple[Finding, ...],
    *,
    score: Score | None = None,
    figure: Path | None = None,
    as_json: bool,
) -> None:
    """Print the findings, draw them if requested, and exit with the code of the worst verdict."""
    if figure is not None:
        from ostraka.audit.bound import Finding
        from ostraka.report import figures

        drawings = figures.figures(Finding.result(findings))
        if not drawings:
            raise ValueError("there is nothing to draw: a figure needs two orders, or two audits of one kind")
        figure.write_text(drawings[0].svg, encoding="utf-8")
    verdicts = {finding.verdict for finding in findings}
    if score is not None and not all(score.values()):
        verdicts.add("inconclusive")  # an audit that misses a defect proves nothing
    worst = next((name for name in ("violated", "inconclusive") if name in verdicts), "consistent")
    if as_json:
        record: dict[str, Any] = {"verdict": worst, "findings": [finding.to_dict() for finding in findings]}
        if score is not None:
            record["planted"] = [{"defect": name, "detected_by": list(by)} for name, by in score.items()]
        click.echo(json.dumps(record, indent=2))
        raise click.exceptions.Exit(EXIT[worst])
    for finding in findings:
        click.echo(f"{finding.verdict.upper()}  {finding.name}")
        once = any(m.anew_lower is not None for m in finding.measures)
        heads = ["", "at least (seen)", "exactly", "at most (promised)"]
        if once:
            anew = "trained anew each time: seen"
            heads = ["", "trained once: seen", "model", "cap of the model", anew, "model", "promised"]
        rows = []
        for m in finding.measures:
            exact, anew, cap = ("" if v is None else f"{v:.4g}" for v in (m.exact, m.anew_exact, m.cap))
            cells = [_rounded(m.lower, "down"), exact, _rounded(m.upper, "up")]
            if once:
                cells[2:2] = [cap, _rounded(m.anew_lower or 0.0, "down"), anew]
            rows.append([m.what, *cells])
        console.table(heads, rows)
        click.echo(finding.sentence)
        what = "canaries" if "canaries" in finding.name else "trials a world"
        click.echo(f"{finding.trials:,} {what}, {finding.method}. {finding.note}\n")
    if score is not None:
        for name, by in score.items():
            click.echo(f"{'detected' if by else 'MISSED'}  {name}")
        detected = sum(map(bool, score.values()))
        click.echo(f"mutation score: {detected} of {len(score)} planted defects detected")
    raise click.exceptions.Exit(EXIT[worst])


def _rounded(value: float, direction: str) -> str:
    """Round to four decimals or two digits, lower bounds down and upper bounds up."""
    if not math.isfinite(value):
        return "inf"
    places = max(4, 1 - math.floor(math.log10(value))) if value > 0 else 4
    return f"{(math.floor if direction == 'down' else math.ceil)(value * 10**places) / 10**places:.{places}f}"


def _require_delta(delta: float | None) -> None:
    """Refuse a delta that is none before anything is sampled."""
    from ostraka.core import check

    if delta is not None:
        with console.usage("--delta"):
            check.delta(delta)


def _require_svg(figure: Path | None) -> None:
    """Refuse another kind of drawing before anything is sampled."""
    if figure is not None and figure.suffix.lower() != ".svg":
        raise click.UsageError(f"--figure {figure}: what is drawn is SVG, so type a name that ends with .svg")


def _whole(trials: float, until: float | None = None) -> int:
    """A number of trials, unless it or the share at which to stop is out of range."""
    if not 2 <= trials <= 1e10 or trials != int(trials):
        raise click.UsageError(f"--trials must be a whole number from 2 to 1e10, got {trials:g}")
    if until is not None and not until > 0:
        raise click.UsageError(f"--until must be above 0, got {until:g}")
    return int(trials)


def _votes(text: str, option: str) -> list[float]:
    """Votes of each class, none below 0."""
    try:
        counts = [float(word) for word in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option} must be numbers with commas between, such as 14,12,10") from None
    if min(counts) < 0:
        raise click.UsageError(f"{option} must be votes, none below 0, such as 14,12,10")
    return counts


def _row(file: Path) -> list[Any]:
    """Read one row of features: a JSON list (or an object of features), or a CSV file of one row."""
    text = file.read_text(encoding="utf-8")
    if file.suffix.lower() == ".json":
        try:
            row = json.loads(text)
        except ValueError:
            raise ValueError(f"{file} is no JSON") from None
        if isinstance(row, dict):
            row = row.get("row", list(row.values()))
        if not isinstance(row, list) or not row or any(isinstance(cell, list | dict) for cell in row):
            raise ValueError(f"{file} must hold one row: a list of numbers or text")
        return row
    lines = [line for line in csv.reader(text.splitlines()) if line]
    if not 1 <= len(lines) <= 2:
        raise ValueError(f"{file} must hold one row, with or without a line of names above it")
    row = []
    for word in lines[-1]:
        try:
            row.append(float(word))
        except ValueError:
            row.append(word)
    return row


def make_mechanism(
    name: str,
    *,
    sigma: float | None,
    scale: float | None,
    at: float | None = None,
    screen: tuple[float, float] | None = None,
) -> Any:
    """Make the mechanism that the options describe: it needs some, and takes no others."""
    from ostraka.core.mechanisms.argmax import GNMax, LNMax
    from ostraka.core.mechanisms.screen import Confident, Threshold

    if name not in _NEEDS:
        raise click.UsageError(f"the mechanism must be one of {', '.join(_NEEDS)}, got {name!r}")
    options: dict[str, Any] = {"sigma": sigma, "scale": scale, "at": at, "screen": screen}
    if missing := [_TYPED[word] for word in _NEEDS[name] if options[word] is None]:
        raise click.UsageError(f"{name} also needs {' and '.join(missing)}")
    for word, value in options.items():
        if value is not None and word not in _NEEDS[name]:
            others = " and ".join(other for other, needs in _NEEDS.items() if word in needs)
            raise click.UsageError(f"{name} takes no --{word}, which is an option of {others}")
    for word, value in (
        ("--sigma", sigma),
        ("--scale", scale),
        ("--screen", screen[1] if screen else None),
    ):
        console.require_audible(word, value)
    if name == "lnmax":
        with console.usage("--scale"):
            return LNMax(scale=options["scale"])
    if name == "threshold":
        with console.usage("--at, --sigma"):
            return Threshold(at=options["at"], sigma=options["sigma"])
    with console.usage("--sigma"):
        argmax = GNMax(sigma=options["sigma"])
    if screen is None:
        return argmax
    with console.usage("--screen"):
        return Confident(screen=Threshold(at=screen[0], sigma=screen[1]), argmax=argmax)


def read_arrays(
    file: Path, *choices: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Read an .npz file of finite numbers, which must hold every array that one of ``choices`` names."""
    import numpy as np

    from ostraka.data import table as tables

    names = {*optional, *(name for choice in choices for name in choice)}
    form = " or ".join(f"numpy.savez(…, {', '.join(f'{name}=…' for name in choice)})" for choice in choices)
    arrays = tables.read_arrays(file, how=form, only=names)
    missing = min(([name for name in choice if name not in arrays] for choice in choices), key=len)
    if missing:
        absent = " and none named ".join(missing)
        raise ValueError(f"{file} has no array named {absent}, but needs {form}")
    wrong = [
        name
        for name, array in arrays.items()
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all()
    ]
    if wrong:
        raise ValueError(f"{file}: all arrays must hold finite numbers, but {', '.join(wrong)} has others")
    return arrays
