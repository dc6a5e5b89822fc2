"""Commands as people mistype them: none may end in a traceback, in silence, or in words about something else.

``python -m rigs mistakes`` takes the example in the help of each command, types it wrongly in every way of
:func:`mistakes`, and runs each in this process, in a folder of small files. It prints what was wrong of
the answers. Nothing is random: the same commands give the same list.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import ostraka.cli
from ostraka.cli import verbs
from ostraka.console import Number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

__all__ = ["Mistake", "answer", "commands", "example", "files", "main", "mistakes", "wrong"]

_EXAMPLE = re.compile(r"Example: (ostraka .*?)(?:\n\n|$)", re.DOTALL)
_SECONDS = 60  # of one command, on a machine that is busy
_NO_NUMBERS = ("many", "", "1,5", "--json")
_FORBIDDEN = ("Traceback", "please report it", "object at 0x", "interrupted:", "None")
# what a number may not be, by the form of its option; a refusal must name the option or quote the number
_OUTSIDE = ("nan", "-1", "1e400")
_MEANT = ("--jobs=-1", "--at=-1")  # all cores; a threshold may be anywhere
_CALLS_OUT = ("collect send", "collect approve", "audit deployment")  # they would wait for another machine


class Mistake(NamedTuple):
    """A command typed wrongly, and words of which the answer must hold one."""

    words: tuple[str, ...]
    hints: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.words)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that there is, by its words after ``ostraka``."""

    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        below = getattr(command, "commands", {})
        if not below:
            yield name, command
        for word, child in below.items():
            yield from walk(f"{name} {word}".strip(), child)

    return walk("", verbs.command())


def example(command: Any) -> list[str]:
    """The words of the example in a command's help, without ``ostraka``; empty where there is none."""
    written = _EXAMPLE.search(command.help or "")
    return shlex.split(" ".join(written[1].split()))[1:] if written else []


def mistakes(name: str, command: Any) -> Iterator[Mistake]:
    """The example of a command, typed wrongly in every way we know; nothing where there is none."""
    words, depth = example(command), len(name.split())
    if not words:
        return
    verb, arguments = words[:depth], words[depth:]

    def typed(*tail: str, hints: Sequence[str]) -> Mistake:
        return Mistake((*verb, *tail), tuple(hints))

    yield typed(*arguments, "--nonsense", "1", hints=["--nonsense"])
    yield Mistake(
        (*verb[:-1], f"{verb[-1]}x", *arguments),
        (f"{verb[-1]}x", "nowhere", "is not a file", "extra argument"),
    )
    if not any(parameter.nargs == -1 for parameter in command.params):
        yield typed(*arguments, "one-more", "another", hints=["one-more", "another", "extra"])
    options = {name: parameter for parameter in command.params for name in parameter.opts if name[:2] == "--"}
    for parameter in command.params:
        long = next((opt for opt in parameter.opts if opt.startswith("--")), None)
        if long is None:
            continue
        if len(long) > 6:
            yield typed(*arguments, long[:-2] + long[-1] + long[-2], hints=[long[:-2]])
        if not getattr(parameter, "is_flag", False):
            yield typed(*arguments, long, hints=[long])
        others = _without(arguments, long)
        if isinstance(parameter.type, Number) and parameter.nargs == 1:
            yield from (typed(*others, f"{long}={text}", hints=[long, repr(text)]) for text in _NO_NUMBERS)
            if name not in _CALLS_OUT:
                lacking = [word for word in arguments if word[:2] != "--" and not Path(word).exists()]
                hints = [long, long[2:].replace("-", "_"), long[2:].replace("-", " "), *lacking]
                yield from (
                    typed(*others, f"{long}={text}", hints=[*hints, text])
                    for text in _OUTSIDE
                    if f"{long}={text}" not in _MEANT
                )
        if parameter.required:
            yield typed(*others, hints=[long])
    for place, word in enumerate(arguments):
        is_value = place and arguments[place - 1] in options
        if Path(word).is_file() and not is_value:
            for file in ("nowhere.csv", "empty.csv", "folder", "bytes.bin"):
                yield typed(
                    *arguments[:place],
                    file,
                    *arguments[place + 1 :],
                    hints=[file, "package", "exists: type --out"],
                )


