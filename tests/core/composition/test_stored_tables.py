"""Tables on disk: only their owner reads them, and what is not as it was written is not used."""

import os

import numpy as np
import pytest

from ostraka.core.laws import stored

pytestmark = pytest.mark.usefixtures("monkeypatch")  # each has a folder of its own: tmp_path


def test_a_table_comes_back_from_disk_and_only_its_owner_may_read_it(tmp_path):
    stored.save("name", np.arange(5.0))
    (path,) = (tmp_path / "ostraka" / "composition").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert (stored.load("name") == np.arange(5.0)).all()
    assert stored.load("another name") is None


@pytest.mark.parametrize("harm", ["flip", "cut", "open", "name"])
def test_a_file_that_is_not_as_written_is_not_used(tmp_path, harm):
    stored.save("name", np.arange(5.0))
    (path,) = (tmp_path / "ostraka" / "composition").iterdir()
    content = bytearray(path.read_bytes())
    if harm == "flip":
        content[40] ^= 1
        path.write_bytes(content)
    elif harm == "cut":
        path.write_bytes(content[:-8])
    elif harm == "open":
        path.chmod(0o666)
    else:
        stored.save("other", np.ones(5))
        (temporary,) = set(path.parent.iterdir()) - {path}
        temporary.replace(path)
    assert stored.load("name") is None


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    stored.save("name", np.ones(3))
    assert stored.load("name") is None


def test_beyond_its_limit_the_folder_forgets_what_was_used_longest_ago(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "_MOST", 4 * 4096)
    folder = tmp_path / "ostraka" / "composition"
    names = [f"table {n}" for n in range(5)]
    for age, name in enumerate(names):
        stored.save(name, np.ones(3))
        (path,) = (file for file in folder.iterdir() if file.stat().st_mtime > 2e8)
        os.utime(path, (1e8 + age, 1e8 + age))
    assert stored.load(names[0]) is not None  # which is a use
    looks = next(name for name in map(str, range(200)) if stored._path(name).name.startswith("0"))
    stored.save(looks, np.ones(3))
    survivors = [name for name in (*names, looks) if stored.load(name) is not None]
    assert survivors == [names[0], names[3], names[4], looks]
    assert len(list(folder.iterdir())) == 4
