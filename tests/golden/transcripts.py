"""What verbs print for fixed files: commands as they are typed, and all that they say.

``python -m tests.golden`` writes it to ``transcripts.txt``, for a change that was meant. Days,
digests and keys differ from run to run, so that only their lengths stand there.
"""

import contextlib
import json
import re
import shlex
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ostraka import Adjacency, Budget, GNMax, Ledger, Private, release
from ostraka.data.budgets import Tables
from ostraka.ledger import ChargeRequest
from tests.cli.terminal import typed
from tests.golden import samples
from tests.golden.pages import rounded

RECORD = Path(__file__).with_name("transcripts.txt")
COUNTS = [[9, 1, 0], [5, 4, 1], [3, 3, 4], [0, 0, 10]]
KEY = "ab" * 32


def votes() -> None:
    """Counts of ten teachers, of guesses, and words that teachers said."""
    np.savez("votes.npz", counts=COUNTS)
    np.savez("guesses.npz", guesses=np.eye(4, 3) / 2)
    np.savez("uneven.npz", votes=[[0, 1], [0, 0], [2, 1]], other=[[1]])
    Path("said.csv").write_text("easy,hard\n" + "yes,no\nyes,yes\n" * 20)


def ledgers() -> None:
    """A ledger of clients, one of a run, an empty one, and those of two tables."""
    price, budget = GNMax(sigma=40.0), Budget(epsilon=9.0, delta=1e-5, adaptive=False)
    with Ledger("clients", budget=budget) as ledger:
        ledger.grant("ann", budget_epsilon=2.0)
        ledger.grant("bob", budget_epsilon=0.25, by="olga")
        for number in range(3):
            charge = ChargeRequest(
                account="ann", key=f"a{number}", digest=f"0{number}", cost=price, reserve=price, answer=number
            )
            ledger.charge_each([charge])
    with Ledger("run", budget=budget) as ledger:
        votes = Private(np.array([[9, 1], [2, 8]]), Adjacency.one_ballot(unit="person"))
        release(price, votes, ledger=ledger, rng=np.random.default_rng(0), key="answers/0")
    Ledger("empty", budget=budget).close()
    account = Tables(Path("tables")).account(None, rows=np.arange(20.0).reshape(10, 2))
    for unit, uses in (("row", 3), ("person", 1)):
        account.charge(price, unit=unit, key=unit, uses=uses, simulation=False, delta=1e-5)
    account.close()


def runs() -> None:
    """A finished run, and one that was interrupted."""
    for name in ("run", "begun"):
        Path(name).mkdir()
    Path("run/result.json").write_text(samples.RUNS["a simulation"].to_json())
    Path("begun/plan.json").write_text("{}")


def sums() -> None:
    """Released rounds of collections."""
    for name, collected in samples.COLLECTED.items():
        Path(f"{name.replace(' ', '-')}.json").write_text(json.dumps(dict(collected.record)))
    for number, collected in enumerate(samples.ROUNDS["of cells"]):
        Path(f"round-{number}.json").write_text(json.dumps(dict(collected.record)))


def tasks() -> None:
    """Four tasks, and files of answers."""
    for name in ("ages by a tree", "choices", "cells", "a number"):
        Path(f"{name.split()[-1]}.json").write_text(samples.COLLECTED[name].task.to_json())
    Path("answers.json").write_text("[0, 1, 2, 2]")
    Path("german.json").write_text(
        json.dumps(
            {"de": {"question": "Wie?", "title": "Wie", "purpose": "Zum Testen.", "choices": ["a", "b"]}}
        )
    )


