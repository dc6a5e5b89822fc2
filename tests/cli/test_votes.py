"""Votes as files hold them: what is read, what each default means, and what is refused by shape alone."""

from pathlib import Path

import numpy as np
import pytest

from ostraka.cli.record import Votes, read, read_guesses

COUNTS = [[5, 0, 0], [2, 1, 2]]
SAID = [[0, 2], [0, 2], [0, 1], [0, 0], [0, 0]]  # teachers by queries, which are the counts above
CANARY = 31337


@pytest.fixture
def kept(tmp_path):
    """Call it for a file with these arrays."""

    def kept(**arrays):
        np.savez(tmp_path / "votes.npz", **arrays)
        return tmp_path / "votes.npz"

    return kept


def votes(path: Path, array=None, n_classes=None):
    cast = read(path, array=array, n_classes=n_classes)
    assert cast.counts.dtype == np.float64
    return cast.counts.tolist(), cast.queries


@pytest.mark.parametrize(
    ("arrays", "options", "counts"),
    [
        ({"counts": COUNTS, "predictions": [[1], [1]]}, {}, COUNTS),
        ({"predictions": SAID, "votes": [[1], [1]]}, {}, COUNTS),
        ({"votes": SAID, "x": [[1], [1]]}, {}, COUNTS),
        ({"anything": SAID}, {}, COUNTS),
        ({"counts": [[1, 1]], "mine": SAID}, {"array": "mine"}, COUNTS),
        ({"counts": np.array(COUNTS, float)}, {"n_classes": 3}, COUNTS),
        ({"counts": np.array([[0, 7]], np.uint8)}, {}, [[0, 7]]),
        ({"counts": [[0, 0]]}, {}, [[0, 0]]),
        ({"predictions": [[0, 0, 0]]}, {}, [[1, 0]] * 3),
        ({"predictions": np.array([[1, 0]], np.uint8)}, {}, [[0, 1], [1, 0]]),
        ({"predictions": SAID}, {"n_classes": 3}, COUNTS),
        ({"predictions": SAID}, {"n_classes": 4}, [[*row, 0] for row in COUNTS]),
    ],
)
def test_arrays_are_counts_or_what_each_teacher_said(kept, arrays, options, counts):
    named = tuple(str(number) for number in range(1, len(counts) + 1))
    assert votes(kept(**arrays), **options) == (counts, named)


@pytest.mark.parametrize(
    ("cells", "counts"),
    [
        ("0,2\n0,2\n0,1\n0,0\n0,0", COUNTS),
        ("b,c\nb,c\nb,b\nb,a\nb,a", [[0, 5, 0], [2, 1, 2]]),
        ("no,10\nno,9", [[0, 0, 2], [1, 1, 0]]),  # in the order of texts, as one of them is no number
        ("3,0\n3,0", [[0, 0, 0, 2], [2, 0, 0, 0]]),
    ],
)
def test_a_table_has_a_row_for_each_teacher_and_numbers_or_words(tmp_path, cells, counts):
    path = tmp_path / "said.csv"
    path.write_text(f"easy,hard\n{cells}\n")
    assert votes(path) == (counts, ("easy", "hard"))
    with pytest.raises(ValueError, match=r"--array is for \.npz files"):
        read(path, array="counts", n_classes=None)


@pytest.mark.parametrize(
    ("arrays", "options", "says"),
    [
        ({"counts": [[1], [2]]}, {}, r"array 'counts' must be numbers of shape .*, got shape \(2, 1\)"),
        ({"counts": [CANARY, 2]}, {}, r"got shape \(2,\)"),
        ({"counts": [[[1, 2]]]}, {}, r"got shape \(1, 1, 2\)"),
        ({"counts": np.zeros((0, 2))}, {}, r"got shape \(0, 2\)"),
        ({"counts": [["1", "2"]]}, {}, r"got shape \(1, 2\)"),
        ({"counts": [[True, False]]}, {}, r"got shape \(1, 2\)"),
        ({"counts": [[1.0, np.inf]]}, {}, "finite counts, none below 0"),
        ({"counts": [[1.0, -1.0]]}, {}, "finite counts, none below 0"),
        ({"counts": [[1.0, -0.5]]}, {}, "finite counts, none below 0"),
        ({"counts": [[1.0, 0.5]]}, {}, "whole numbers of votes; shares are no counts"),
        ({"counts": COUNTS}, {"n_classes": 2}, "has 3 classes, and --classes says 2: leave it out"),
        ({"counts": COUNTS}, {"n_classes": 4}, "has 3 classes, and --classes says 4: leave it out"),
        ({"predictions": [CANARY]}, {}, r"class numbers of shape .*, got shape \(1,\)"),
        ({"predictions": np.zeros((0, 2), int)}, {}, r"got shape \(0, 2\)"),
        ({"predictions": [[0.0, 1.0]]}, {}, r"got shape \(1, 2\)"),
        ({"predictions": [[0, -1]]}, {}, "class numbers from 0 to 0: a teacher may not abstain"),
        ({"predictions": [[0, -1]]}, {"n_classes": 3}, "class numbers from 0 to 2: a teacher may not"),
        ({"predictions": SAID}, {"n_classes": 2}, "class numbers from 0 to 1: a teacher may not"),
        ({"a": COUNTS, "b": SAID}, {}, "holds a, b, and none of it is called counts or predictions or votes"),
        ({"counts": COUNTS}, {"array": "b"}, "holds counts, and none of it is called .*: type --array NAME"),
        ({}, {}, "holds nothing, and none of it"),
    ],
)
def test_what_holds_no_votes_is_refused_without_quoting_it(kept, arrays, options, says):
    with pytest.raises(ValueError, match=says) as refused:
        votes(kept(**{name: np.array(values) for name, values in arrays.items()}), **options)
    assert str(CANARY) not in str(refused.value)


def test_a_teacher_without_an_answer_is_refused(tmp_path):
    (tmp_path / "holes.csv").write_text(f"a,b\n1,{CANARY}\n,0\n")
    with pytest.raises(ValueError, match=r"has empty cells: every teacher \(row\)") as refused:
        votes(tmp_path / "holes.csv")
    assert str(CANARY) not in str(refused.value)


def test_teachers_are_counted_where_all_answered_every_question():
    for counts, n_teachers in (([[3, 2], [1, 4]], 5), ([[3, 2], [1, 3]], None), ([[1.5, 2], [1.5, 2]], None)):
        cast = Votes(counts=np.array(counts, float), queries=("a", "b"))
        assert cast.n_teachers == n_teachers
        assert cast.first(None).counts.tolist() == counts
        assert (cast.first(1).counts.tolist(), cast.first(1).queries) == (counts[:1], ("a",))


def test_guesses_have_the_shape_of_the_counts(kept, tmp_path):
    guesses = [[0.5, 0.25], [1.0, 0.0]]
    path = tmp_path / "guesses.csv"
    path.write_text("a,b\n0.5,0.25\n1,0\n")
    for file in (path, kept(guesses=guesses, counts=[[1]]), kept(any=guesses)):
        assert read_guesses(file, shape=(2, 2)).tolist() == guesses
    with pytest.raises(ValueError, match=r"query and class, shape \(2, 3\), got shape \(2, 2\)"):
        read_guesses(path, shape=(2, 3))
    with pytest.raises(ValueError, match="must hold one finite probability"):
        read_guesses(kept(guesses=[[np.nan, 0.5]]), shape=(1, 2))
    with pytest.raises(ValueError, match="holds a, b, and none of it is called guesses: rename one"):
        read_guesses(kept(a=guesses, b=guesses), shape=(2, 2))
