"""Wording: what a prompt looks like, and which class an answer names."""

import pytest

from ostraka import ABSTAIN
from ostraka.voters import Template
from ostraka.voters.prompts import Reader


def test_a_prompt_is_instruction_demonstrations_and_question():
    template = Template(instruction="Pick {words}.", shot="{text} = {word}", query="{text} =", between=" | ")
    prompt = template.prompt("c", words=["x", "y"], shots=[("a", "x"), ("b", "y")])
    assert prompt == "Pick x, y. | a = x | b = y | c ="


def test_a_template_may_cut_long_texts():
    assert Template(query="{text:.3}:").prompt("abcdef", words=["x", "y"]).endswith("\n\nabc:")


def test_braces_in_a_text_are_text():
    prompt = Template().prompt("{word} {0} {{", words=["x", "y"], shots=[("{text.__class__}", "x")])
    assert "{word} {0} {{" in prompt
    assert "{text.__class__}" in prompt


@pytest.mark.parametrize(
    "parts",
    [
        {"instruction": "{labels}"},
        {"shot": "{text}"},
        {"shot": "{text} {word} {words}"},
        {"query": "Answer:"},
        {"query": "{text.__class__}"},
        {"query": "{text} {"},
        {"query": "{}"},
        {"shot": "{word:{text}} {text}"},
        {"query": "{text:d}"},
    ],
)
def test_a_template_with_other_fields_is_refused(parts):
    with pytest.raises(ValueError, match="of a template must"):
        Template(**parts)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("positive", "positive"),
        (" Positive.\n", "positive"),
        ("**positive**", "positive"),
        ("“Positive”", "positive"),
        ("POSITIVE\nText: another", "positive"),
        ("positive, not negative", "positive"),
        ("ｐｏｓｉｔｉｖｅ", "positive"),
        ("very positive", "very positive"),
        ("very  positive indeed", "very positive"),
        ("very", "very"),
        ("-1", "-1"),
        ("'-1'", "-1"),
        ("1", "1"),
        ("1.", "1"),
        ("positively", None),
        ("12", None),
        ("+1", None),
        ("It is positive", None),
        ("", None),
        ("\x00\ud800", None),
        (None, None),
    ],
)
def test_an_answer_names_the_longest_word_that_it_begins_with(answer, word):
    words = ["very", "positive", "negative", "very positive", "1", "-1"]
    read = Reader(words)
    assert read(answer) == (ABSTAIN if word is None else words.index(word))
    assert read(answer) == read(answer)


@pytest.mark.parametrize("words", [["Yes", "yes"], ["yes", ""], ["a  b", "A b"], ["ｙes", "yes"]])
def test_words_that_cannot_be_told_apart_are_refused(words):
    with pytest.raises(ValueError, match="words must differ"):
        Reader(words)
