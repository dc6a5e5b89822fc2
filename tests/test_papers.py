"""The list of what is reproduced leaves out nothing that the papers number, and names only what exists."""

import re
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
RECORD = REPOSITORY / "docs" / "record"


def numbered(kind: str, last: int, *, chapter: int | None = None, first: int = 1) -> list[str]:
    """``Figure 1`` to ``Figure 9``, or ``Figure 4.1`` to ``Figure 4.11``."""
    before = "" if chapter is None else f"{chapter}."
    return [f"{kind} {before}{number}" for number in range(first, last + 1)]


# What each paper numbers, by its own text; of appendices without numbers, what they report.
PAPERS = {
    "Wang et al. 2022": [
        *numbered("Theorem", 2),
        "Algorithm 2",  # the only one: there is no Algorithm 1
        *numbered("Figure", 9),
        "Table 1",
        "Appendix D",
    ],
    "Papernot et al. 2017": [
        *numbered("Theorem", 3),
        "Lemma 4",
        *numbered("Figure", 5),
        "Appendix B.2, siamese networks",
        "Appendix B.2, binary experts",
        "Appendix B.2, unconfident points",
        "Appendix C, Adult",
        "Appendix C, Diabetes",
    ],
    "Chadha et al. 2024": [
        "Theorem 1",
        "Algorithm 1",
        *numbered("Table", 2),
        *numbered("Figure", 31),
        "Appendix C",
    ],
    "Melis 2018": [  # chapters 4 to 7
        *numbered("Figure", 11, chapter=4),
        *numbered("Table", 2, chapter=4),
        *numbered("Theorem", 5, first=3),
        "Lemma 2",
        *numbered("Algorithm", 7, first=3),
        *numbered("Figure", 8, chapter=5),
        *numbered("Table", 2, chapter=5),
        *numbered("Figure", 18, chapter=6),
        *numbered("Table", 1, chapter=6),
        *numbered("Figure", 11, chapter=7),
        *numbered("Table", 7, chapter=7),
    ],
    "Malek et al. 2021": [
        *numbered("Algorithm", 3),
        *numbered("Table", 4),  # the last two are in the supplement
        "Figure 1",
        "Section 7",
        "Section B",
        "Section D",
    ],
}
STATES = re.compile(r"agrees|differs because .+|not reproduced because .+")
COMMAND = re.compile(r"`python -m (reproduce|bench) (\w+)((?: [\w.]+)*)`")
PAGE = re.compile(r"\]\(((?:\.\./)?[\w-]+\.md)")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b|\b\d{1,2} [A-Z][a-z]+ 20\d\d\b")
TEST = re.compile(r"`(test_\w+)`")


def tables(page: str, head: str) -> dict[str, list[list[str]]]:
    """Rows of the table under each heading, whose head is as stated."""
    rows_by_table = {}
    for section in re.split(r"^## ", (RECORD / page).read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")]
        assert lines[0] == head, title
        rows_by_table[title] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return rows_by_table


ROWS = tables("papers.md", "| item | what it shows | state | where |")
ERRORS = tables("errata.md", "| where | what it says | what is right | shown by |")


@pytest.mark.parametrize("paper", PAPERS)
def test_everything_that_a_paper_numbers_is_listed_once(paper):
    assert sorted(row[0] for row in ROWS[paper]) == sorted(PAPERS[paper])


def test_every_item_has_one_of_three_states_and_what_was_done_can_be_found():
    assert list(ROWS) == list(PAPERS)
    for paper, rows in ROWS.items():
        for item, shows, state, where in rows:
            assert shows, (paper, item)
            assert STATES.fullmatch(state), (paper, item, state)
            # what only waits for a run is no reason; of the other papers some still does
            assert paper != "Melis 2018" or not re.search(r"\byet\b", state), item
            named = [*COMMAND.findall(where), *PAGE.findall(where), *TEST.findall(where)]
            assert named or (where == "–" and state.startswith("not reproduced")), (paper, item)


@pytest.mark.parametrize("page", ["papers.md", "errata.md"])
def test_commands_and_pages_that_are_named_exist(page):
    """A module of that name, with that part; tests and anchors are held by ``test_docs``."""
    text = (RECORD / page).read_text()
    assert text.count("python -m ") == len(COMMAND.findall(text))
    for folder, module, parts in COMMAND.findall(text):
        source = (REPOSITORY / folder / f"{module}.py").read_text()
        assert [part for part in parts.split() if f'"{part}"' not in source] == [], module
    assert [name for name in PAGE.findall(text) if not (RECORD / name).is_file()] == []


def test_what_was_run_stands_with_its_command_on_a_page_with_a_date():
    """Figures of a command are on a page that says when; a page that is named for a figure says when."""
    pages = {path.name: path.read_text() for path in REPOSITORY.joinpath("docs").rglob("*.md")}
    dated = {name for name, text in pages.items() if DATE.search(text)} - {"papers.md", "errata.md"}
    for paper, rows in ROWS.items():
        for item, _, state, where in rows:
            if state.startswith("differs"):
                assert {Path(page).name for page in PAGE.findall(where)} <= dated, (paper, item)
            for folder, module, _ in COMMAND.findall(where):
                run = re.compile(rf"python -m {folder}[ .]{module}\b")
                assert any(run.search(pages[name]) for name in dated), (paper, item, module)


def test_every_error_is_shown_by_something():
    for paper, rows in ERRORS.items():
        for where, *cells, proof in rows:
            assert all(cells), (paper, where)
            named = [*COMMAND.findall(proof), *PAGE.findall(proof), *TEST.findall(proof)]
            assert named, (paper, where)


def test_one_histogram_of_table_1_is_another_in_the_saved_votes(data_dir):
    """Wang et al. 2022, table 1: the last one of MNIST with low consensus."""
    printed, instead = [4, 17, 6, 11, 154, 4, 0, 11, 5, 38], [19, 7, 31, 7, 78, 4, 90, 10, 3, 1]
    others = [[12, 7, 6, 30, 4, 161, 0, 10, 19, 1], [4, 8, 7, 11, 38, 16, 1, 13, 8, 144]]
    others += [[4, 7, 15, 33, 6, 5, 0, 171, 5, 4], [4, 7, 117, 99, 4, 4, 0, 10, 4, 1]]
    with np.load(data_dir / "pate_votes" / "mnist_svhn_30_samples.npz") as file:
        saved = file["mnist_counts"].tolist()
    assert printed not in saved
    assert sorted(saved[-5:]) == sorted([instead, *others])