def _without(words: list[str], option: str) -> list[str]:
    """The words but for an option and its value."""
    if option not in words:
        return words
    place = words.index(option)
    return words[:place] + words[place + 2 :]


def files(folder: Path) -> None:
    """Write what examples read into a folder: tables, votes and answers, and files that are none of these."""
    rng = np.random.default_rng(0)
    rows = [f"p{k // 3},{rng.integers(20, 90)},{rng.normal(27, 4):.1f},{k % 2}" for k in range(300)]
    (folder / "private.csv").write_text("\n".join(["patient,age,bmi,ill", *rows]) + "\n")
    public = [row.partition(",")[2] for row in rows[:60]]
    (folder / "public.csv").write_text("\n".join(["age,bmi,ill", *public]) + "\n")
    notes = [f"pain and fever {k}" for k in range(60)]
    (folder / "notes.csv").write_text("\n".join(["note", *notes]) + "\n")
    (folder / "schema.toml").write_text("[age]\nedges = [0, 40, 120]\n\n[ill]\ncategories = ['0', '1']\n")
    np.savez(folder / "votes.npz", counts=rng.multinomial(100, [0.7, 0.2, 0.1], size=5))
    logged = [f"{k % 5},{k % 3}" for k in range(60)]
    (folder / "answers.csv").write_text("\n".join(["query,label", *logged]) + "\n")
    (folder / "members.csv").write_text("query,member\n" + "\n".join(f"{k},{k % 2}" for k in range(5)) + "\n")
    for name in ("with.csv", "without.csv"):
        (folder / name).write_text("answer\n" + "\n".join(str(k % 3) for k in range(200)) + "\n")
    (folder / "empty.csv").touch()
    (folder / "bytes.bin").write_bytes(bytes(range(256)) * 4)
    (folder / "folder").mkdir()


def answer(mistake: Mistake) -> tuple[int, str]:
    """Run a command here; its exit code and all that it printed.

    Raises
    ------
    TimeoutError
        It takes longer than a minute.
    """

    def give_up(_: int, __: FrameType | None) -> None:
        raise TimeoutError(str(mistake))

    out, code = io.StringIO(), 0
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(_SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            ostraka.cli.main(list(mistake.words))
    except SystemExit as ending:
        code = int(ending.code or 0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, out.getvalue()


def wrong(mistake: Mistake, code: int, output: str) -> str:
    """What is wrong with the answer to a mistake; empty where it is as it should be."""
    if code == 0:
        return "accepted"
    if not output.strip():
        return "silent"
    forbidden = [word for word in _FORBIDDEN if word in output]
    if forbidden:
        return f"says {forbidden[0]!r}"
    return "" if any(hint and hint in output for hint in mistake.hints) else "about something else"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all mistakes, or those of the commands that are named; 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(prog="python -m rigs mistakes", description=__doc__)
    parser.add_argument("verbs", nargs="*", metavar="VERB", help="such as 'plan' or 'ledger'; default: all")
    chosen = parser.parse_args(arguments).verbs
    begin, home, n_tried, n_wrong = time.monotonic(), Path.cwd(), 0, 0
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            files(Path(place))
            before = _contents(Path(place))
            for name, command in commands():
                if chosen and name.split()[0] not in chosen:
                    continue
                for mistake in mistakes(name, command):
                    n_tried += 1
                    why = wrong(mistake, *answer(mistake))
                    if not why and _contents(Path(place)) != before:
                        why = "files were changed"
                        before = _contents(Path(place))
                    if why:
                        n_wrong += 1
                        sys.stdout.write(f"{why}: {mistake}\n")
        finally:
            os.chdir(home)
    day = datetime.now(tz=UTC).date().isoformat()
    sys.stdout.write(
        f"{n_tried:,} mistakes, {n_wrong} wrong answers; {day}, {time.monotonic() - begin:,.0f} s, "
        f"load {os.getloadavg()[0]:.0f}\n"
    )
    return int(n_wrong > 0)


def _contents(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
