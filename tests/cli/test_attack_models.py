"""ostraka attack membership, generator and property: from saved arrays to rates, a verdict and a page."""

import json
import stat

import numpy as np
import pytest

import ostraka.cli


def run(*arguments):
    """The exit code."""
    with pytest.raises(SystemExit) as left:
        ostraka.cli.main(["attack", *map(str, arguments)])
    return left.value.code or 0


@pytest.fixture
def files(tmp_path):
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
        seen = np.abs(rng.normal(size=(80, 3))) + effect * (np.arange(80) % 2)[:, None] * [1, 0, 0]
        known = np.abs(rng.normal(size=(60, 3))) + effect * np.array([1, 0, 0])
        arrays = {
            "membership": {"confidences": p[1:, sides], "included": included[:, sides]}
            | {"target": p[0, sides], "member": member[sides]},
            "generator": {"realness": z[0], "reference": level, "member": member},
            "property": {"observed": seen, "has_property": np.arange(80) % 2}
            | {"with_property": known, "without": np.abs(rng.normal(size=(60, 3)))},
        }
        for kind, content in arrays.items():
            written[kind, name] = tmp_path / f"{kind}-{name}.npz"
            np.savez(written[kind, name], **content)
    return written


@pytest.mark.parametrize("kind", ["membership", "generator", "property"])
def test_a_leak_is_found_and_a_defence_shows(files, kind, capsys):
    assert run(kind, files[kind, "leaks"], "--defended", f"noise={files[kind, 'blind']}", "--json") == 0
    found = json.loads(capsys.readouterr().out)["found"]
    assert found["target"]["auc"] > 0.9
    assert found["noise"]["auc"] < 0.7
    assert [rate["fpr"] for rate in found["target"]["rates"]] == [0.001, 0.01, 0.1]
    assert run(kind, files[kind, "leaks"]) == 0
    assert "AUC" in capsys.readouterr().out


def test_exit_codes_are_those_of_audits(files, capsys):
    for kind in ("membership", "generator"):
        assert run(kind, files[kind, "leaks"], "--claimed-epsilon", "0.1") == 4
        assert run(kind, files[kind, "blind"], "--claimed-epsilon", "3") == 0
    assert "3" in capsys.readouterr().out


def test_the_page_has_curves_and_suspects(files, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    assert run("generator", files["generator", "leaks"], "--report", page, "--rows", "5") == 0
    text = page.read_text()
    assert text.count("<svg") == 1
    assert "For the owner only" in text
    assert text.count("<tr><td>") == 5
    assert "false positive rate" in text


def test_samples_are_attacked_by_distance(tmp_path, capsys):
    rng = np.random.default_rng(2)
    rows, member = rng.random((200, 4)), rng.random(200) < 0.5
    samples = {"samples": rows[member] + 0.01, "reference_samples": rng.random((100, 4))}
    np.savez(tmp_path / "s.npz", candidates=rows, member=member, **samples)
    assert run("generator", tmp_path / "s.npz", "--json") == 0
    found = json.loads(capsys.readouterr().out)["found"]
    assert list(found) == ["target", "target, Monte Carlo count"]
    assert all(figures["auc"] > 0.8 for figures in found.values())
    assert found["target"]["auc"] > 0.9


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"realness": [1.0, 2.0]}, "but needs numpy.savez"),
        ({"realness": [1.0, np.nan], "member": [True, False]}, "finite numbers"),
        ({"realness": [1.0, 2.0], "member": [2, 0]}, "must be 0 or 1"),
        ({"realness": [1.0, 2.0, 3.0], "member": [1, 0]}, "member must be bool of shape (3,)"),
        ({"realness": [1.0, 2.0], "member": [1, 1]}, "rows which are not"),
    ],
)
def test_files_that_cannot_be_attacked_are_refused_in_a_sentence(tmp_path, capsys, content, words):
    np.savez(tmp_path / "wrong.npz", **content)
    assert run("generator", tmp_path / "wrong.npz") == 1
    assert words in capsys.readouterr().err


def test_a_defence_without_a_name_is_refused(files, capsys):
    assert run("membership", files["membership", "leaks"], "--defended", "noname.npz") == 2
    assert "NAME=FILE" in capsys.readouterr().err


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
def test_rounds_that_cannot_be_attacked_are_refused_in_a_sentence(files, tmp_path, capsys, changed, words):
    with np.load(files["property", "leaks"]) as saved:
        np.savez(tmp_path / "wrong.npz", **{**saved, **changed})
    assert run("property", tmp_path / "wrong.npz") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert words in said
    assert "unexpected" not in said


def test_a_property_is_in_rounds(files, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert run("property", files["property", "leaks"], "--report", tmp_path / "page.html") == 0
    assert "40 with the property among 80 rounds" in capsys.readouterr().out
    written = tmp_path / "page.html"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600  # it names the most suspected
    page = written.read_text()
    assert "with the property</th>" in page
    assert "member" not in page


def test_rounds_in_which_nothing_was_seen_are_left_out_with_their_number(files, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    with np.load(files["property", "leaks"]) as saved:
        arrays = dict(saved)
    arrays["observed"][:11] = 0
    np.savez(tmp_path / "absent.npz", **arrays)
    page = tmp_path / "page.html"
    assert run("property", tmp_path / "absent.npz", "--report", page, "--rows", "69") == 0
    said = capsys.readouterr().out
    assert "35 with the property among 69 rounds" in said
    assert "11 rounds in which nothing was seen are left out" in said
    text = page.read_text()
    assert "target: 11 rounds in which nothing was seen are left out." in text
    suspects = [int(each.split("<")[0]) for each in text.split("<tr><td>")[1:]]
    assert sorted(suspects) == list(range(11, 80))  # numbers of the file's rounds
    assert run("property", tmp_path / "absent.npz", "--json") == 0
    absent = json.loads(capsys.readouterr().out)["found"]["target"]
    later = {each: arrays[each][11:] for each in ("observed", "has_property")}
    np.savez(tmp_path / "cut.npz", **arrays | later)
    assert run("property", tmp_path / "cut.npz", "--json") == 0
    cut = json.loads(capsys.readouterr().out)["found"]["target"]
    assert (absent.pop("left_out"), cut.pop("left_out")) == (11, 0)
    assert absent == cut


def test_a_folder_of_images_is_attacked_by_the_nearest_sample(tmp_path, capsys):
    """Samples that are members with noise; and what is missing is said with what to put there."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    real = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    for number, pixels in enumerate(real):
        path = tmp_path / ("members" if number < 10 else "others")
        path.mkdir(exist_ok=True)
        image.fromarray(pixels).save(path / f"{number}.png")
    assert run("generator", tmp_path) == 1
    assert "what it gave out into samples" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "samples").mkdir()
    for number, pixels in enumerate(real[:10] // 2 + 64):
        image.fromarray(pixels).save(tmp_path / "samples" / f"{number}.png")
    assert run("generator", tmp_path, "--report", tmp_path / "page.html") == 0
    assert "target, Monte Carlo count: 10 members among 20 rows" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert "rows which many samples are near" in " ".join(page.split())
    assert run("generator", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["found"]["target"]["auc"] == 1.0
    (tmp_path / "samples" / "small.png").write_bytes(b"\x89PNG")
    assert run("generator", tmp_path) == 1
    assert "small.png is no image that can be read" in " ".join(capsys.readouterr().err.split())
    image.fromarray(real[0, :4]).save(tmp_path / "samples" / "small.png")
    assert run("generator", tmp_path) == 1
    assert "of one size" in " ".join(capsys.readouterr().err.split())
