"""The npm package: the page's own files, which give the known answers, and an element for other pages."""

import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import tarfile
from functools import partial
from pathlib import Path

import pytest

from ostraka.collect import Tree
from ostraka.secure.wire import PartyServer
from tests.collect.test_page import FILLED
from tests.collect.test_page_own import tally_of
from tests.collect.test_vectors import SCRIPT, kept
from tests.threads import http_server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The archive, and beside it the package where Node looks for it."""
    if not (ROOT / "packaging" / "npm.py").exists():
        pytest.skip("this is no checkout: the npm package is packed from one")
    spec = importlib.util.spec_from_file_location("npm", ROOT / "packaging" / "npm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("site")
    return module.packed(folder / "node_modules" / "@ostraka" / "collect")


def unpacked(archive: Path) -> Path:
    return archive.parent / "collect"


def test_the_archive_is_small_repeatable_and_without_dependencies(archive, tmp_path):
    assert archive.stat().st_size <= 60_000
    with tarfile.open(archive) as tar:
        names = {name.removeprefix("package/") for name in tar.getnames()}
        manifest = json.load(tar.extractfile("package/package.json"))
    assert "dependencies" not in manifest
    parts = [
        part
        for export in manifest["exports"].values()
        for part in (export.values() if isinstance(export, dict) else [export])
    ]
    assert {part.removeprefix("./") for part in parts} | {"package.json", "README.md", "LICENSE"} == names
    first = archive.read_bytes()
    spec = importlib.util.spec_from_file_location("npm", ROOT / "packaging" / "npm.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.packed(tmp_path / "collect").read_bytes() == first


@pytest.mark.parametrize("part", ["collect", "question", "similar"])
def test_types_name_what_is_exported(archive, part):
    code, types = ((unpacked(archive) / f"{part}{end}").read_text() for end in (".js", ".d.ts"))
    pattern = r"^export (?:async )?(?:function|class) (\w+)"
    exported, typed = (set(re.findall(pattern, text, re.MULTILINE)) for text in (code, types))
    assert typed <= exported
    assert typed >= exported & {
        "send",
        "report",
        "encode",
        "register",
        "Masking",
        "OwnLedger",
        "OstrakaQuestion",
        "ranked",
    }


def test_the_package_gives_the_known_answers_in_node(archive):
    program = shutil.which("node")
    if program is None:
        pytest.skip("there is no node here: install Node.js 20 or newer")
    head = 'import * as collect from "@ostraka/collect";\n'
    head += 'import all from "@ostraka/collect/vectors.json" with { type: "json" };\n'
    script = head + SCRIPT + "console.log(JSON.stringify(await main(all)));\n"
    site = archive.parents[2]
    run = subprocess.run(
        [program, "--no-warnings", "--input-type=module", "-e", script],
        cwd=site, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [case["answer"] for case in kept()]


def test_the_package_gives_the_known_answers_in_a_browser_and_its_element_sends_from_another_page(
    archive, browser
):
    site = archive.parents[2]
    tally = tally_of(Tree(0, 20), epsilon=5.0, sigma=9.0)
    with (
        http_server(partial(Quiet, directory=str(site))) as port,
        PartyServer(tally, pages=tally.pages) as server,
    ):
        (site / "index.html").write_text(
            '<!doctype html><html lang="en"><title>Elsewhere</title>'
            '<script type="module" src="node_modules/@ostraka/collect/question.js"></script>'
            f'<ostraka-question src="{server.url}"></ostraka-question></html>'
        )
        browser.open(f"http://127.0.0.1:{port}/index.html")
        answers = browser.ask(
            "(async () => { const collect = await import('./node_modules/@ostraka/collect/collect.js');"
            "const all = await (await fetch('./node_modules/@ostraka/collect/vectors.json')).json();"
            + SCRIPT + "return main(all); })()"
        )  # fmt: skip
        assert answers == [case["answer"] for case in kept()]
        assert browser.ask(FILLED % "sha") == tally.task.sha256
        browser.ask("document.getElementById('value').value = '7'")
        browser.ask("document.getElementById('form').requestSubmit()")
        assert browser.ask(FILLED % "said") == "Received. It will be counted once."
    assert tally.n_clients == 1


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_):
        pass
