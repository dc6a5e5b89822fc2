"""Long runs of the rigs of tests/durability: crashes, failing disks, races, tampering, load.

``python -m rigs [NAME …]`` runs all or the named ones, prints a line for each, and keeps the
lines in docs/record/durability.md with the date, the load and the command. ``--scale 10`` runs ten times as
many. ``python -m rigs rows --pairs 100000`` tries hostile neighbouring rows (:mod:`rigs.rows`), and
``python -m rigs mistakes`` commands as people mistype them (:mod:`rigs.mistakes`).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rigs import (
    big,
    container,
    deadlines,
    dripping,
    edges,
    faults,
    fuzz,
    hourly,
    kills,
    mistakes,
    model,
    outages,
    page,
    power,
    races,
    rollback,
    rows,
    soak,
    storm,
    strangers,
    tampering,
)
from rigs.disk import UnavailableError
from rigs.finding import REPOSITORY, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["RIGS", "main"]

PAGE = REPOSITORY / "docs" / "record" / "durability.md"
BEGIN, END = "<!-- begin recorded -->", "<!-- end recorded -->"
HEAD = """| test | tried | went wrong | control | when, load |
|---|---|---|---|---|"""

# Each rig with how much of it is one soak, to be multiplied by the scale.
RIGS: dict[str, Callable[[float], Finding]] = {
    "power-shared": lambda scale: power.find("shared", images=round(10_000 * scale)),
    "power-owned": lambda scale: power.find("owned", images=round(10_000 * scale)),
    "power-log": lambda scale: power.find("log", images=round(10_000 * scale)),
    "faults-log": lambda scale: faults.find("log", charges=sessions(1000 * scale)),
    "kills-log": lambda scale: kills.find("log", kills=round(1000 * scale)),
    "tampering-log": lambda scale: tampering.find("log", flipped=round(100_000 * scale)),
    "faults-shared": lambda scale: faults.find("shared", charges=sessions(1000 * scale)),
    "faults-owned": lambda scale: faults.find("owned", charges=sessions(1000 * scale)),
    "kills-shared": lambda scale: kills.find("shared", kills=round(1000 * scale)),
    "kills-owned": lambda scale: kills.find("owned", kills=round(1000 * scale)),
    "kills-postgres": lambda scale: kills.find("postgres", kills=round(1000 * scale)),
    "races-shared": lambda scale: races.find("shared", budgets=round(100 * scale)),
    "races-owned": lambda scale: races.find("owned", budgets=round(100 * scale)),
    "races-postgres": lambda scale: races.find("postgres", budgets=round(100 * scale)),
    "model": lambda scale: model.find(steps=round(100_000 * scale)),
    "tampering-shared": lambda scale: tampering.find("shared", flipped=round(100_000 * scale)),
    "tampering-owned": lambda scale: tampering.find("owned", flipped=round(100_000 * scale)),
    "storm": lambda scale: storm.find(keys=round(100_000 * scale), kills=round(20 * scale)),
    "fuzz": lambda scale: fuzz.find(requests=round(100_000 * scale)),
    "edges": lambda scale: edges.find(requests=round(10**6 * scale)),
    "outages-lock": lambda scale: outages.find("lock", times=round(100 * scale)),
    "outages-minute": lambda scale: outages.find("minute", times=round(100 * scale)),
    "outages-disk": lambda scale: outages.find("disk", times=round(100 * scale)),
    "outages-restart": lambda scale: outages.find("restart", times=round(100 * scale)),
    "deadlines": lambda scale: deadlines.find(seconds=20 * scale),
    "rollback": lambda scale: rollback.find(entries=round(200 * scale)),
    "strangers": lambda scale: strangers.find(strangers=round(2_000 * scale), questions=500),
    "strangers-tls": lambda scale: dripping.find_tls(strangers=round(6_000 * scale), questions=60),
    "strangers-roles": lambda scale: dripping.find(strangers=round(1_500 * scale), questions=40),
    "client": lambda scale: dripping.find_client(times=round(10 * scale)),
    "container": lambda _: container.find(),
    "page": lambda scale: page.find(entries=round(10**6 * scale), questions=500),
    "series": lambda scale: hourly.find(rounds=round(168 * scale), kills=round(20 * scale)),
    "soak": lambda scale: soak.find(seconds=7_200 * scale),
    "big": lambda scale: big.find(entries=round(10**7 * scale)),
}


def sessions(charges: float) -> int:
    """Whole sessions of twenty charges."""
    return max(20, round(charges / 20) * 20)


def main(arguments: Sequence[str] = ()) -> None:
    if arguments[:1] == ["rows"]:
        raise SystemExit(rows.main(arguments[1:]))
    if arguments[:1] == ["mistakes"]:
        raise SystemExit(mistakes.main(arguments[1:]))
    options = argparse.ArgumentParser(prog="python -m rigs")
    options.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RIGS))
    options.add_argument("--scale", type=float, default=1.0)
    chosen = options.parse_args(arguments)
    if unknown := set(chosen.names) - set(RIGS):
        options.error(f"no rig named {', '.join(sorted(unknown))}; there are {', '.join(RIGS)}")
    failed = [name for name in chosen.names or RIGS if not one(name, chosen.scale)]
    if failed:
        raise SystemExit(f"found something wrong: {', '.join(failed)}")


def one(name: str, scale: float) -> bool:
    """Run a rig and record its line."""
    start = time.perf_counter()
    try:
        finding = RIGS[name](scale)
    except UnavailableError as missing:
        print(f"{name}: left out, {missing}", flush=True)
        return True
    command = f"`soak {name}" + (f" --scale {scale:g}`" if scale != 1 else "`")
    line = " | ".join((f"| {command}", finding.tried, wrong(finding), finding.control, stamp(start) + " |"))
    print(line, flush=True)
    if PAGE.exists():
        PAGE.write_text(kept(PAGE.read_text(encoding="utf-8"), name, line), encoding="utf-8")
    return finding.passed


def wrong(finding: Finding) -> str:
    """Return what went wrong, or "nothing"."""
    if finding.blind:
        return "**the rig is blind**"
    return "; ".join(f"**{count:,} × {what}**" for what, count in finding.wrong.items()) or "nothing"


def stamp(start: float) -> str:
    load = os.getloadavg()[1] if hasattr(os, "getloadavg") else float("nan")
    took = time.perf_counter() - start
    return f"{datetime.now(UTC):%Y-%m-%d}, {took:,.0f} s, load {load:.0f} on {os.cpu_count()} cores"


def kept(page: str, name: str, line: str) -> str:
    """The page with this rig's line in place of its last one."""
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    lines = [
        old for old in table.splitlines() if (row := re.match(r"\| `soak ([\w-]+)", old)) and row[1] != name
    ]
    lines = sorted([*lines, line], key=lambda row: list(RIGS).index(re.match(r"\| `soak ([\w-]+)", row)[1]))  # type: ignore[index]
    return "\n".join((f"{before}{BEGIN}", HEAD, *lines, f"{END}{after}"))


if __name__ == "__main__":
    main(sys.argv[1:])
