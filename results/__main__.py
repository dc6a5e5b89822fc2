"""Write the tables of results, or compare two commits: ``python -m results [options] [NAME ...]``.

Each row of ``rows.toml`` names a command and how its figures are read from what it prints. The commands of
the named rows, or of all, run one after another. Their figures are kept in ``measured.json`` with the date,
the commit and the machine's load. The page docs/results.md has all rows, the README those marked ``readme``.
Both tables are written from these two files, never by hand.
``--only-write`` runs nothing. A row with ``recorded`` takes too long for this; it says when it was measured.
``--against CHECKOUT`` writes nothing. It runs each command here and in a checkout of another commit in turn,
and prints the processor time of both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
PAGE = HERE.parent / "docs" / "results.md"
START, END = "<!-- results: written by `make results` -->", "<!-- end of results -->"
_HEAD = "| what | figure | best rival, or what to compare with | measured |\n|---|---|---|---|\n"


def rows() -> list[dict[str, Any]]:
    """The rows of the table, in order."""
    return list(tomllib.loads((HERE / "rows.toml").read_text(encoding="utf-8"))["row"])


def kept() -> dict[str, Any]:
    """What was measured last, by row."""
    path = HERE / "measured.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def read(row: dict[str, Any], printed: str) -> list[float]:
    """The figures of one run; ValueError for a pattern that nothing matches."""
    values = []
    for pattern in row["patterns"]:
        match = re.search(pattern, printed)
        if match is None:
            raise ValueError(f"{row['name']}: nothing printed matches {pattern}")
        values.append(float(match[1].replace(",", "")))
    return values


def output(command: str, *, checkout: Path = HERE.parent, python: str = sys.executable) -> str:
    """What a command of a checkout prints."""
    words = shlex.split(command)
    words[0] = python if words[0] == "python" else words[0]
    run = subprocess.run(words, capture_output=True, text=True, cwd=checkout, check=False)
    if run.returncode:
        raise SystemExit(f"{command} failed in {checkout}:\n{run.stderr[-2000:]}")
    return run.stdout


def measured(commands: list[str], n_runs: int) -> dict[str, list[str]]:
    """What each command prints, in so many runs."""
    printed: dict[str, list[str]] = {command: [] for command in commands}
    for number in range(n_runs):
        for command in commands:
            print(f"run {number + 1} of {n_runs}: {command}", file=sys.stderr, flush=True)
            printed[command].append(output(command))
    return printed


def compare(chosen: list[dict[str, Any]], base: Path, n_runs: int) -> None:
    """Print the processor time of each row's command in another checkout and here: A B A B."""
    pythons = {HERE.parent: sys.executable, base: str(base / ".venv" / "bin" / "python")}
    for row in chosen:
        seconds: dict[Path, list[float]] = {checkout: [] for checkout in (base, HERE.parent)}
        for number in range(n_runs):
            print(f"run {number + 1} of {n_runs}: {row['command']}", file=sys.stderr, flush=True)
            for checkout, runs in seconds.items():
                before = os.times()
                output(row["command"], checkout=checkout, python=pythons[checkout])
                after = os.times()
                runs.append(after[2] + after[3] - before[2] - before[3])  # of the commands, user and system
        old, new = (statistics.median(runs) for runs in seconds.values())
        ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
        print(
            f"{row['name']}: {old:.2f} s there, {new:.2f} s here, "
            f"speed {old / new:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def record(chosen: list[dict[str, Any]], n_runs: int) -> None:
    """Run the commands of some rows and keep their figures."""
    load = os.getloadavg()[1]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE.parent, check=False
    ).stdout.strip()
    measurements = kept()
    for fixed in (False, True):  # a row whose figures its seeds fix is the same in every run
        batch = [row for row in chosen if row.get("fixed", False) is fixed]
        printed = measured(list(dict.fromkeys(row["command"] for row in batch)), 1 if fixed else n_runs)
        for row in batch:
            measurements[row["name"]] = {
                "command": row["command"],
                "commit": commit,
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "load": round(load, 1),
                "runs": [read(row, text) for text in printed[row["command"]]],
            }
    text = json.dumps(measurements, indent=1, sort_keys=True, ensure_ascii=False)
    (HERE / "measured.json").write_text(text + "\n", encoding="utf-8")


def figure(row: dict[str, Any], runs: list[list[float]], place: int) -> str:
    """The median of the runs, and their range where they differ."""
    values = [run[place] * row.get("scale", 1) for run in runs]
    formats = row.get("formats", row.get("format", ",.0f"))
    how = formats[place] if isinstance(formats, list) else formats
    low, middle, high = (
        format(value, how) for value in (min(values), statistics.median(values), max(values))
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def line(row: dict[str, Any], measurement: dict[str, Any] | None) -> str:
    """One row of the table."""
    if "recorded" in row:
        figures, rival, when = row["figures"], row["rival"], f"{row['recorded']}, recorded"
    elif measurement is None:
        figures, rival, when = "not measured yet", "", ""
    else:
        values = [figure(row, measurement["runs"], place) for place in range(len(row["patterns"]))]
        figures, rival = row["figures"].format(*values), row["rival"].format(*values)
        n = len(measurement["runs"])
        runs = "seeds fix it" if row.get("fixed", False) else f"{n} run{'s' * (n != 1)}"
        when = f"{measurement['date']}, {runs}, load {measurement['load']}, `{measurement['commit']}`"
    return f"| {row['what']} | {figures} | {rival} | {when}: `{row['command']}` |"


def table(page: Path) -> str:
    """The rows of one of the two pages, with links as they lead from it."""
    measurements = kept()
    chosen = [row for row in rows() if page == PAGE or row.get("readme", False)]
    text = _HEAD + "\n".join(line(row, measurements.get(row["name"])) for row in chosen) + "\n"
    return text.replace("](docs/", "](") if page == PAGE else text


def write(page: Path) -> None:
    """Put the table into a page, between its two marks."""
    text = page.read_text(encoding="utf-8")
    before, start, behind = text.partition(START)
    _, end, after = behind.partition(END)
    if not start or not end:
        raise SystemExit(f"{page.name} must hold the lines {START} and {END}")
    page.write_text(f"{before}{start}\n\n{table(page)}\n{end}{after}", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run what is named, record it, write the tables; 2 if a name is unknown."""
    parser = argparse.ArgumentParser(prog="python -m results", description=__doc__)
    parser.add_argument("names", nargs="*", help="rows to measure; all of them if none is named")
    parser.add_argument("--runs", type=int, default=3, help="how often each command runs")
    parser.add_argument("--only-write", action="store_true", help="write the tables, measure nothing")
    parser.add_argument(
        "--against", type=Path, help="a checkout of another commit, with an environment in its .venv"
    )
    options = parser.parse_args(arguments)
    live = {row["name"]: row for row in rows() if "recorded" not in row}
    if unknown := sorted(set(options.names) - live.keys()):
        print(f"no row named {', '.join(unknown)}; there are {', '.join(live)}", file=sys.stderr)
        return 2
    if options.against:
        compare([live[name] for name in options.names or live], options.against.resolve(), options.runs)
        return 0
    if not options.only_write:
        record([live[name] for name in options.names or live], options.runs)
    write(README)
    write(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
