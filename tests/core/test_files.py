import stat
import threading

import pytest

from ostraka.core import files


def test_of_two_writers_at_once_neither_puts_the_others_half_in_place(tmp_path):
    path = tmp_path / "record"
    half, finished = threading.Event(), threading.Event()

    def slowly(draft):
        draft.write_bytes(b"half")
        half.set()
        assert finished.wait(10)
        draft.write_bytes(b"half and half")

    slow = threading.Thread(target=files.write, args=(path, slowly))

    def meanwhile(draft):
        draft.write_bytes(b"other")
        slow.start()
        assert half.wait(10)

    files.write(path, meanwhile)
    assert path.read_bytes() == b"other"
    finished.set()
    slow.join()
    assert path.read_bytes() == b"half and half"
    assert [file.name for file in tmp_path.iterdir()] == ["record"]


def test_of_two_folders_at_once_the_first_is_whole_and_the_second_is_refused(tmp_path):
    place = tmp_path / "voters"

    def written(name, between):
        with files.new_folder(place) as draft:
            (draft / "a").write_text(name)
            between()
            (draft / "a").write_text(name)

    with pytest.raises(FileExistsError):
        written("slow", lambda: written("quick", lambda: None))
    assert [path.name for path in tmp_path.iterdir()] == ["voters"]
    assert {path.name: path.read_text() for path in place.iterdir()} == {"a": "quick"}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place, place / "a")] == [0o700, 0o600]
    with pytest.raises(FileExistsError), files.new_folder(place):
        pytest.fail("the block ran")


def test_a_folder_whose_writer_fails_is_not_there(tmp_path):
    def full():
        with files.new_folder(tmp_path / "voters") as draft:
            (draft / "a").write_text("half")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        full()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [files.write, files.create])
def test_a_writer_that_fails_leaves_what_was_there_and_no_draft(tmp_path, write):
    def full(draft):
        draft.write_bytes(b"half")
        raise OSError("no space left")

    (tmp_path / "old").write_bytes(b"old")
    with pytest.raises(OSError, match="no space"):
        write(tmp_path / ("old" if write is files.write else "new"), full)
    assert [file.name for file in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_bytes() == b"old"
