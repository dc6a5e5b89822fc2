"""Every command has one voice: JSON, an example that can be typed, and words about what was mistyped."""

import pytest

from ostraka.cli import verbs
from rigs import mistakes

COMMANDS = dict(mistakes.commands())


def test_every_command_has_json_and_an_example_that_is_read():
    settings = verbs.command().context_settings  # click keeps a command's option of help as it first made it
    for name, command in COMMANDS.items():
        assert "--json" in {word for parameter in command.params for word in parameter.opts}, name
        words, n_words = mistakes.example(command), len(name.split())
        assert words[:n_words] == name.split()
        with command.make_context(name, words[n_words:], **settings) as context:
            assert context.params


def test_a_folder_is_called_a_folder():
    metavars = {parameter.metavar for command in COMMANDS.values() for parameter in command.params}
    assert not metavars & {"DIR", "DIRECTORY", "PATH"}
    for command in COMMANDS.values():
        for parameter in command.params:
            if "--out" in parameter.opts:
                assert parameter.metavar in {"FILE", "FOLDER"}


SOME = [mistake for name, command in COMMANDS.items() for mistake in mistakes.mistakes(name, command)][::61]


def test_mistakes_are_answered_in_words_about_them(tmp_path, monkeypatch):
    """A part of ``python -m rigs mistakes``."""
    monkeypatch.chdir(tmp_path)
    mistakes.files(tmp_path)
    assert len(SOME) > 20
    assert {str(m): why for m in SOME if (why := mistakes.wrong(m, *mistakes.answer(m)))} == {}


@pytest.mark.parametrize(
    ("words", "code", "output", "why"),
    [
        (("plan", "--rows", "x"), 0, "way", "accepted"),
        (("plan", "--rows", "x"), 1, "", "silent"),
        (("plan", "--rows", "x"), 1, "Traceback (most recent call last)", "says 'Traceback'"),
        (("plan", "--rows", "x"), 2, "--classes is missing", "about something else"),
        (("plan", "--rows", "x"), 2, "--rows must be a whole number", ""),
    ],
)
def test_a_wrong_answer_is_noticed(words, code, output, why):
    assert mistakes.wrong(mistakes.Mistake(words, ("--rows",)), code, output) == why


def test_no_number_is_infinite():
    for value in ("nan", "inf", "-inf", "1e400"):
        code, output = mistakes.answer(mistakes.Mistake(("plan", f"--epsilon={value}"), ()))
        assert (code, f"--epsilon must be a finite number, got {value!r}" in output) == (2, True), output
