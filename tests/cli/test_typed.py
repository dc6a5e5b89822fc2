"""Commands as people mistype them: each is refused in words about what was typed, and changes no file."""

import json
import shlex
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import numpy as np
import pytest

import ostraka.cli
from tests.cli.terminal import typed

GNMAX = "--mechanism gnmax --sigma 40"
PLAN = "collect plan histogram:0:100:10 --clients 1000 --epsilon 1"
AUDIT = "audit mechanism gnmax --sigma 2 --trials 1e3"

MISTAKES = [
    # what is typed, the exit code, part of what is said
    ("collect new survey --question Q --range 0:9 --clients 100 --least=-1", 2, "--least"),
    (f"account votes.npz {GNMAX} --classes 2", 1, "has 4 classes, and --classes says 2"),
    (f"account shares.npz {GNMAX}", 1, "must hold whole numbers of votes"),
    (f"account votes.npz {GNMAX} --delta 3", 2, "--delta: delta must be > 0 and < 1"),
    (f"account empty.npz {GNMAX}", 1, "cannot be read as .npz with plain arrays"),
    ("account votes.npz --mechanism gnmax --sigma 1e-300", 2, "--sigma must be at least 0.001 votes"),
    ("account votes.npz --mechanism gnmax --sigma 1e300", 2, "--sigma: sigma must be at most 1e+150"),
    ("account votes.npz --mechanism lnmax --scale 1e-9", 2, "--scale must be at least 0.001 votes"),
    (f"{AUDIT} --votes 14,-12 --neighbour 13,-11", 2, "--votes must be votes, none below 0"),
    (f"{AUDIT} --votes 14,12 --neighbour 13,13 --figure x.png", 2, "type a name that ends with .svg"),
    (f"{AUDIT} --votes 14,12 --neighbour 13,13 --trials 1", 2, "--trials must be a whole number from 2"),
    (f"{AUDIT} --votes 14,12 --neighbour 13,13 --delta 3", 2, "delta must be > 0 and < 1"),
    ("audit answers with.csv with.csv --column answer --claimed-epsilon 3 --delta 3", 2, "delta must be > 0"),
    (
        "audit answers one.csv with.csv --column answer --claimed-epsilon 3 --delta 1e-5",
        1,
        "two answers or more",
    ),
    ("audit answers floats.csv floats.csv --claimed-epsilon 3 --delta 1e-5", 2, "answers are classes"),
    ("attack votes answers.csv --mechanism gnmax --sigma 1e-300", 2, "--sigma must be at least"),
    (
        "plan --rows 1e4 --classes 2 --epsilon 2 --seed -1",
        2,
        "--seed must be a whole number, at least 0, got '-1'",
    ),
    ("plan --rows 10 --classes 2 --epsilon 2", 2, "--rows must be a whole number, at least 16"),
    ("plan --rows 1.5 --classes 2 --epsilon 2", 2, "--rows must be a whole number, at least 16"),
    ("plan --rows 1e3 --classes 1 --epsilon 2", 2, "--classes must be a whole number, at least 2"),
    ("plan --rows 1e3 --classes 2 --epsilon 2 --delta 3", 2, "delta must be > 0 and < 1"),
    ("plan --rows 1e3 --classes 2 --epsilon 2 --delta 0.5", 2, "delta must be below"),
    ("plan --rows 1e3 --classes 2 --epsilon 2 --columns 0", 2, "--columns"),
    ("plan --rows 1e3 --classes 2 --epsilon 2 --label y", 2, "--proxy"),
    ("plan --rows 1e3 --classes 2", 2, "one of them"),
    ("plan --rows 1e3 --classes 2 --target-accuracy 7", 2, "below 1, got 7"),
    ("plan --classes 2 --epsilon 1", 2, "--rows"),
    ("learn --seed -1", 2, "--seed must be a whole number, at least 0, got '-1'"),
    ("learn --teachers 1e9", 2, "use --teachers 1150 or fewer"),
    ("learn --sigma 1e-300", 3, "use more noise"),
    ("learn --sigma 1e300", 2, "sigma must be at most 1e+150"),
    ("learn with.csv --label answer --holdout 0.2 --classes 5..2", 2, "the second number must be larger"),
    ("learn with.csv --label answer --holdout 0.2 --same ja", 2, "--same ja: type a class"),
    ("learn with.csv --label answer --holdout 0.2 --decimal ;", 2, "the decimal sign must be"),
    ("learn with.csv --label answer --holdout 0.2 --sheet Data --skip-lines -1", 2, "--skip-lines must be"),
    ("learn empty.npz --label y --holdout 0.2", 1, "cannot be read as .npz with plain arrays"),
    ("learn empty.csv --label y --holdout 0.2", 1, "is empty: it needs a header line"),
    ("check nowhere.csv --label y", 1, "nowhere.csv: No such file"),
    ("check with.csv --label y", 1, "has no column 'y' (--label)"),
    ("check with.csv --report mine.txt", 2, "mine.txt exists, and is not overwritten"),
    ("check with.csv --report no/such.html", 2, "no is not a folder: make it, or type another --report"),
    ("check with.csv --public with.csv --holdout 0.2", 2, "exclude each other"),
    ("check empty.csv", 1, "is empty"),
    (f"{PLAN} --trust nonsense", 2, "'--trust'"),
    (f"{PLAN} --honest 0", 2, "--honest must be"),
    (f"{PLAN} --honest 100", 2, "must be at most the 3 keepers there are"),
    (f"{PLAN} --out mine.txt", 2, "mine.txt exists, and is not overwritten"),
    ("collect show median out.json --html mine.txt", 2, "mine.txt exists, and is not overwritten"),
    (f"{PLAN} --out task.json --tally {'0' * 64}", 2, "--trust keepers needs the public key of each"),
    (f"{PLAN} --out task.json --trust clients --keeper {'0' * 64}", 2, "--trust clients has no keepers"),
    ("sample own", 2, "own/private.csv exists, and is not overwritten"),
    ("ledger tables nowhere", 0, "there are no ledgers of tables in nowhere"),
    ("ledger show nowhere", 1, "there is no ledger at nowhere"),
    ("report nowhere", 1, "holds no result.json"),
    ("synth samplex run --out more.csv", 2, "No such command 'samplex'. Did you mean 'sample'?"),
    ("check with.csv --label answer --epsilon=-1", 2, "--epsilon: epsilon must be finite and > 0"),
    ("check with.csv --label answer --holdout 7", 2, "--holdout: holdout must be > 0 and < 1"),
    (f"{PLAN} --colluding 7", 2, "--colluding must be a finite number, from 0 to 1, got '7'"),
    (f"{PLAN} --missing nan", 2, "--missing must be a finite number"),
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Files that commands may be tried on, and one that is precious."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("votes.npz", counts=rng.multinomial(100, [0.7, 0.1, 0.1, 0.1], size=5))
    np.savez("shares.npz", counts=rng.random((5, 4)))
    (tmp_path / "empty.npz").touch()
    (tmp_path / "empty.csv").touch()
    (tmp_path / "own").mkdir()
    for name in ("mine.txt", "own/private.csv"):
        (tmp_path / name).write_text("precious\n")
    for name, column, cells in (
        ("answers.csv", "query,label", [f"{k % 5},{k % 3}" for k in range(60)]),
        ("with.csv", "answer,x", [f"{k % 3},{k}" for k in range(200)]),
        ("one.csv", "answer", ["1"]),
        ("floats.csv", "answer", [f"{value:.4f}" for value in rng.random(200)]),
    ):
        (tmp_path / name).write_text("\n".join([column, *cells]) + "\n")
    return tmp_path


@pytest.mark.parametrize(("words", "code", "sentence"), MISTAKES, ids=[words for words, *_ in MISTAKES])
def test_a_mistake_is_refused_in_words_about_it(words, code, sentence, files):
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    got, out, err = typed(*shlex.split(words))
    assert (got, sentence in out + err) == (code, True), err
    assert "interrupted" not in out + err
    assert {path: path.read_bytes() for path in files.rglob("*") if path.is_file()} == before


def test_a_task_is_written_for_those_who_are_trusted(files):
    from ostraka.collect.task import Task

    code, _, err = typed(
        *PLAN.split(), "--trust", "clients", "--tally", "0" * 64, "--out", "task.json", "--json"
    )
    assert code == 0, err
    assert Task.from_json((files / "task.json").read_text()).keepers == ()


def test_help_and_the_version_have_short_forms():
    for words in ("-h", "learn -h", "ledger show -h", "collect plan -h"):
        code, out, _ = typed(*words.split())
        assert (code, out[:14]) == (0, "Usage: ostraka"), words
    assert typed("-V")[1].startswith(f"ostraka {ostraka.__version__}")


@pytest.mark.parametrize(
    ("source", "commit"),
    [(None, ""), ({}, ""), ({"vcs_info": {"commit_id": "0123456789abcdef"}}, " (commit 0123456789ab)")],
)
def test_the_version_has_the_commit_that_pip_installed_from(source, commit, monkeypatch, tmp_path):
    def distribution(name):
        if source is None:
            raise PackageNotFoundError(name)
        return SimpleNamespace(read_text=lambda _: json.dumps(source))

    monkeypatch.setattr(ostraka, "__file__", str(tmp_path / "site-packages" / "ostraka" / "__init__.py"))
    monkeypatch.setattr("importlib.metadata.distribution", distribution)
    assert typed("--version").out == f"ostraka {ostraka.__version__}{commit}\n"


COMMIT = "0123456789abcdef0123"


@pytest.mark.parametrize(
    ("files", "commit"),
    [
        ({".git/HEAD": f"{COMMIT}\n"}, COMMIT[:12]),  # no branch
        ({".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"}, COMMIT[:12]),
        (
            {
                ".git": "gitdir: TMP/kept/worktrees/w\n",
                "kept/worktrees/w/HEAD": "ref: refs/heads/mine\n",
                "kept/worktrees/w/commondir": "TMP/kept\n",
                "kept/refs/heads/mine": COMMIT,
            },
            COMMIT[:12],
        ),
        ({".git": "gitdir: TMP/kept\n", "kept/HEAD": "f" * 40}, "f" * 12),
        ({".git/HEAD": "ref: refs/heads/gone\n"}, "abcabcabcabc"),  # then by what pip wrote down
    ],
)
def test_the_version_has_the_commit_of_a_checkout(files, commit, monkeypatch, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("TMP", str(tmp_path)))
    pip = SimpleNamespace(read_text=lambda _: json.dumps({"vcs_info": {"commit_id": "abc" * 14}}))
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: pip)
    monkeypatch.setattr(ostraka, "__file__", str(tmp_path / "src" / "ostraka" / "__init__.py"))
    assert typed("--version").out == f"ostraka {ostraka.__version__} (commit {commit})\n"


