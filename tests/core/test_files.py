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
