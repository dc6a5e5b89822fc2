"""Other generators of tables on UCI Adult, each in an environment of its own, beside ours in the same run.

AIM by its authors' code of November 2024 and of today, MST by that of 2024 (checkouts of
``ryan112358/private-pgm``; today's MST failed on a column that it compresses), PATE-CTGAN of SmartNoise, and
DP-EBM of InterpretML, which predicts and makes no copy. Private Evolution makes
images and texts: it has no generator of tables, and ours (``method="evolution"``) stands for it. All see the
same coded rows; a copy is judged by the same code as ours. Seconds are of processor time, imports included;
whoever needs more than MOST_SECONDS is stopped, which is printed.

``OSTRAKA_RIVALS`` names a folder with the environments and checkouts (docs/synthetic.md says how it is made);
without it only ours run. What was measured is kept there in ``measured.jsonl``, with versions, date and load,
and is not run again: a command that was stopped goes on, and ``python -m bench.synth_rivals aim 1`` measures
one generator at one epsilon.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from bench._kept import Kept
from bench.synth import DELTA, TARGET, Adult, adult
from ostraka import __version__
from ostraka.synth import TableGenerator

EPSILONS, SEED, MOST_SECONDS = (1.0, 0.1, 3.0), 0, 900
KEEP = True  # in the folder of the others


class Rival(NamedTuple):
    """An environment, and a checkout that is read beside it: folders of ``OSTRAKA_RIVALS``."""

    environment: str
    checkout: str = ""


RIVALS = {
    "aim": Rival("pgm-2024", "private-pgm-2024"),
    "aim_today": Rival("pgm", "private-pgm"),
    "mst": Rival("pgm-2024", "private-pgm-2024"),
    "patectgan": Rival("smartnoise"),
    "dp_ebm": Rival("interpret"),
}
OURS = ("particles", "forest", "evolution")
QUICK = {"EPSILONS": (1.0,), "RIVALS": {}, "OURS": ("forest",), "KEEP": False}


def main(words: list[str] | None = None) -> None:
    """All prices, or those named; ours, then the others, or those named."""
    words = words or []
    epsilons = [float(word) for word in words if word[0].isdigit()] or EPSILONS
    names = [word for word in words if not word[0].isdigit()] or [*OURS, *RIVALS]
    data, place = adult(), os.environ.get("OSTRAKA_RIVALS")
    folder = Path(place) if place else None
    results = Kept(folder / "measured.jsonl" if folder and KEEP else None, "name", "epsilon")
    with TemporaryDirectory() as temporary:
        tables = Path(temporary)
        sizes = np.array([data.schema.sizes])
        for table, rows in (("codes", data.codes), ("real", data.real), ("sizes", sizes)):
            header = ",".join(data.train)
            np.savetxt(tables / f"{table}.csv", rows, fmt="%d", delimiter=",", header=header, comments="")
        for epsilon in epsilons:
            for name in names:
                line = results.get(name, epsilon)
                if line is None and (folder or name in OURS):
                    run = (
                        own(name, epsilon, data)
                        if name in OURS
                        else rival(name, folder, tables, epsilon, data)
                    )
                    when = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "load": os.getloadavg()[1]}
                    line = results.add(name, epsilon, **run, **when)
                if line:
                    print(f"  epsilon {epsilon:g}, {name}: {said(line)}", flush=True)
    if folder is None:
        print("  no other generator was run: OSTRAKA_RIVALS names no folder (docs/synthetic.md)")


def said(line: dict[str, Any]) -> str:
    """One line of the table, in words."""
    when = f"{line['date']} UTC, load {line['load']:.1f}"
    if "problem" in line:
        return f"{line['problem']} ({when})"
    distances = "pairs {:.4f} apart, triples {:.4f}".format(*line["apart"]) if "apart" in line else "no copy"
    versions = ", ".join(f"{name} {version}" for name, version in line["versions"].items())
    return (
        f"accuracy {line['accuracy']:.4f}, AUC {line['auc']:.4f}, {distances}; {line['seconds']:.1f} s "
        f"({versions}; {when})"
    )


def figures(data: Adult, copy: np.ndarray) -> dict[str, Any]:
    """What the copy is worth."""
    accuracy, auc, pairs, triples = data.judged(copy)
    return {"accuracy": accuracy, "auc": auc, "apart": [pairs, triples]}


def own(method: str, epsilon: float, data: Adult) -> dict[str, Any]:
    """Run one of ours."""
    rng, start = np.random.default_rng(SEED), time.process_time()
    generator = TableGenerator(data.schema, target=TARGET, epsilon=epsilon, delta=DELTA, method=method)
    copy = generator.fit(data.train, rng=rng).sample_codes(len(data.codes), rng=rng)
    seconds = time.process_time() - start
    return figures(data, copy) | {"seconds": seconds, "versions": {"ostraka": __version__}}


def rival(name: str, folder: Path | None, tables: Path, epsilon: float, data: Adult) -> dict[str, Any]:
    """Run one of the others, at most MOST_SECONDS of processor time."""
    assert folder is not None
    environment, checkout = RIVALS[name]
    python = folder / environment / "bin" / "python"
    if not python.exists():
        return {"problem": f"not run, there is no {environment}/bin/python in OSTRAKA_RIVALS"}
    words = [name, tables, f"{epsilon:g}", f"{DELTA:g}", SEED, MOST_SECONDS]
    words += [folder / checkout] if checkout else []
    run = subprocess.run(
        [str(python), str(Path(__file__).with_name("_synth_rival.py")), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == -signal.SIGXCPU:
        return {"problem": f"did not end in {MOST_SECONDS} s of processor time"}
    if run.returncode:
        return {"problem": f"failed: {(run.stderr.strip().splitlines() or [str(run.returncode)])[-1]}"}
    line = json.loads(run.stdout.strip().splitlines()[-1])
    table = np.loadtxt(tables / line.pop("file"), delimiter=",", skiprows=1)
    if table.ndim > 1:
        return figures(data, table.astype(np.int64)) | line
    label = data.real[:, -1]
    right, area = np.mean((table > 0.5) == label), roc_auc_score(label, table)
    return {"accuracy": float(right), "auc": float(area)} | line


if __name__ == "__main__":
    main(sys.argv[1:])
