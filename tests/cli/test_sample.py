"""ostraka sample, the demo: a made-up hospital, learned from by person, and a student anybody can load."""

import contextlib
import hashlib
import io
import json
import re
import shlex

import pytest

import ostraka
import ostraka.cli
from ostraka.cli.verbs import COMPLETING
from tests.cli.terminal import typed

pytestmark = pytest.mark.usefixtures("same_draws")


def test_the_command_that_it_prints_learns_at_epsilon_one_by_person(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output, _ = typed("sample", "tables", "--rows", "6000")
    assert code == 0
    program, *words = shlex.split(output.splitlines()[-1])
    assert program == "ostraka"
    code, out, _ = typed(*words, "--json", "--yes", "--out", "run")
    record = json.loads(out)
    assert code == 0
    assert record["settings"]["unit"] == "person"
    assert 0.9 < record["upper"]["epsilon"] <= 1
    assert record["utility"]["student"] > record["utility"]["majority"] + 0.05
    card = (tmp_path / "run" / "model-card.md").read_text()
    code_block = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
    assert "ostraka" not in code_block
    monkeypatch.chdir(tmp_path / "run")
    (tmp_path / "run" / "rows.csv").write_text((tmp_path / "tables" / "public.csv").read_text())
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(code_block, {})
    assert "yes" in shown.getvalue()


def test_its_rows_are_those_of_its_seed(tmp_path):
    digests = {}
    for seed in (3, 4):
        typed("sample", tmp_path / str(seed), "--rows", "100", "--seed", seed)
        for name in ("private", "public"):
            text = (tmp_path / str(seed) / f"{name}.csv").read_bytes()
            digests[seed, name] = hashlib.sha256(text).hexdigest()[:16]
            assert len(text.splitlines()) == {"private": 101, "public": 501}[name]
    assert digests[3, "private"] == "34cb3d81b21385f7"
    assert digests[3, "public"] == "bda9f1542340e6f1"
    assert len(set(digests.values())) == 4
    code, _, err = typed("sample", tmp_path / "3")
    assert (code, "private.csv" in err) == (2, True)


def test_the_version_names_the_commit_of_a_checkout():
    code, output, _ = typed("--version")
    assert code == 0
    assert re.fullmatch(r"ostraka \d+\.\d+\.\d+( \(commit [0-9a-f]{12}\))?\n", output)


def test_a_script_for_a_shell_completes_words():
    for shell in ("bash", "zsh", "fish"):
        code, output, _ = typed("--completion", shell)
        assert (code, "ostraka" in output, COMPLETING in output) == (0, True, True), shell


@pytest.mark.parametrize(
    ("words", "completed"), [("ostraka le", {"learn", "ledger"}), ("ostraka learn --way co", {"counts"})]
)
def test_a_shell_that_asks_gets_what_a_word_may_become(monkeypatch, capfd, words, completed):
    monkeypatch.setenv(COMPLETING, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit) as ending:
        ostraka.cli.main([])
    assert ending.value.code == 0
    assert {line.partition(",")[2] for line in capfd.readouterr().out.splitlines()} == completed