def seen() -> None:
    """What audits and attacks read: answers, canaries, rows, logs, and scores of targets."""
    for name, cats in (("with", 90), ("without", 40), ("few", 2)):
        Path(f"{name}.csv").write_text("answer\n" + "cat\n" * cats + "dog\n" * (max(10, cats) - cats + 1))
    Path("wide.csv").write_text("answer,x\ncat,0.5\ndog,0.25\n")
    wave = np.cos(np.arange(400.0) ** 2).reshape(40, 10) / 2 + 0.5
    np.savez("canaries.npz", members=wave[:, 0] + 0.4, others=wave[:, 1])
    np.savez(
        "labels.npz", probabilities=wave[:, :4] / wave[:, :4].sum(axis=1, keepdims=True),
        trained=wave[:, :4].argmax(axis=1), decoys=(wave[:, :4].argmax(axis=1) + 1) % 4,
    )  # fmt: skip
    lines = [f"{a:.3f},{b:.3f},{int(a > 0.5)}" for a, b in wave.reshape(200, 2)[:120]]
    Path("rows.csv").write_text("\n".join(["a,b,side", *lines]) + "\n")
    log = [f"{query},{label}" for query, n in (("q1", (60, 30, 10)), ("q2", (96, 3, 1))) for label in range(3)
           for _ in range(n[label])]  # fmt: skip
    Path("log.csv").write_text("\n".join(["query,label", *log]) + "\n")
    Path("members.csv").write_text("query,member\nq1,1\nq2,0\n")
    included = np.arange(400).reshape(10, 40) ** 3 % 7 > 2
    arrays = {
        "confidences": wave.T,
        "included": included,
        "target": wave[:, 3] ** 2,
        "member": wave[:, 2] > 0.5,
    }
    np.savez("model.npz", **arrays)
    np.savez(
        "scores.npz", realness=wave[:, 0] + (wave[:, 2] > 0.5), reference=wave[:, 0], member=wave[:, 2] > 0.5
    )
    np.savez("samples.npz", candidates=wave[:, :3], samples=wave[:9, :3] + 0.01, member=np.arange(40) < 9)
    moved = np.arange(40)[:, None] % 2 * [3.0, 0.0, 0.0]
    changes = {"observed": wave[:, :3] + moved, "has_property": np.arange(40) % 2}
    np.savez("rounds.npz", **changes, with_property=wave[:20, 3:6] + [3, 0, 0], without=wave[20:, 3:6])


def masked(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{64,}\b", lambda match: f"<{len(match[0])} digits>", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\d\b", "<day>", text)
    text = re.sub(r'"number": "\w+"', '"number": <one>', text)
    text = re.sub(r"\d\.\d{6,}", lambda match: f"{float(match[0]):.4g}", text)
    return re.sub(r'"at": [\d.e+]+', '"at": <seconds>', text)


def _plain(text: str) -> str:
    """JSON with numbers of four digits, a line for each field; any other text as it is."""
    with contextlib.suppress(ValueError):
        value = rounded(json.loads(text))
        if isinstance(value, dict):
            return "".join(
                f"{name}: {json.dumps(part, ensure_ascii=False)}\n" for name, part in value.items()
            )
    return text


def transcript(prepared: Callable[[], None], *commands: str) -> str:
    """What is printed where commands are typed one after another in a folder with files."""
    lines = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        prepared()
        for command in commands:
            said = typed(*shlex.split(command))
            code = f"exit code {said.code}\n" if said.code else ""
            lines += [f"$ ostraka {command}\n", masked(_plain(said.out)), masked(said.err), code]
    return re.sub(r"[ \t]+\n", "\n", "".join(lines))


_ACCOUNT = "account votes.npz --mechanism"
_PLAN = "collect plan"
_SIZE = "--clients 1000 --epsilon 1"

