"""Other generators of tables on UCI Adult, each in an environment of its own, beside ours in the same run.

AIM and MST by their authors' code (a checkout of ``ryan112358/private-pgm``), PATE-CTGAN of SmartNoise, and
DP-EBM of InterpretML, which predicts and makes no copy. Private Evolution makes images and texts: it has no
generator of tables, and ours (``method="evolution"``) stands for it. All see the same coded rows; a copy is
judged by the same code as ours. seconds are of processor time, imports included. Without ``OSTRAKA_RIVALS``,
a folder with the environments and the checkout (docs/synthetic.md says how it is made), only ours run.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.metrics import roc_auc_score

from bench.synth import DELTA, TARGET, Adult, adult
from ostraka.synth import TableGenerator

EPSILONS, SEED, MOST_SECONDS = (0.1, 1.0, 3.0), 0, 3600
RIVALS = {"aim": "pgm", "mst": "pgm", "patectgan": "smartnoise", "dp_ebm": "interpret"}  # and environments
OURS = ("particles", "forest", "evolution")
QUICK = {"EPSILONS": (1.0,), "RIVALS": {}, "OURS": ("forest",)}
_FIGURES = "accuracy {:.4f}, AUC {:.4f}, pairs {:.4f} apart, triples {:.4f}; {:.1f} s"


def main() -> None:
    """All prices; ours, then the others."""
    data = adult()
    rivals = os.environ.get("OSTRAKA_RIVALS")
    with TemporaryDirectory() as place:
        folder = Path(place)
        for table, rows in (
            ("codes", data.codes),
            ("real", data.real),
            ("sizes", np.array([data.schema.sizes])),
        ):
            header = ",".join(data.train)
            np.savetxt(folder / f"{table}.csv", rows, fmt="%d", delimiter=",", header=header, comments="")
        for epsilon in EPSILONS:
            for method in OURS:
                rng, start = np.random.default_rng(SEED), time.process_time()
                made = TableGenerator(data.schema, target=TARGET, epsilon=epsilon, delta=DELTA, method=method)
                copy = made.fit(data.train, rng=rng).sample_codes(len(data.codes), rng=rng)
                seconds = time.process_time() - start
                print(
                    f"  epsilon {epsilon:g}, {method}: {_FIGURES.format(*data.judged(copy), seconds)}",
                    flush=True,
                )
            for name in RIVALS if rivals else ():
                print(
                    f"  epsilon {epsilon:g}, {name}: {rival(name, Path(str(rivals)), folder, epsilon, data)}",
                    flush=True,
                )
    if not rivals:
        print("  no other generator was run: OSTRAKA_RIVALS names no folder (docs/synthetic.md)")


def rival(name: str, rivals: Path, folder: Path, epsilon: float, data: Adult) -> str:
    """Run one of the others, and say how it did, with its versions."""
    python = rivals / RIVALS[name] / "bin" / "python"
    if not python.exists():
        return f"not run, there is no {python}"
    script = Path(__file__).with_name("_synth_rival.py")
    words = [str(python), str(script), name, str(folder), f"{epsilon:g}", f"{DELTA:g}", str(SEED)]
    try:
        run = subprocess.run(
            [*words, str(rivals / "private-pgm")],
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {MOST_SECONDS} s"
    if run.returncode:
        return f"failed: {run.stderr.strip().splitlines()[-1] if run.stderr.strip() else run.returncode}"
    found = json.loads(run.stdout.strip().splitlines()[-1])
    when = f"{found['versions']}, {datetime.now(UTC):%Y-%m-%d}"
    made = np.loadtxt(folder / found["file"], delimiter=",", skiprows=1)
    if made.ndim == 1:
        right = np.mean((made > 0.5) == data.real[:, -1])
        area = roc_auc_score(data.real[:, -1], made)
        return f"accuracy {right:.4f}, AUC {area:.4f}, no copy; {found['seconds']:.1f} s ({when})"
    return f"{_FIGURES.format(*data.judged(made.astype(np.int64)), found['seconds'])} ({when})"


if __name__ == "__main__":
    main()
