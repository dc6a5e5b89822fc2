"""``ostraka collect``: private statistics of many people, planned, collected and demonstrated."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ostraka import console
from ostraka.console import JSON, Group, argument, option, verb

if TYPE_CHECKING:
    from ostraka.collect.task import Task

app = Group("Private statistics: sums of many people's values that nobody can take apart.")

_TASK = argument(..., "The task's JSON file, from 'plan --out'.", "TASK")
_KEY = option(..., "File of this role's secret; made if it is missing.", "FILE")
_FOLDER = option(..., "Where this role keeps what must survive a crash.", "FOLDER")
_PORT = option(0, "0: any free one.", min=0, max=65535)
_HOST = option("127.0.0.1", "Address to listen at. Beyond this machine, put TLS in front.")


@verb(app)
def key(
    file: Path = argument(..., "Made if it is missing.", "FILE"),
    *,
    keeper: bool = option(False, "The key of a keeper."),
    as_json: bool = JSON,
) -> None:
    """Print the public key of a tally, an enrolment or a keeper.

    Example: ostraka collect key tally.key
    """
    from ostraka.collect.keeper import Keeper
    from ostraka.secure.keys import Identity

    identity = Identity.kept_at(file)
    public_key = Keeper.key(identity) if keeper else identity.public_key
    console.say({"public_key": public_key}, public_key, as_json=as_json)


class Trust(StrEnum):
    """Who hides the values of clients: keepers, of which some are honest, or the other clients."""

    KEEPERS = "keepers"
    CLIENTS = "clients"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of ``ostraka collect plan``."""

    encoding: str = argument(
        ...,
        "tree:LOW:HIGH, histogram:LOW:HIGH:CELLS, histograms:LOW,HIGH,CELLS:…, sum:LOW:HIGH[:BITS], "
        "vector:CELLS:CLIP[:GRID], grid:X0:X1:Y0:Y1:NxM, visits:X0:X1:Y0:Y1:NxM:AT_MOST, "
        "pairs:ITEMS:AT_MOST, count-min:WIDTH:DEPTH:KEY or count-sketch:WIDTH:DEPTH:KEY.",
        "ENCODING",
    )
    clients: int = option(..., "How many are expected.")
    epsilon: float = option(..., "What one release may cost.")
    delta: float = option(1e-06, "The delta of that.")
    trust: Trust = option(Trust.KEEPERS, "Who hides the values, and adds the noise.")
    n_keepers: int = option(3, "How many keepers, if none are named.", min=1)
    honest: int = option(1, "Keepers whose noise alone must suffice.", min=1)
    colluding: float = option(0.1, "Share of clients that may collude.", min=0, max=1)
    missing: float = option(0.1, "Share of clients that may vanish.", min=0, max=1)
    items: int | None = option(None, "Items there are, to compare a sketch with all of them.", min=1)
    least: int | None = option(None, "Fewer clients are refused. Default: 80 %.", min=1)
    checked: bool = option(False, "Keepers and tally refuse reports that are no answers.")
    tally: str | None = option(None, "The tally's public key, to write a task.")
    keeper: list[str] | None = option(None, "A keeper's public key; several times.")
    out: Path | None = option(None, "Write the task here.", "FILE")
    as_json: bool = option(False, "Print JSON on stdout.", name="--json")