CASES: dict[str, Callable[[], str]] = {
    "account": partial(
        transcript,
        votes,
        f"{_ACCOUNT} gnmax --sigma 4",
        f"{_ACCOUNT} lnmax --scale 5 --answers-per-query 3 --costliest 2",
        f"{_ACCOUNT} confident --sigma 4 --screen 4 3 --first 2 --costliest 0",
        f"{_ACCOUNT} interactive --sigma 4 --screen 4 3 --guesses guesses.npz",
        "account said.csv --sigma 0.002",
        "account uneven.npz --sigma 4 --classes 4 --delta 1e-4 --json --owner",
        "account uneven.npz --sigma 4 --array other",
        "account votes.npz --sigma 4 --out run",
        "account votes.npz --sigma 4 --out run",
    ),
    "ledger": partial(
        transcript,
        ledgers,
        "ledger tables tables",
        "ledger tables tables --json",
        "ledger show clients",
        "ledger show clients --last 2 --json",
        "ledger show run",
        "ledger show empty --last 0",
        "ledger verify clients",
        "ledger export clients --since 4",
        "ledger export clients --since 4 --json",
        "ledger export clients --since 5 --json",
        "ledger grant clients carl --epsilon 0.5 --by olga",
        "ledger grant clients carl --epsilon 1 --json",
        "ledger grant clients ann --epsilon 2.5 --by olga --json",
        "ledger anchor clients a",
        "ledger verify clients --anchor a --json",
        "ledger backup clients copy",
        "ledger restore copy back --anchor copy.anchor --json",
        "ledger adopt clients --by olga --lost 0",
        "ledger adopt clients --by olga --lost 2 --sigma 30",
        "ledger adopt clients --by olga --lost 2 --sigma 30 --screen 200 150 --json",
        "ledger adopt clients --by olga --lost 2",
        "ledger adopt clients --by olga --lost 0 --sigma 30",
        "ledger adopt clients --by olga --lost 0 --screen 3 1",
        "ledger show clients --last 4",
    ),
    "audit": partial(
        transcript,
        seen,
        "audit answers with.csv without.csv --claimed-epsilon 0.5 --delta 1e-5",
        "audit answers with.csv without.csv --claimed-epsilon 3 --delta 1e-5 --group 2 --json",
        "audit answers few.csv without.csv --claimed-epsilon 9 --delta 1e-5 --confidence 0.5",
        "audit answers with.csv wide.csv --claimed-epsilon 3 --delta 1e-5",
        "audit answers wide.csv wide.csv --column x --claimed-epsilon 3 --delta 1e-5",
        "audit answers with.csv without.csv --claimed-epsilon -1 --delta 1e-5",
        "audit canaries canaries.npz --claimed-epsilon 0.1 --delta 1e-4",
        "audit canaries canaries.npz --claimed-mu 0.1 --delta 1e-4 --guesses 40 --json",
        "audit canaries labels.npz --claimed-epsilon 0.5 --at 0.3",
        "audit canaries labels.npz --claimed-epsilon 0.5 --claimed-mu 1",
        "audit canaries rows.csv --claimed-epsilon 0.5",
        "audit adversaries rows.csv --label side --sigma 2 --teachers 4 --trainings 2 --questions 3 "
        "--trials 1e4 --delta 1e-3 --figure out.svg",
        "audit adversaries rows.csv --label side --mechanism lnmax --scale 3 --teachers 4 --trainings 1 "
        "--questions 1 --trials 100 --json",
        "audit adversaries rows.csv --label side --sigma 2 --teachers 97",
        "audit adversaries rows.csv --label side --sigma 2 --teachers 0",
        "audit adversaries rows.csv --label side --sigma 2 --figure out.png",
        "audit mechanism lnmax --votes 3,2 --neighbour 2,3",
        "audit mechanism gnmax --sigma 2 --scale 3 --votes 3,2 --neighbour 2,3",
        "audit mechanism a --votes 3,2 --neighbour 2,3",
        "audit mechanism threshold --at 2 --sigma 1 --votes 3,a --neighbour 2,3",
        "audit mechanism gnmax --sigma 1 --votes 3,-1 --neighbour 2,3",
        "audit mechanism gnmax --sigma 1 --votes 3,2 --neighbour 3,2 --trials 2",
        "audit mechanism gnmax --sigma 1 --votes 3,2 --neighbour 2,3 --trials 1",
        "audit mechanism gnmax --sigma 1 --votes 3,2 --neighbour 2,3 --trials 2.5",
        "audit mechanism gnmax --sigma 1 --votes 3,2 --neighbour 2,3 --until 0",
        "audit mechanism gnmax --sigma 1 --votes 3,2 --neighbour 2,3 --method a",
        "audit mechanism gnmax --sigma 1 --votes 3,2 --neighbour 2,3 --delta 1",
        "audit mechanism gnmax --sigma 0 --votes 3,2 --neighbour 2,3",
        "audit library --trials 1",
    ),
    "attack": partial(
        transcript,
        seen,
        "attack votes log.csv --teachers 50 --sigma 12",
        "attack votes log.csv --teachers 50 --sigma 12 --method maximum-likelihood --json",
        "attack votes log.csv --sigma 2 --classes a,b,c,d",
        "attack votes log.csv --mechanism lnmax --scale 9 --classes 4 --teachers 50 --method wang2022",
        "attack votes log.csv --sigma 12 --screen 30 9 --teachers 50",
        "attack attributes log.csv --members members.csv --teachers 50 --sigma 12",
        "attack attributes log.csv --members members.csv --teachers 50 --sigma 12 --at 0.9 --json",
        "attack attributes log.csv --members members.csv --teachers 50 --sigma 12 --at 1",
        "attack membership model.npz --claimed-epsilon 0.1",
        "attack membership model.npz --method lira --defended other=model.npz --json",
        "attack membership model.npz --defended target=model.npz",
        "attack membership scores.npz",
        "attack generator scores.npz --claimed-epsilon 0.1 --delta 1e-3",
        "attack generator samples.npz --report page.html --rows 3",
        "attack property rounds.npz --seed 3",
        "attack property rounds.npz --json",
    ),
    "parties": partial(
        transcript,
        tasks,
        "parties key me",
        "parties key me --json",
        "parties key answers.json",
        "parties dealer answers.json --identity me",
        "parties dealer missing.json --identity me",
    ),
    "report": partial(
        transcript, runs, "report run", "report run --json", "report run --public", "report begun"
    ),
    "collect plan": partial(
        transcript,
        tasks,
        f"{_PLAN} tree:0:64 --clients 40 --epsilon 1",
        f"{_PLAN} tree:0:1024:4 {_SIZE} --n-keepers 4 --honest 2",
        f"{_PLAN} sum:0:15:3 {_SIZE} --trust clients --colluding 0.2 --missing 0.05",
        f"{_PLAN} vector:9:1.5:100 {_SIZE}",
        f"{_PLAN} histogram:0:64:64 {_SIZE} --delta 1e-9",
        f"{_PLAN} count-min:27:14:{KEY} --items 5000 {_SIZE} --json",
        f"{_PLAN} count-sketch:272:5:{KEY} --items 100000 {_SIZE}",
        f"{_PLAN} histogram:0:64:64 {_SIZE} --out new.json",
        f"{_PLAN} histogram:0:64:64 {_SIZE} --trust clients --tally {KEY} --out new.json",
    ),
    "collect new": partial(
        transcript,
        tasks,
        "collect key me",
        "collect key me --json",
        "collect key keeper --keeper",
        "collect new a --question Q --clients 1000 --range 0:240 --unit minutes",
        "collect new a --question Q --clients 1000 --range 0:240",
        "collect new b --question Q --clients 40 --range 0:240 --trust clients --rounds 3 --json",
        "collect new c --question Q --clients 90 --choice a --choice b --translations german.json --checked",
        "collect new d --question Q --clients 90 --choice a --choice b --translations answers.json",
        "collect new d --question Q --clients 90",
        "collect new d --question Q --clients 90 --range 0",
        "collect new d --question Q --clients 90 --range 0:9 --encoding sum:0:3",
        "collect simulate a/task.json --clients 300 --out a.json",
        "collect simulate choices.json --values answers.json --out b.json --json",
        "collect simulate cells.json --values answers.json --out n.json --json",
        "collect simulate choices.json --values german.json --out c.json",
        "collect simulate choices.json --values me --out c.json",
        "collect export a/task.json --leader https://a.example --helper https://b.example",
        "collect export cells.json --leader https://a.example --helper https://b.example --precision 60",
        "collect export number.json --leader https://a.example --helper https://b.example --json",
        "collect mine me",
    ),
    "collect show": partial(
        transcript,
        sums,
        "collect show median ages-by-a-tree.json",
        "collect show quantile a-wide-tree.json --q 0.9",
        "collect show mean a-number.json --json",
        "collect show sum a-number.json",
        "collect show sum a-vague-number.json",
        "collect show map a-number.json",
        "collect show median a-number.json",
        "collect show similar a-number.json",
        "collect show sum vectors.json",
        "collect show answers choices.json --language de",
        "collect show answers two-questions.json",
        "collect show answers cells.json",
        "collect show map a-map.json",
        "collect show forecast round-0.json round-1.json round-2.json",
        "collect show similar baskets.json --items 0 --n 2",
        "collect show similar baskets.json",
        "collect show similar baskets.json --items a",
        "collect show median round-0.json round-1.json",
    ),
}
