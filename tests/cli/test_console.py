"""What verbs are made of: options from types, numbers as people type them, tables, bars and questions."""

import io
import json
import math
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ostraka import console
from ostraka.ledger import BudgetExceeded


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be typed."""

    rows: Path = console.argument(..., "Rows to read.", "FILE")
    more: list[Path] = console.argument(None, "More of them.", "FILES")
    count: int = console.option(3, "How many.", "N", min=1, max=1000)
    least: float = console.option(..., "Not below.", min=0)
    free: float | None = console.option(None, min=-1.5)
    pair: tuple[float, float] | None = console.option(None, "AT and SIGMA.", "AT SIGMA")
    colour: Colour = console.option(Colour.BLUE, "Of it.")
    words: list[str] | None = console.option(None, "Several times.", name="--word")
    name: str = console.option("", "Of whom.", "NAME")
    old: Path | None = console.option(None, "It is there.", exists=True)
    loud: bool = console.option(False, "With noise.")
    as_json: bool = console.JSON


def paint(typed: Options) -> None:
    """Paint it."""
    click.echo(typed)


def shown(parameter):
    """The settings of click for one parameter."""
    parts = [
        type(parameter).__name__,
        "/".join(parameter.opts),
        parameter.type.name,
        f"nargs {parameter.nargs}",
    ]
    for name in ("required", "multiple", "is_flag", "show_default"):
        parts += [name] if getattr(parameter, name, False) else []
    parts += [f"metavar {parameter.metavar}"] if parameter.metavar else []
    unset = parameter.default is None or getattr(parameter.default, "name", "") == "UNSET"
    parts += [] if unset else [f"default {parameter.default!r}"]
    return f"{', '.join(parts)}: {parameter.help}"


def test_the_fields_of_a_dataclass_say_what_can_be_typed():
    group = console.Group("Verbs.")
    command = console.verb(group)(paint)
    assert (command.name, command.help, list(group.commands)) == ("paint", "Paint it.", ["paint"])
    assert console.verb(name="draw")(paint).name == "draw"
    assert [shown(parameter) for parameter in command.params] == [
        "Argument, rows, path, nargs 1, required, metavar FILE: Rows to read.",
        "Argument, more, path, nargs -1, metavar [FILES]: More of them.",
        "Option, --count, number, nargs 1, show_default, metavar N, default 3: How many. From 1 to 1000.",
        "Option, --least, number, nargs 1, required, show_default: Not below. At least 0.",
        "Option, --free, number, nargs 1, show_default: At least -1.5.",
        "Option, --pair, number, nargs 2, show_default, metavar AT SIGMA: AT and SIGMA.",
        "Option, --colour, choice, nargs 1, show_default, default 'blue': Of it.",
        "Option, --word, text, nargs 1, multiple, show_default: Several times.",
        "Option, --name, text, nargs 1, metavar NAME, default '': Of whom.",
        "Option, --old, path, nargs 1, show_default: It is there.",
        "Option, --loud, boolean, nargs 1, is_flag, show_default, default False: With noise.",
        "Option, --json, boolean, nargs 1, is_flag, show_default, default False: Print JSON on stdout.",
    ]


def test_what_is_typed_comes_as_the_types_of_the_fields(tmp_path):
    command = console.verb()(paint)
    least = {"more": None, "count": 3, "free": None, "pair": None, "colour": Colour.BLUE, "words": None}
    least |= {"name": "", "old": None, "loud": False, "as_json": False}

    def typed(*words):
        with command.make_context("paint", list(words)) as context:
            return Options(**context.params)

    assert typed("a", "--least", "0") == Options(rows=Path("a"), least=0.0, **least)
    full = typed(
        *("a", "b", "c", "--least", "1e3", "--count", "1e3", "--free=-1.5", "--pair", "4", "0.5"),
        *("--colour", "red", "--word", "x", "--word", "y", "--old", str(tmp_path), "--loud", "--json"),
    )
    assert full == Options(
        rows=Path("a"), more=[Path("b"), Path("c")], least=1000.0, count=1000, free=-1.5, pair=(4.0, 0.5),
        colour=Colour.RED, words=["x", "y"], name="", old=tmp_path, loud=True, as_json=True,
    )  # fmt: skip
    assert (type(full.count), type(full.least), type(full.colour)) == (int, float, Colour)
    for words in (["a"], ["--least", "0"], ["a", "--least", "0", "--old", str(tmp_path / "no")]):
        with pytest.raises(click.UsageError):
            typed(*words)
    ran = CliRunner().invoke(command, ["a", "--least", "0"])
    assert ran.output == f"{Options(rows=Path('a'), least=0.0, **least)}\n"


def test_the_parameters_of_a_function_say_so_too():
    def probe(
        n: int = console.option(2), *, words: list[str] = console.argument(..., "W", "WORD...")
    ) -> None:
        click.echo(f"{n} {words}")

    command = console.verb()(probe)
    assert CliRunner().invoke(command, ["a", "b", "--n", "7"]).output == "7 ['a', 'b']\n"
    assert CliRunner().invoke(command, []).exit_code == console.USAGE
    assert CliRunner().invoke(console.verb()(lambda: click.echo("none")), []).output == "none\n"


NUMBERS = [
    # of a whole number: what is typed, and what it is; None where it is refused
    (int, "7", 7),
    (int, "-3", -3),
    (int, "1e6", 1_000_000),
    (int, "1.5E+3", 1500),
    (int, "2.5e0", None),
    (int, "0.5e0", None),
    (int, "1e100", None),
    (int, "3.0", None),
    (int, "1e-3", None),
    (int, "٣e1", None),
    (int, "x", None),
    (int, "1e6x", None),
    (float, "0.25", 0.25),
    (float, "-1e-3", -0.001),
    (float, "1e308", 1e308),
    (float, "1e309", None),
    (float, "-inf", None),
    (float, "nan", None),
    (float, "", None),
]


@pytest.mark.parametrize(("kind", "word", "value"), NUMBERS)
def test_a_number_is_what_people_type(kind, word, value):
    number = console.Number(kind)
    assert (number.ends, number.convert(7, None, None)) == ("", 7)
    if value is not None:
        result = number.convert(word, None, None)
        assert (result, type(result)) == (value, kind)
        return
    words = "a whole number" if kind is int else "a finite number"
    with pytest.raises(click.UsageError) as refused:
        number.convert(word, None, None)
    assert refused.value.message == f"this must be {words}, got {word!r}"


@pytest.mark.parametrize(
    ("least", "most", "ends", "inside", "outside"),
    [
        (1, math.inf, "at least 1", ["1", "2", "99"], ["0", "-1"]),
        (0, 0.5, "from 0 to 0.5", ["0", "0.25", "0.5"], ["-0.001", "0.501"]),
        (-1, 5, "from -1 to 5", ["-1", "5"], ["-1.001", "5.001"]),
    ],
)
def test_a_number_lies_within_its_ends(least, most, ends, inside, outside):
    number = console.Number(float, least, most)
    option = click.Option(["-n", "--number"])
    assert number.ends == ends
    assert [number.convert(word, option, None) for word in inside] == [float(word) for word in inside]
    for word in outside:
        with pytest.raises(click.UsageError) as refused:
            number.convert(word, option, None)
        assert refused.value.message == f"-n must be a finite number, {ends}, got {word!r}"


@pytest.mark.parametrize(
    ("words", "verb", "rest"),
    [
        ([], "show", []),
        (["--x"], "show", ["--x"]),
        (["file.csv"], "show", ["file.csv"]),
        (["there"], "show", ["there"]),
        (["show", "a"], "show", ["a"]),
        (["list", "a"], "list", ["a"]),
    ],
)
def test_a_group_takes_its_usual_verb_where_none_is_typed(words, verb, rest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there").touch()
    group, ran = console.Group("Verbs.", default="show"), []
    for name in ("show", "list"):
        settings = {"ignore_unknown_options": True}
        words_of = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
        run = lambda words, name=name: ran.append((name, list(words)))  # noqa: E731
        group.add_command(click.Command(name, callback=run, params=[words_of], context_settings=settings))
    group.main(words, standalone_mode=False)
    assert ran == [(verb, rest)]
    for mistyped in (["lisst"], ["-h-"]):
        with pytest.raises(click.UsageError):
            console.Group("Verbs.").main(mistyped, standalone_mode=False)
    with pytest.raises(click.UsageError, match="No such command 'lisst'"):
        group.main(["lisst"], standalone_mode=False)
    assert group.list_commands(click.Context(group)) == ["show", "list"]
    assert CliRunner().invoke(group, ["--help"]).output.startswith("Usage: ")


def test_a_table_has_columns_of_one_width_and_numbers_on_the_right(capsys):
    console.table(("a", "bc", "n"), [("xyz", "", "1"), ("x", "longer", "1,000")], numbers=1)
    console.table(("a", "n"), [], numbers=0)
    console.table(("name", "x", "y"), [("ann", "1", "22"), ("b", "333", "4")], numbers=2)
    console.table(("name", "x"), [("ann", "1")])
    assert capsys.readouterr().out == (
        "a    bc          n\nxyz              1\nx    longer  1,000\n"
        "a  n\n"
        "name    x   y\nann     1  22\nb     333   4\n"
        "name  x\nann   1\n"
    )
    console.say({"a": 1}, "one", as_json=False)
    console.say({"a": 1}, "one", as_json=True)
    assert capsys.readouterr().out == 'one\n{"a": 1}\n'


class Terminal(io.StringIO):
    def isatty(self):
        return True


def train(stages):
    with stages as tell:
        for done in (100, 500, 1000):
            tell("teachers", done, 1000)
        tell("teachers", 1, 1000)  # once more, though it has ended
        tell("votes", 1, 2)
        tell("votes", 2, 2)
        tell("student", 1, 1)


NAMES = {"teachers": "teachers trained", "votes": "rows voted on", "student": "student trained"}


def test_without_a_terminal_each_stage_is_one_line(capsys):
    train(console.Stages(NAMES))
    with console.Stages({}) as tell:
        tell("unnamed", 3, 3)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "teachers trained: 1,000\nrows voted on: 2\nstudent trained\nunnamed: 3\n"


def test_on_a_terminal_there_is_a_bar_for_each_stage_and_the_next_begins_when_one_ends(monkeypatch, capsys):
    bars = []

    class Bar:
        def __init__(self, **how):
            bars.append(self)
            self.how, self.length, self.pos, self.log = how, how["length"], 0, []

        def update(self, step):
            self.pos += step
            self.log.append((self.pos, self.length))

        def __enter__(self):
            self.log.append("begun")

        def __exit__(self, *_):
            self.log.append("ended")

    monkeypatch.setattr(click, "progressbar", Bar)
    monkeypatch.setattr(sys, "stderr", Terminal())
    stages = console.Stages(NAMES)
    train(stages)
    assert [bar.how["label"] for bar in bars] == list(NAMES.values())
    assert [bar.log for bar in bars] == [
        ["begun", (100, 1000), (500, 1000), (1000, 1000), "ended"],
        ["begun", (1, 2), (2, 2), "ended"],
        ["begun", (1, 1), "ended"],
    ]
    look = {"show_pos": True, "fill_char": "━", "empty_char": " ", "file": sys.stderr}
    assert bars[0].how == {"length": 1, "label": "teachers trained", **look}
    assert sys.stderr.getvalue() == ""
    assert repr(stages) == "Stages()"
    with pytest.raises(KeyError), console.Stages(NAMES):
        raise KeyError
    assert bars[-1].log == ["begun", "ended"]


def test_bars_of_click_are_drawn_on_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    train(console.Stages(NAMES))
    for words in (*NAMES.values(), "1000/1000", "2/2", "━"):
        assert words in sys.stderr.getvalue()


@pytest.mark.parametrize(
    ("keys", "terminals", "code", "words"),
    [
        ("y\n", (True, True), None, "Spend it? [y/N]: "),
        ("n\n", (True, True), console.FAILED, "Spend it? [y/N]: ostraka: nothing was spent.\n"),
        ("", (True, True), console.FAILED, "ostraka: nothing was spent.\n"),
        ("y\n", (False, True), console.USAGE, ""),
        ("y\n", (True, False), console.USAGE, ""),
    ],
)
def test_nothing_is_spent_unless_somebody_says_yes(keys, terminals, code, words, monkeypatch):
    console.require_consent("Spend it?", yes=True)
    for name, text, is_terminal in zip(("stdin", "stderr"), (keys, ""), terminals, strict=True):
        monkeypatch.setattr(sys, name, (Terminal if is_terminal else io.StringIO)(text))
    if code is None:
        console.require_consent("Spend it?", yes=False)
    else:
        with pytest.raises((click.UsageError, click.exceptions.Exit)) as ending:
            console.require_consent("Spend it?", yes=False)
        assert ending.value.exit_code == code
        if code == console.USAGE:
            assert ending.value.message.startswith("nothing was spent: there is no terminal to ask on. Read")
    assert sys.stderr.getvalue().endswith(words)


def test_noise_of_a_thousandth_of_a_vote_is_the_least():
    for noise in (None, 0.0, -1.0, 1e-3, 5.0):
        console.require_audible("--sigma", noise)
    with pytest.raises(click.UsageError, match=r"^--sigma must be at least 0.001 votes, got 0.0009$"):
        console.require_audible("--sigma", 0.0009)


def test_a_file_is_not_written_over_and_its_folder_is_there(tmp_path):
    (tmp_path / "old").touch()
    for path in (None, tmp_path / "new"):
        console.require_new(path, option="--out")
    console.require_new(tmp_path / "none" / "new", option="FOLDER")  # of a folder that is made
    for name, words in (
        ("old", "old exists, and is not overwritten: type another --out"),
        ("no/x", "not a folder"),
    ):
        with pytest.raises(click.UsageError, match=words):
            console.require_new(tmp_path / name, option="--out")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_server_says_where_it_is_and_is_closed_after_an_interrupt(as_json, capsys):
    calls = []

    class Server:
        url = "http://x"

        def serve_forever(self):
            calls.append(capsys.readouterr().out)
            raise KeyboardInterrupt

        def close(self):
            calls.append("closed")

    with pytest.raises(KeyboardInterrupt):
        console.serve(Server(), as_json=as_json)
    assert calls == [json.dumps({"url": "http://x"}) + "\n" if as_json else "http://x\n", "closed"]


def abort(context):
    """As click raises it where an error of a prompt is its context."""
    error = click.Abort()
    error.__context__ = context
    return error


OSTRAKA = click.Context(click.Group("y"), info_name="ostraka")
LEARN = click.Context(click.Command("x"), info_name="learn", parent=OSTRAKA)
INTERRUPTED = "interrupted: type the same command again to go on. What was paid for, if anything was, is kept"
ENDED = "a file ends too early, or an answer was expected where there is no terminal"
FEW = "there is not enough memory for numbers as large as these, or noise as small: type others"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (SystemExit(7), 7, ""),
        (SystemExit(None), 1, ""),
        (click.exceptions.Exit(4), 4, ""),
        (EOFError(), 1, ENDED),
        (abort(EOFError()), 1, ENDED),
        (abort(KeyboardInterrupt()), 130, INTERRUPTED),
        (KeyboardInterrupt(), 130, INTERRUPTED),
        (click.UsageError("no"), 2, "no"),
        (click.UsageError("no", LEARN), 2, "no. See 'ostraka learn --help'"),
        (click.UsageError("no?", LEARN), 2, "no? See 'ostraka learn --help'"),
        (click.UsageError("(no)", LEARN), 2, "(no) See 'ostraka learn --help'"),
        (click.UsageError("n_teachers=9, n_answers of public rows (X_public)"), 2,
         "--teachers 9, --answers of rows of --public"),
        (click.UsageError("allow_overlap=True (--allow-overlap): n_answers=2, n_teachers"), 2,
         "--allow-overlap: --answers 2, --teachers"),
        (BudgetExceeded("nothing left"), 3, "nothing left"),
        (MemoryError(), 1, FEW),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (FileNotFoundError(2, "No such file", "x.csv"), 1, "x.csv: No such file"),
    ],
)  # fmt: skip
def test_each_error_has_its_code_and_words(error, code, words):
    assert console.failure(error) == (code, words)


def test_the_place_of_an_unexpected_error_is_at_most_six_frames_and_has_no_message():
    def deeper(n):
        return deeper(n - 1) if n else {}["secret"]

    with pytest.raises(KeyError) as error:
        deeper(9)
    code, words = console.failure(error.value)
    assert (code, words[:21], "secret" in words) == (1, "unexpected KeyError, ", False)
    assert words.count(f"cli/{Path(__file__).name}:") == words.count(" > ") + 1 == 6
    assert console.raised_here(None) is False
    assert console.failure(OSError("secret"))[1].startswith("unexpected OSError")
