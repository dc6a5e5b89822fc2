"""The pages are true: code runs, links lead somewhere, named tests exist, every command has a section."""

import doctest
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ostraka
from ostraka.cli.verbs import command

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

PLAIN_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Fenced code of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Headings as GitHub and MyST name them."""
    titles = re.findall(
        r"^#+ (.+)$", PLAIN_CODE.sub(lambda m: m[0].strip("`"), page.read_text()), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def commands() -> dict[str, object]:
    """Every command a person can type, by name: ``learn``, ``ledger show``."""
    commands_of = {}
    groups = [("", command())]
    while groups:
        prefix, group = groups.pop()
        for name, child in group.commands.items():
            if hasattr(child, "commands"):
                groups.append((f"{prefix}{name} ", child))
            else:
                commands_of[f"{prefix}{name}"] = child
    return commands_of


COMMANDS = commands()


def options(command: object) -> set[str]:
    """Long options of a command."""
    return {
        word for param in command.params for word in (*param.opts, *param.secondary_opts) if word[:2] == "--"
    }


LONG_PAGES = {
    "collaboration.md",
    "label-privacy.md",
    "ledger.md",
    "noisy-counts.md",
    "parties.md",
    "publishing-epsilon.md",
    "quickstart.md",
}


@pytest.mark.parametrize("name", sorted(LONG_PAGES))
def test_python_of_a_long_page_compiles_and_imports_what_exists(name):
    (page,) = [page for page in PAGES if page.name == name]
    lines = [line.removeprefix(">>> ") for code in blocks(page, "python") for line in code.splitlines()]
    code = "\n".join(blocks(page, "python"))
    if ">>>" not in code:
        compile(code, name, "exec")
    for line in lines:
        if re.match(r"from ostraka[\w.]* import [\w, ]+$", line):
            exec(line, {})


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG_PAGES else [])
        for page in PAGES
    ],
)
@pytest.mark.usefixtures("same_draws")
def test_python_on_the_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(page, "python")):
        where = f"{page.name}, python block {number + 1}"
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, names, where, str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            runner.run(test, clear_globs=False)
            names = test.globs
            assert runner.summarize(verbose=False).failed == 0, where
        else:
            exec(compile(code, where, "exec"), names)


def test_links_between_pages_lead_somewhere():
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", PLAIN_CODE.sub("", page.read_text())):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            other = (page.parent / name).resolve() if name else page
            if not other.exists() or (anchor and anchor not in anchors(other)):
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_tests_named_on_the_pages_exist():
    defined = set()
    for path in (REPOSITORY / "tests").rglob("*.py"):
        defined |= {path.name, path.relative_to(REPOSITORY).as_posix()}
        defined |= set(re.findall(r"def (test_\w+)", path.read_text()))
    file = r"(?:[\w/]+\.py::(?:\w+::)*)?"
    name = re.compile(rf"`{file}((?:tests/[\w/]+\.py)|(?:test_\w+(?:\.py)?))(?:\[.*?\])?`")
    named = {(page.name, test) for page in PAGES for test in name.findall(page.read_text())}
    assert {(page, test) for page, test in named if test not in defined} == set()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_section_that_names_its_options(name):
    text = (DOCS / "cli.md").read_text()
    section = re.search(rf"^## `ostraka {name}`\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    assert section, f"docs/cli.md has no section '## `ostraka {name}`'"
    said = set(re.findall(r"--[\w-]+", section[1]))
    assert options(COMMANDS[name]) - {"--help"} <= said


def test_commands_on_the_pages_can_be_typed():
    wrong = []
    for page in PAGES:
        for line in "\n".join(blocks(page, "(?:sh|console|bash)")).replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] != ["ostraka"] or words[1:2] in ([], ["--help"], ["--version"]):
                continue
            name = next((n for n in (" ".join(words[1:3]), words[1]) if n in COMMANDS), None)
            typed = {word.partition("=")[0] for word in words if word.startswith("--")}
            if name is None or not typed <= options(COMMANDS[name]) | {"--help"}:
                wrong.append(f"{page.name}: {line}")
    assert wrong == []


@pytest.mark.parametrize("command", ["demo", "test"])
def test_the_readme_starts_with_two_commands_that_exist(command):
    first = blocks(REPOSITORY / "README.md", "sh")[0]
    assert f"make {command}" in first
    assert re.search(rf"^{command}:", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


def public_modules() -> set[str]:
    """Nouns and stages that have something to offer."""
    stubs = [path.stem for path in Path(ostraka.__file__).parent.glob("*.pyi")]
    names = [*stubs, "cli", "collect", "networks", "report", "secure", "synth", "text", "voters"]
    nouns = {"curve", "private", "result"}  # ostraka itself exports what they hold
    offers = [n for n in names if n in nouns or importlib.import_module(f"ostraka.{n}").__all__]
    return {f"ostraka.{name}" for name in offers}


def test_the_reference_has_every_public_module():
    pages = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    modules = set(re.findall(r"automodule:: (ostraka\.\w+)", pages))
    assert modules | {"ostraka.cli"} == public_modules()


def test_the_readme_says_what_exists():
    works, planned = set(), set()
    for row in re.findall(r"^\|.*\|$", (REPOSITORY / "README.md").read_text(), flags=re.MULTILINE):
        (planned if "not yet" in row else works).update(re.findall(r"`(ostraka\.\w+)`", row))
    nouns = {"ostraka.private", "ostraka.result"}
    assert works == public_modules() - nouns
    assert planned & public_modules() == set()


MANUAL = [
    page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in ("record", "decisions")
]


def test_the_manual_has_at_most_45_pages():
    """Each tutorial is a page, and so is their list."""
    tutorials = list((DOCS / "tutorials").glob("plot_*.py"))
    assert len(MANUAL) + len(tutorials) + 1 <= 45, "move what nobody needs to use ostraka to docs/record/"


QUESTIONS = [  # what people ask, and a heading under which the answer stands
    ("what do I type first?", "index.md", "learn-a-model"),
    ("my table has holes", "tables.md", "missing-values"),
    ("which epsilon?", "faq.md", "which-epsilon-do-i-take"),
    ("how many rows do I need?", "faq.md", "how-many-rows-do-i-need"),
    ("is it enough for the GDPR?", "faq.md", "does-it-make-data-anonymous-under-the-gdpr"),
    ("is it enough for HIPAA?", "faq.md", "is-it-enough-for-hipaa"),
    ("does it work with MLflow?", "faq.md", "does-it-work-with-mlflow"),
    ("my label is a number", "faq.md", "can-it-do-regression"),
    ("what does an option do?", "cli.md", "ostraka-learn"),
    ("how do I run the service?", "operations.md", "install"),
]


@pytest.mark.parametrize(
    ("page", "heading"), [question[1:] for question in QUESTIONS], ids=[question[0] for question in QUESTIONS]
)
def test_a_question_is_answered_two_clicks_from_the_landing_page(page, heading):
    def links(name: str) -> set[str]:
        return set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / name).read_text()))

    first = links("index.md")
    assert page in {"index.md"} | first | {name for linked in first for name in links(linked)}
    assert heading in anchors(DOCS / page)


def test_the_four_tasks_of_the_landing_page_have_a_picture_and_a_command_each():
    page = (DOCS / "index.md").read_text().partition("## Who are you?")[0]
    tasks = page.split("\n## ")[1:]
    assert [task.partition("\n")[0] for task in tasks] == [
        "Learn a model",
        "Release a table",
        "Collect from many",
        "Audit a claim",
    ]
    for task in tasks:
        assert len(re.findall(r"^ostraka ", task, re.MULTILINE)) == 1
        assert len(re.findall(r"^!\[", task, re.MULTILINE)) == 1


PLACES = {"missing values": "tables", "gdpr": "faq", "mlflow": "faq", "glossary": "concepts"}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="Sphinx is not installed")
def test_the_site_builds_without_a_warning_and_its_search_finds_the_page(tmp_path, request):
    # one test: processes that share the tests would each build the site
    run = subprocess.run(
        # tutorials are read but not executed: tests/test_tutorials.py and `make docs` do that
        [
            *(sys.executable, "-m", "sphinx", "-W", "-q", "--keep-going"),
            *("-D", "plot_gallery=0", "-D", "html_theme=basic", str(DOCS), str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert len(list(tmp_path.rglob("*.html"))) <= 45
    browser = request.getfixturevalue("browser")  # skips where there is none
    results = "[...document.querySelectorAll('#search-results li a')].map(one => one.getAttribute('href'))"
    look = f"const look = () => {results}.length ? done(true) : setTimeout(look, 50); look()"
    for words, page in PLACES.items():
        browser.open(f"{(tmp_path / 'search.html').as_uri()}?q={words.replace(' ', '+')}")
        assert browser.ask(f"new Promise(done => {{ {look} }})")
        assert browser.ask(results)[0].split("#")[0] == f"{page}.html", words
