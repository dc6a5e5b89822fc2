"""Every command under bench/ and reproduce/ runs in its smallest form, so that none rots unseen."""

import importlib
from pathlib import Path

import pytest

from bench import _data

REPOSITORY = Path(__file__).resolve().parents[1]
# What a command needs beside the shared data, or more time than a test has.
NEEDS = {
    "bench.attacks": "torch",
    "bench.membership": "torch",
    "bench.membership_weights": "torch",
    "bench.dp_sgd": "opacus",
    "bench.dp_sgd_jax": "jax_privacy",
    "bench.service": "httptools",
    "bench.service_stages": "httptools",
    "bench.teachers": "torch",
    "reproduce.malek2021": "torch",
    "reproduce.melis2018_attacks": "torch",
    "reproduce.melis2018_membership": "torch",
    "bench.private_training": "torch",
}


def modules(folder):
    return [f"{folder}.{path.stem}" for path in sorted((REPOSITORY / folder).glob("[!_]*.py"))]


def test_every_command_has_a_smallest_form():
    lacking = [
        name
        for name in modules("bench") + modules("reproduce")
        if "QUICK" not in (REPOSITORY / f"{name.replace('.', '/')}.py").read_text()
    ]
    assert lacking == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", modules("bench") + modules("reproduce"))
def test_a_command_runs_in_its_smallest_form(name, data_dir, monkeypatch, capsys):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setenv("OSTRAKA_DATA", str(data_dir))
    monkeypatch.setattr(_data, "MOST_ROWS", None)  # put back after shrink() has set it
    command = importlib.import_module(name)
    for setting in command.QUICK:
        monkeypatch.setattr(command, setting, getattr(command, setting))
    folder, _, module = name.partition(".")
    assert importlib.import_module(f"{folder}.__main__").main(["--quick", module]) in (0, None)
    assert capsys.readouterr().out.strip()


def test_the_smallest_form_of_a_named_part_is_that_part_alone(monkeypatch):
    monkeypatch.setattr(_data, "MOST_ROWS", None)  # put back after shrink() has set it
    from reproduce import melis2018_statistics as thesis

    seen = []

    def part(*, quick):
        """Stands for a figure."""
        seen.append(quick)

    monkeypatch.setitem(thesis.PARTS, "figure4.4", part)
    main = importlib.import_module("reproduce.__main__").main
    assert main(["--quick", "melis2018_statistics", "figure4.4"]) == 0
    assert main(["melis2018_statistics", "figure4.4"]) == 0
    assert seen == [True, False]


def test_words_in_as_many_reports_are_taken_by_the_alphabet(monkeypatch):
    pytest.importorskip("torch")
    from reproduce import _melis2018_worlds as worlds

    texts = [("world", ["b", "d", "a"]), ("sports", ["c", "a", "b", "reuters"])]
    monkeypatch.setattr(worlds, "_texts", lambda _: texts)
    X, y, has = worlds.news(n_words=3)
    assert X.tolist() == [[1, 1, 0], [1, 1, 1]]  # a, b, and c rather than d, which is met first
    assert (y.tolist(), has.tolist()) == ([1, 0], [False, True])


@pytest.mark.parametrize("folder", ["bench", "reproduce"])
def test_an_unknown_name_is_refused_with_those_there_are(folder, capsys):
    main = importlib.import_module(f"{folder}.__main__").main
    assert main(["nothing"]) == 2
    assert "collect" in capsys.readouterr().err or folder == "reproduce"
