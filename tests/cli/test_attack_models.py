"""ostraka attack membership, generator and property: from saved arrays to rates, a verdict and a page."""

import json
import stat
from functools import partial

import numpy as np
import pytest

from tests.cli.terminal import typed

attack = partial(typed, "attack")


def found(*words):
    """What is found in each target."""
    return json.loads(attack(*words, "--json").out)["found"]


def refusal(*words):
    """What is said, in one line, of a file that cannot be attacked."""
    code, _, err = attack(*words)
    assert code == 1
    return " ".join(err.split())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A leaking model and one that does not leak, of each kind."""
    rng = np.random.default_rng(1)
    member = rng.random(600) < 0.5
    included = rng.random((4, 600)) < 0.5
    level = rng.normal(0, 1, 600)
    written = {}
    for name, effect in (("leaks", 4.0), ("blind", 0.0)):
        z = level + effect * np.vstack([member, included]) + 0.5 * rng.normal(size=(5, 600))
        p = 1 / (1 + np.exp(-z))
        sides = included.any(axis=0) & ~included.all(axis=0)
        updates = np.abs(rng.normal(size=(80, 3))) + effect * (np.arange(80) % 2)[:, None] * [1, 0, 0]
        reference = np.abs(rng.normal(size=(60, 3))) + effect * np.array([1, 0, 0])
        arrays = {
            "membership": {"confidences": p[1:, sides], "included": included[:, sides]}
            | {"target": p[0, sides], "member": member[sides]},
            "generator": {"realness": z[0], "reference": level, "member": member},
            "property": {"observed": updates, "has_property": np.arange(80) % 2}
            | {"with_property": reference, "without": np.abs(rng.normal(size=(60, 3)))},
        }
        for kind, content in arrays.items():
            written[kind, name] = tmp_path_factory.mktemp(kind) / f"{name}.npz"
            np.savez(written[kind, name], **content)
    return written


@pytest.mark.parametrize("kind", ["membership", "generator", "property"])
def test_a_leak_is_found_and_a_defence_shows(files, kind):
    records = found(kind, files[kind, "leaks"], "--defended", f"noise={files[kind, 'blind']}")
    assert records["target"]["auc"] > 0.9
    assert records["noise"]["auc"] < 0.7
    assert [rate["fpr"] for rate in records["target"]["rates"]] == [0.001, 0.01, 0.1]
    assert "AUC" in attack(kind, files[kind, "leaks"]).out


@pytest.mark.parametrize("kind", ["membership", "generator"])
def test_exit_codes_are_those_of_audits(files, kind):
    assert attack(kind, files[kind, "leaks"], "--claimed-epsilon", "0.1").code == 4
    assert attack(kind, files[kind, "blind"], "--claimed-epsilon", "3").code == 0


def test_the_page_has_curves_and_suspects(files, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    assert attack("generator", files["generator", "leaks"], "--report", page, "--rows", "5").code == 0
    text = page.read_text()
    assert text.count("<svg") == 1
    assert "For the owner only" in text
    assert text.count("<tr><td>") == 5
    assert "false positive rate" in text


def test_samples_are_attacked_by_distance(tmp_path):
    rng = np.random.default_rng(2)
    rows, member = rng.random((200, 4)), rng.random(200) < 0.5
    samples = {"samples": rows[member] + 0.01, "reference_samples": rng.random((100, 4))}
    np.savez(tmp_path / "s.npz", candidates=rows, member=member, **samples)
    records = found("generator", tmp_path / "s.npz")
    assert list(records) == ["target", "target, Monte Carlo count"]
    assert all(figures["auc"] > 0.8 for figures in records.values())
    assert records["target"]["auc"] > 0.9


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"realness": [1.0, 2.0]}, "but needs numpy.savez"),
        ({"realness": [1.0, np.nan], "member": [True, False]}, "finite numbers"),
        ({"realness": [1.0, 2.0], "member": [2, 0]}, "must be 0 or 1"),
        ({"realness": [1.0, 2.0, 3.0], "member": [1, 0]}, "member must be bool of shape (3,)"),
        ({"realness": [1.0, 2.0], "member": [1, 1]}, "rows which are not"),
        ({"realness": np.ones((2, 2)), "member": [1, 0]}, "one number a row"),
        ({"realness": [1.0, 2.0], "reference": [1.0], "member": [1, 0]}, "one number a row"),
        (
            {"candidates": np.ones((2, 3)), "samples": np.ones((4, 2)), "member": [1, 0]},
            "of the same columns",
        ),
        ({"candidates": np.ones((2, 3)), "samples": np.ones((0, 3)), "member": [1, 0]}, "one sample or more"),
        ({"candidates": np.ones((2, 3, 3)), "samples": np.ones((4, 3, 3)), "member": [1, 0]}, "(n_rows, -1)"),
        (
            {"candidates": np.ones((2, 3)), "samples": np.ones((4, 3)), "member": [1, 0]}
            | {"reference_samples": np.ones((4, 2))},
            "of the same columns",
        ),
    ],
)
def test_files_that_cannot_be_attacked_are_refused_in_a_sentence(tmp_path, content, words):
    np.savez(tmp_path / "wrong.npz", **content)
    assert words in refusal("generator", tmp_path / "wrong.npz")


def test_a_defence_without_a_name_is_refused(files):
    code, _, err = attack("membership", files["membership", "leaks"], "--defended", "noname.npz")
    assert (code, "NAME=FILE" in err) == (2, True)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"with_property": np.zeros((0, 3))}, "with_property must hold two or more changes"),
        ({"without": np.ones((1, 3))}, "without must hold two or more changes"),
        ({"observed": np.zeros((0, 3)), "has_property": np.zeros(0)}, "observed must hold rounds"),
        ({"observed": np.zeros((80, 3))}, "all 80 rounds are 0: is there a party beside"),
        ({"observed": np.full((80, 3), np.nan)}, "finite numbers, but observed has others"),
        ({"has_property": np.ones(80)}, "the property is in every round"),
        ({"has_property": np.zeros(80)}, "the property is in no round"),
        ({"has_property": np.arange(20) % 2}, "has_property must be bool of shape (80,)"),
        ({"without": np.ones((4, 2))}, "as wide"),
        ({"observed": np.ones((80, 3)) * (np.arange(80) % 2)[:, None]}, "the property is in every round"),
    ],
)
def test_rounds_that_cannot_be_attacked_are_refused_in_a_sentence(files, tmp_path, changed, words):
    with np.load(files["property", "leaks"]) as saved:
        np.savez(tmp_path / "wrong.npz", **{**saved, **changed})
    assert words in refusal("property", tmp_path / "wrong.npz")


def test_a_property_is_in_rounds(files, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    output = attack("property", files["property", "leaks"], "--report", page).out
    assert "40 with the property among 80 rounds" in output
    assert stat.S_IMODE(page.stat().st_mode) == 0o600  # it names the most suspected
    text = page.read_text()
    assert "with the property</th>" in text
    assert "member" not in text


def test_rounds_in_which_nothing_was_seen_are_left_out_with_their_number(files, tmp_path):
    pytest.importorskip("matplotlib")
    with np.load(files["property", "leaks"]) as saved:
        arrays = dict(saved)
    arrays["observed"][:11] = 0
    np.savez(tmp_path / "absent.npz", **arrays)
    page = tmp_path / "page.html"
    output = attack("property", tmp_path / "absent.npz", "--report", page, "--rows", "69").out
    assert "35 with the property among 69 rounds" in output
    assert "11 rounds in which nothing was seen are left out" in output
    text = page.read_text()
    assert "target: 11 rounds in which nothing was seen are left out." in text
    suspects = [int(row.split("<")[0]) for row in text.split("<tr><td>")[1:]]
    assert sorted(suspects) == list(range(11, 80))  # numbers of the file's rounds
    absent = found("property", tmp_path / "absent.npz")["target"]
    later = {name: arrays[name][11:] for name in ("observed", "has_property")}
    np.savez(tmp_path / "cut.npz", **arrays | later)
    cut = found("property", tmp_path / "cut.npz")["target"]
    assert (absent.pop("left_out"), cut.pop("left_out")) == (11, 0)
    assert absent == cut


def test_a_folder_of_images_is_attacked_by_the_nearest_sample(tmp_path):
    """Samples that are members with noise; and what is missing is said with what to put there."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    real = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    for number, pixels in enumerate(real):
        path = tmp_path / ("members" if number < 10 else "others")
        path.mkdir(exist_ok=True)
        image.fromarray(pixels).save(path / f"{number}.png")
    assert "what it gave out into samples" in refusal("generator", tmp_path)
    (tmp_path / "samples").mkdir()
    for number, pixels in enumerate(real[:10] // 2 + 64):
        image.fromarray(pixels).save(tmp_path / "samples" / f"{number}.png")
    output = attack("generator", tmp_path, "--report", tmp_path / "page.html").out
    assert "target, Monte Carlo count: 10 members among 20 rows" in output
    page = (tmp_path / "page.html").read_text()
    assert "rows which many samples are near" in " ".join(page.split())
    assert found("generator", tmp_path)["target"]["auc"] == 1.0
    (tmp_path / "samples" / "small.png").write_bytes(b"\x89PNG")
    assert "small.png is no image that can be read" in refusal("generator", tmp_path)
    image.fromarray(real[0, :4]).save(tmp_path / "samples" / "small.png")
    assert "of one size" in refusal("generator", tmp_path)