@verb(app)
def plan(options: PlanOptions) -> None:
    """Predict noise, bytes and seconds; with --tally and --out, write the task.

    Example: ostraka collect plan histogram:0:100:10 --clients 1000 --epsilon 1
    """
    from ostraka.collect.plan import parsed
    from ostraka.collect.plan import plan as planned
    from ostraka.collect.task import Task

    with console.usage():
        chosen = parsed(options.encoding)
        prediction = planned(
            chosen,
            n_clients=options.clients,
            epsilon=options.epsilon,
            delta=options.delta,
            trust=options.trust.value,
            n_keepers=len(options.keeper) if options.keeper else options.n_keepers,
            honest=options.honest,
            colluding=options.colluding,
            missing=options.missing,
            items=options.items,
        )
        if options.out is not None:
            console.require_new(options.out, option="--out")
            if options.trust is Trust.CLIENTS and options.keeper:
                raise click.UsageError(
                    "--trust clients has no keepers: leave out --keeper, or type --trust keepers"
                )
            if options.trust is Trust.KEEPERS and not options.keeper:
                raise click.UsageError(
                    "--trust keepers needs the public key of each: --keeper KEY, several times; or "
                    "--trust clients"
                )
            if options.tally is None:
                raise click.UsageError(
                    "--out needs --tally, the public key of the tally: ostraka collect key FILE"
                )
            task = Task(
                chosen,
                sigma=prediction["sigma"],
                tally=options.tally,
                keepers=tuple(options.keeper or ()),
                least=max(3, int(0.8 * options.clients) if options.least is None else options.least),
                honest=options.honest,
                colluding=options.colluding,
                missing=options.missing,
                checked=options.checked,
            )
            options.out.write_text(task.to_json(), encoding="utf-8")
            prediction["task"] = task.sha256
    if options.as_json:
        click.echo(json.dumps(prediction))
        return
    for name, value in prediction.items():
        click.echo(f"{name}: {value:,.4g}" if isinstance(value, float) else f"{name}: {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """Options of ``ostraka collect new``."""

    folder: Path = argument(..., "Made here: the task, and secrets of roles.", "FOLDER")
    question: str = option(..., "What people are asked.", "TEXT")
    clients: int = option(..., "How many are expected.")
    choice: list[str] | None = option(None, "An answer to choose; several times.", "TEXT")
    range: str | None = option(None, "Whole numbers from LOW to HIGH are answers.", "LOW:HIGH")
    encoding: str | None = option(
        None, "Another answer, as 'plan' takes it: sum:…, grid:…, pairs:….", "ENCODING"
    )
    unit: str = option("", "What a number counts, such as minutes.", "TEXT")
    title: str | None = option(None, "Heading of the page. Default: the question.", "TEXT")
    purpose: str = option("To publish the statistics of all answers.", "What the answers are for.", "TEXT")
    controller: str = option("not named", "Who is responsible.", "TEXT")
    contact: str = option("not named", "How to reach them.", "TEXT")
    language: str = option("en", "The language of these texts.", "CODE")
    translations: Path | None = option(
        None, 'JSON: {"de": {"question": …, "title": …, "purpose": …, "unit": …, "choices": […]}}.', "FILE"
    )
    epsilon: float = option(1.0, "What one round may cost a person.")
    delta: float = option(1e-06, "The delta of that.")
    rounds: int = option(1, "How often it is asked.", min=1)
    keep_days: int = option(
        30, "You promise to delete reports after so many days; nothing does it for you.", min=0
    )
    trust: Trust = option(Trust.KEEPERS, "Who hides the values, and adds the noise.")
    keeper: list[str] | None = option(None, "A keeper's public key; several times. Default: two are made.")
    least: int | None = option(None, "Fewer clients are refused. Default: 80 %.", min=1)
    checked: bool = option(False, "Keepers and tally refuse reports that are no answers.")
    as_json: bool = option(False, "Print JSON on stdout.", name="--json")


@verb(app)
def new(options: NewOptions) -> None:
    """Make a task of a question: its words, its noise, its keys. All of it is in one fingerprint.

    Example: ostraka collect new survey --question "How do you travel?" --range 0:240 --clients 2000
    """
    from ostraka.collect.keeper import Keeper
    from ostraka.collect.plan import parsed
    from ostraka.collect.plan import plan as planned
    from ostraka.collect.task import Question, Task
    from ostraka.core.mechanisms.skellam import SkellamSum
    from ostraka.secure.keys import Identity

    path = options.folder / "task.json"
    console.require_new(path, option="FOLDER")
    with console.usage():
        # the texts of the question, by language
        first: dict[str, Any] = {
            "question": options.question,
            "title": options.title or options.question,
            "purpose": options.purpose,
        }
        first |= {name: part for name, part in (("unit", options.unit), ("choices", options.choice)) if part}
        others = {} if options.translations is None else _json(options.translations)
        if not isinstance(others, dict) or not all(
            isinstance(texts, dict) and set(texts) == set(first) for texts in others.values()
        ):
            raise ValueError(f"{options.translations} must give {', '.join(first)} for each language")
        languages = {options.language: first, **others}
        texts: dict[str, Any] = {
            name: {code: words[name] for code, words in languages.items()} for name in first
        }
        encoding = parsed(_encoding_words(options))
        prediction = planned(
            encoding,
            n_clients=options.clients,
            epsilon=options.epsilon,
            delta=options.delta,
            trust=options.trust.value,
            n_keepers=len(options.keeper or "12"),
        )
        sigma = prediction["sigma"]
        once = SkellamSum(sigma=sigma, l1=encoding.l1, l2=encoding.l2).curve()
        question = Question(
            text=texts.pop("question"),
            **texts,
            controller=options.controller,
            contact=options.contact,
            epsilon=options.epsilon,
            series=max(options.epsilon, (options.rounds * once).epsilon(delta=options.delta)),
            delta=options.delta,
            keep_days=options.keep_days,
        )
        options.folder.mkdir(parents=True, exist_ok=True)
        keepers = list(options.keeper or ())
        if options.trust is Trust.KEEPERS and not keepers:
            files = [options.folder / f"keeper-{number}.key" for number in (1, 2)]
            keepers = [Keeper.key(Identity.kept_at(file)) for file in files]
            click.echo(
                f"made {' and '.join(map(str, files))}: whoever holds both can read every answer. Give each "
                "to a keeper of its own before anybody is asked",
                err=True,
            )
        task = Task(
            encoding,
            sigma=sigma,
            tally=Identity.kept_at(options.folder / "tally.key").public_key,
            keepers=tuple(keepers),
            least=max(3, int(0.8 * options.clients) if options.least is None else options.least),
            rounds=options.rounds,
            checked=options.checked,
            question=question,
        )
    path.write_text(task.to_json(), encoding="utf-8")
    if "advice" in prediction:
        click.echo(str(prediction["advice"]), err=True)
    click.echo(task.checks, err=True)
    made = {"task": str(path), "sha256": task.sha256, "advice": prediction.get("advice")}
    made |= {"checks": task.checks}
    console.say(made, f"{path}: fingerprint {task.sha256}", as_json=options.as_json)


def _encoding_words(options: NewOptions) -> str:
    """The encoding of a new question, as :func:`parsed` takes it."""
    ways = [bool(options.choice), options.range is not None, options.encoding is not None]
    if sum(ways) != 1:
        raise ValueError(
            "type --choice several times, or --range LOW:HIGH, or --encoding, and only one of them"
        )
    if options.choice:
        return f"histogram:0:{len(options.choice)}:{len(options.choice)}"
    if options.range is not None:
        low, _, high = options.range.partition(":")
        try:
            return f"tree:{int(low)}:{int(high) + 1}"
        except ValueError:
            raise ValueError(
                f"--range must be two whole numbers such as 0:240, got {options.range!r}"
            ) from None
    return str(options.encoding)


@verb(app)
def simulate(
    task: Path = _TASK,
    *,
    out: Path = option(..., "Write the released sums here.", "FILE"),
    clients: int = option(200, "Invented people.", min=3),
    values: Path | None = option(None, "A JSON list of answers, instead of invented ones.", "FILE"),
    seed: int = option(0, "Of the invented answers, not of the noise."),
    as_json: bool = JSON,
) -> None:
    """Try a task: a round of invented people in one process, with keys of its own. It spends nothing.

    Example: ostraka collect simulate survey/task.json --out trial.json
    """
    import numpy as np

    from ostraka.collect.plan import invented, simulated
    from ostraka.collect.show import record_of
    from ostraka.core.door import release
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger

    console.require_new(out, option="--out")
    with console.usage():
        agreed = _task(task)
        answers = _json(values) if values is not None else None
        if answers is None:
            answers = invented(agreed.encoding, clients, np.random.default_rng(seed))
        if not isinstance(answers, list):
            raise ValueError(f"{values} must hold a list of answers")  # noqa: TRY004  (bad data of a file)
        role, sums = simulated(agreed, answers)
    delta = 1e-6 if agreed.question is None else agreed.question.delta
    with Ledger(":memory:", budget=Budget(epsilon=1e6, delta=delta, adaptive=False)) as ledger:
        answer = release(agreed.mechanism, sums, ledger=ledger)
        epsilon = ledger.spent().epsilon(delta=delta)
    record = record_of(role, answer, epsilon=epsilon, delta=delta, task=agreed) | {"simulation": True}
    out.write_text(json.dumps(record), encoding="utf-8")
    words = f"{out}: {len(answers)} invented people, epsilon {epsilon:.4g}"
    console.say({"out": str(out), "clients": len(answers), "epsilon": epsilon}, words, as_json=as_json)


class Kind(StrEnum):
    """What to show of released sums."""

    MEDIAN = "median"
    QUANTILE = "quantile"
    MEAN = "mean"
    SUM = "sum"
    ANSWERS = "answers"
    MAP = "map"
    FORECAST = "forecast"
    SIMILAR = "similar"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """Options of ``ostraka collect show``."""

    kind: Kind = argument(..., "median, quantile, mean, sum, answers, map, forecast or similar.", "KIND")
    files: list[Path] = argument(
        ..., "Released sums, from 'tally --out' or 'simulate'; for a forecast several, oldest first.",
        "FILE..."
    )  # fmt: skip
    html: Path | None = option(None, "Write a page with a picture here.", "FILE")
    q: float = option(0.5, "Which quantile, between 0 and 1.")
    alpha: float = option(0.7, "Of a forecast: the weight of the newest round.")
    items: str = option("", "Of similar items: those already there, such as 3,17.", "LIST")
    n: int = option(10, "Of similar items: how many.", min=1)
    language: str = option("en", "Of the question's texts.", "CODE")
    as_json: bool = option(False, "Print JSON on stdout.", name="--json")


@verb(app)
def show(options: ShowOptions) -> None:
    """Show released sums: a sentence with an interval, a table, and with --html a page with a picture.

    Example: ostraka collect show median out.json --html median.html
    """
    from ostraka.collect import show as shown

    console.require_new(options.html, option="--html")
    if len(options.files) > 1 and options.kind is not Kind.FORECAST:
        raise click.UsageError(f"{options.kind} takes one FILE; a forecast takes several")
    with console.usage():
        rounds = [shown.Collected.of_file(path) for path in options.files]
        newest = rounds[-1]
        if options.kind is Kind.FORECAST:
            answer = shown.forecast(rounds, alpha=options.alpha)
        elif options.kind is Kind.MAP:
            answer = shown.heat_map(newest)
        elif options.kind is Kind.ANSWERS:
            answer = shown.shares(newest, options.language)
        elif options.kind in {Kind.MEAN, Kind.SUM}:
            answer = shown.mean(newest, total=options.kind is Kind.SUM)
        elif options.kind is Kind.SIMILAR:
            try:
                items = [int(item) for item in options.items.split(",") if item]
            except ValueError:
                raise ValueError(f"--items must be numbers such as 3,17, got {options.items!r}") from None
            answer = shown.similar(newest, items, n=options.n)
        else:
            answer = shown.quantile(newest, 0.5 if options.kind is Kind.MEDIAN else options.q)
        if options.html is not None:
            options.html.write_text(shown.page(answer, newest, language=options.language), encoding="utf-8")
    if options.as_json:
        click.echo(json.dumps({"sentences": answer.sentences, **answer.values}))
        return
    for words in answer.sentences:
        click.echo(words)
    console.table(answer.columns, answer.rows)


@verb(app)
def export(
    task: Path = _TASK,
    *,
    leader: str = option(..., "Address of the aggregator that takes reports.", "URL"),
    helper: str = option(..., "Address of the other one.", "URL"),
    precision: int = option(3600, "Seconds to which times of reports are rounded.", min=1),
    as_json: bool = JSON,
) -> None:
    """Print a task for aggregators of DAP, such as janus, and for @divviup/dap: always JSON.

    Example: ostraka collect export task.json --leader https://a.example --helper https://b.example
    """
    from ostraka.collect.dap import exported

    with console.usage():
        out = exported(_task(task), leader=leader, helper=helper, precision=precision)
    console.say(out, json.dumps(out, indent=1), as_json=as_json)


@verb(app)
def keeper(
    task: Path = _TASK,
    *,
    identity: Path = _KEY,
    folder: Path = _FOLDER,
    port: int = _PORT,
    host: str = _HOST,
    as_json: bool = JSON,
) -> None:
    """Serve one keeper until interrupted.

    Example: ostraka collect keeper task.json --identity keeper.key --folder keeper
    """
    from ostraka.collect.keeper import Keeper
    from ostraka.secure.keys import Identity
    from ostraka.secure.wire import PartyServer

    with console.usage():
        role = Keeper(_task(task), Identity.kept_at(identity), folder=folder)
    console.serve(PartyServer(role, port=port, host=host), as_json=as_json)


@verb(app)
def tally(
    task: Path = _TASK,
    *,
    identity: Path = _KEY,
    folder: Path = _FOLDER,
    clients: int = option(..., "Close when so many have reported.", min=1),
    seconds: float = option(..., "Close each exchange after so many seconds at the latest.", min=0),
    epsilon: float | None = option(None, "The ledger's budget. Default: its own; 1, if it is new."),
    delta: float | None = option(None, "The delta of that. Default: its own; 1e-6, if it is new."),
    keeper: list[str] | None = option(None, "Address of a keeper, in the task's order."),
    out: Path | None = option(None, "Write the released sums here.", "FILE"),
    stay: float = option(0.0, "Show the result to pages for so many seconds.", min=0),
    port: int = _PORT,
    host: str = _HOST,
    as_json: bool = JSON,
) -> None:
    """Serve the page and collect one round; then release its sums through the ledger in the folder.

    Example: ostraka collect tally task.json --identity tally.key --folder tally --clients 1000 --seconds 600
    """
    from ostraka.collect.show import Collected, summary
    from ostraka.collect.tally import Tally, run_exchanges
    from ostraka.core import files
    from ostraka.core.ledger.budget import Budget
    from ostraka.core.ledger.ledger import Ledger
    from ostraka.secure.keys import Identity
    from ostraka.secure.wire import PartyServer

    if out is not None and not out.parent.is_dir():  # before anybody is asked, and the round is paid for
        raise click.UsageError(f"{out.parent} is no folder: make it, or type another --out")
    with console.usage():
        role = Tally(_task(task), Identity.kept_at(identity), keepers=keeper or (), folder=folder)
    place = folder / "collect.ledger"
    typed = epsilon is not None or delta is not None
    budget = Budget(
        epsilon=1.0 if epsilon is None else epsilon, delta=1e-6 if delta is None else delta, adaptive=False
    )
    with (
        Ledger(place, budget=budget if typed or not place.exists() else None) as ledger,
        PartyServer(role, port=port, host=host, pages=role.pages) as server,
    ):
        role.announce(spent=ledger.epsilon(), budget=ledger.budget.epsilon)
        click.echo(server.url, err=as_json)
        record = role.outcome(ledger)
        if record is None:
            run_exchanges(role, n_clients=clients, seconds=seconds)
            record = role.release(ledger)
        else:
            click.echo("this round was released before: its record is written, and nobody is asked", err=True)
        if out is not None:
            files.write(out, json.dumps(record))
        if out is None or as_json:
            click.echo(json.dumps(record))
        role.announce(
            spent=record["epsilon"], budget=ledger.budget.epsilon, result=summary(Collected(record))
        )
        time.sleep(stay)


@verb(app)
def series(
    task: Path = _TASK,
    *,
    identity: Path = _KEY,
    folder: Path = _FOLDER,
    every: float = option(..., "Seconds from one round to the next.", min=0),
    clients: int = option(..., "Close a round when so many have reported."),
    seconds: float | None = option(None, "Close each exchange after so many seconds at the latest."),
    epsilon: float | None = option(None, "The ledger's budget, if it is new. Default: the question's."),
    delta: float = option(1e-6, "The delta of that."),
    keeper: list[str] | None = option(None, "Address of a keeper, in the task's order."),
    stay: float = option(0.0, "Show the last result for so many seconds.", min=0),
    port: int = _PORT,
    host: str = _HOST,
    as_json: bool = JSON,
) -> None:
    """Serve the page and collect all rounds of a task, each charged before it opens; go on after a kill.

    Example: ostraka collect series task.json --identity tally.key --folder run --every 3600 --clients 1000
    """
    from ostraka.collect.tally import Series
    from ostraka.core.ledger.budget import Budget
    from ostraka.secure.keys import Identity
    from ostraka.secure.wire import PartyServer

    with console.usage():
        agreed = _task(task)
        question = agreed.question
        if question is not None:
            epsilon, delta = question.series if epsilon is None else epsilon, question.delta
        if epsilon is None:
            raise ValueError("the task has no question that states what all rounds cost: type --epsilon")
        budget = Budget(epsilon=epsilon, delta=delta, adaptive=False)
        role = Series(
            agreed,
            Identity.kept_at(identity),
            folder=folder,
            budget=budget,
            every=every,
            keepers=keeper or (),
        )
    try:
        with PartyServer(role, port=port, host=host, pages=role.pages) as server:
            click.echo(server.url, err=as_json)
            role.run(n_clients=clients, seconds=seconds)
            time.sleep(stay)
        words = "\n".join(f"round {number}: {outcome}" for number, outcome in enumerate(role.outcomes))
        console.say({"outcomes": role.outcomes}, words, as_json=as_json)
    finally:
        role.end()


@verb(app)
def mine(
    folder: Path = argument(..., "Of 'send --budget'.", "FOLDER"),
    *,
    as_json: bool = JSON,
) -> None:
    """Say what all collections that you joined have cost you, and what is left of your own budget.

    Example: ostraka collect mine me
    """
    from ostraka.collect.client import OWN_LEDGER
    from ostraka.core.ledger.ledger import Ledger

    path = folder / OWN_LEDGER
    if not path.exists():
        raise click.UsageError(f"{path} does not exist: name the --folder of 'ostraka collect send --budget'")
    with Ledger(path) as ledger:
        budget = ledger.budget
        spent, left = ledger.spent().epsilon(delta=budget.delta), ledger.left()
    record = {"spent": spent, "left": left, "budget": budget.epsilon, "delta": budget.delta}
    total = f"epsilon {spent:.4g} of {budget.epsilon:g} (delta {budget.delta:g})"
    console.say(record, f"spent in all collections: {total}\nleft: epsilon {left:.4g}", as_json=as_json)


@verb(app)
def send(
    url: str = argument(..., "Of the tally.", "URL"),
    value: str = argument(..., "A number, or a list in JSON.", "VALUE"),
    *,
    sha256: str | None = option(None, "Fingerprint of the task that was agreed on."),
    folder: Path | None = option(None, "Remembers that this client has answered.", "FOLDER"),
    budget: float | None = option(
        None, "Most epsilon that all collections may cost you; counted in --folder.", "NATS"
    ),
    as_json: bool = JSON,
) -> None:
    """Report one value, through all exchanges of the task.

    If the task has an enrolment, this prints a claim and waits for the enrolment's signature of it.

    Example: ostraka collect send http://127.0.0.1:8100 42 --folder me
    """
    from ostraka.collect.client import own_ledger
    from ostraka.collect.client import send as report

    def certify(claim: str) -> bytes:
        click.echo(f"claim: {claim}", err=True)
        typed = click.prompt("signature of the enrolment", err=True)
        try:
            return bytes.fromhex(typed)
        except ValueError:
            raise ValueError("the signature must be the hexadecimal digits that 'enrol' printed") from None

    try:
        read = json.loads(value)
    except (ValueError, RecursionError):
        raise click.UsageError("the value must be a number or a list in JSON") from None
    with console.usage(), contextlib.ExitStack() as stack:
        ledger = None
        if budget is not None:
            if folder is None:
                raise ValueError("--budget needs --folder, where it is counted")
            ledger = stack.enter_context(own_ledger(folder, epsilon=budget))
        fingerprint = report(url, read, sha256=sha256, folder=folder, certify=certify, ledger=ledger)
    console.say({"sha256": fingerprint}, f"reported to the task {fingerprint}", as_json=as_json)


@verb(app)
def enrol(
    task: Path = _TASK,
    claim: list[str] = argument(..., "Of people who may take part.", "CLAIM..."),
    *,
    identity: Path = _KEY,
    folder: Path = _FOLDER,
    as_json: bool = JSON,
) -> None:
    """Sign the claims of clients, as the enrolment of a task; print a signature for each.

    Example: ostraka collect enrol task.json CLAIM --identity office.key --folder office
    """
    from ostraka.collect.keeper import Enrolment
    from ostraka.secure.keys import Identity

    with console.usage():
        office = Enrolment(_task(task), Identity.kept_at(identity), folder=folder)
        signatures = [office.enrol(person).hex() for person in claim]
    console.say({"signatures": signatures}, "\n".join(signatures), as_json=as_json)


@verb(app)
def approve(
    task: Path = _TASK,
    url: str = argument(..., "Of the tally.", "URL"),
    *,
    identity: Path = _KEY,
    folder: Path = _FOLDER,
    clients: int = option(..., "Approve when so many have joined.", min=1),
    seconds: float = option(..., "Approve after so many seconds at the latest.", min=0),
    as_json: bool = JSON,
) -> None:
    """Approve the roster of a round among clients: those who joined and are enrolled.

    Example: ostraka collect approve task.json http://127.0.0.1:8100 --identity office.key
    --folder office --clients 1000 --seconds 600
    """
    from ostraka.collect.keeper import Enrolment, approve_roster
    from ostraka.secure.keys import Identity

    with console.usage():
        office = Enrolment(_task(task), Identity.kept_at(identity), folder=folder)
        joined = approve_roster(url, office, n_clients=clients, seconds=seconds)
    console.say({"clients": joined}, f"approved: {joined:,} clients joined", as_json=as_json)


@verb(app)
def demo(
    *,
    out: Path = option(Path("collect-demo"), "Folder of the report.", "FOLDER"),
    clients: int = option(300, "Invented people.", min=1),
    as_json: bool = JSON,
) -> None:
    """Run whole rounds in one process and write a report with pictures.

    Example: ostraka collect demo --out collect-demo
    """
    from ostraka.collect import plan as _collect_plan

    record = _collect_plan.demonstrate(out, n_clients=clients)
    words = "wrote {report}: median {median} minutes ({low} to {high})".format(**record)
    console.say(record, words, as_json=as_json)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError(f"{path} holds no JSON") from None


def _task(path: Path) -> Task:
    from ostraka.collect.task import Task

    return Task.from_json(path.read_text(encoding="utf-8"))