@pytest.mark.parametrize(
    ("words", "verb"),
    [(["ledger", "show"], "ledger"), (["show", "ledger"], ""), (["-V"], ""), (["nonsense", "ledger"], "")],
)
def test_the_room_of_the_first_word_alone_is_loaded(words, verb, monkeypatch):
    loaded = []
    command = ostraka.cli._verbs.command
    monkeypatch.setattr(
        ostraka.cli._verbs, "command", lambda name="": loaded.append(name) or command("ledger")
    )
    typed(*words)
    assert loaded == [verb]
    assert list(command("ledger").commands) == ["ledger"]


@pytest.mark.parametrize(
    ("words", "start"), [(["--version"], "ostraka "), ([], "Usage: ostraka [OPTIONS]"), (["-h"], "Usage: ")]
)
def test_what_a_shell_hands_over_is_read_without_the_name_of_the_program(words, start, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ostraka", *words])
    with pytest.raises(SystemExit) as ending:
        ostraka.cli.main()
    assert (ending.value.code, capsys.readouterr().out.startswith(start)) == (0, True)


@pytest.mark.parametrize("end", [".", "!", "?", "'", ""])
def test_a_message_ends_as_a_sentence(end, monkeypatch):
    monkeypatch.setattr(ostraka.cli, "_run", lambda _: (1, f"no{end}"))
    assert typed("x") == (1, "", f"ostraka: no{end or '.'}\n")
    monkeypatch.setattr(ostraka.cli, "_run", lambda _: (0, ""))
    assert typed("x") == (0, "", "")


def test_whole_numbers_may_have_an_exponent_and_other_words_may_not_change(files):
    code, _, err = typed("account", "votes.npz", *GNMAX.split(), "--answers-per-query=1e2", "--json")
    assert code == 0, err
    assert "no column '1e3'" in typed("check", "with.csv", "--label", "1e3").err
