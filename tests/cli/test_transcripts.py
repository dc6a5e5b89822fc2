"""What verbs print, word for word: the commands of a record are typed again."""

import pytest

from tests.golden import blocks, transcripts

RECORDED = blocks.read(transcripts.RECORD)


@pytest.mark.parametrize("name", sorted({*RECORDED, *transcripts.CASES}))
def test_commands_print_what_was_read_and_agreed_to(name):
    blocks.hold(transcripts.RECORD, name, transcripts.CASES[name]())
