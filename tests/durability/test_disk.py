"""The recorder and the model of a disk: what the rigs stand on."""

import os
import random
import subprocess
import sys

import pytest

from rigs import disk

SCRIPT = """
import os, sys
os.chdir(sys.argv[1])
with open("elsewhere/ignored", "w") as file:
    file.write("no")
handle = os.open("a", os.O_RDWR | os.O_CREAT)
os.write(handle, b"first")
os.pwrite(handle, b"X", 2)
os.fdatasync(handle)
os.ftruncate(handle, 3)
os.writev(handle, [b"+", b"-"])
os.rename("a", "b")
os.link("b", "c")
os.unlink(os.path.abspath("b"))
folder = os.open(".", os.O_DIRECTORY)
os.fsync(folder)
marks = os.open("acknowledged", os.O_WRONLY | os.O_CREAT)
os.write(marks, b"done")
"""


@pytest.fixture
def events(recorder, tmp_path):
    folder, log = tmp_path / "watched", tmp_path / "log"
    (folder / "elsewhere").mkdir(parents=True)
    environment = os.environ | disk.preload(folder, log=log)
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], env=environment, check=True)
    return list(disk.recorded(log))


def test_every_change_is_recorded_in_order(events):
    calls = [(event.what, event.at, event.data) for event in events]
    assert calls == [
        ("N", 0, b"a"),
        ("W", 0, b"first"),
        ("W", 2, b"X"),
        ("S", 0, b""),
        ("T", 3, b""),
        ("W", 5, b"+"),
        ("W", 6, b"-"),
        ("R", 0, b"a/b"),
        ("L", 0, b"b/c"),
        ("U", 0, b"b/"),
        ("D", 0, b""),
        ("N", 0, b"acknowledged"),
        ("A", 0, b"done"),
    ]


def test_the_model_ends_where_the_disk_did(events):
    state = disk.Disk()
    for event in events:
        state.take(event)
    assert state.seen() == {"c": b"fiX\0\0+-"}


def test_what_was_synced_is_in_every_image_and_the_rest_in_some(events):
    state, rng = disk.Disk(), random.Random(0)
    for event in events[:4]:
        state.take(event)
    assert {bytes(image.get("a", b"fiXst")) for image in images(state, rng)} == {b"fiXst"}
    assert {"a" in image for image in images(state, rng)} == {True, False}
    for event in events[4:11]:
        state.take(event)
    contents = {image["c"] for image in images(state, rng)}
    assert {b"fiXst", b"fiX", b"fiX\0\0+", b"fiXst+-", b"fiXst\0-"} <= contents
    assert all(content[:3] == b"fiX" for content in contents)


def images(state, rng):
    return [state.image(rng) for _ in range(300)]


def test_writes_tear_at_sectors():
    state, rng = disk.Disk(), random.Random(0)
    for event in (
        disk.Event("N", 1, 0, b"f"),
        disk.Event("D", 0, 0, b""),
        disk.Event("W", 1, 100, b"x" * 1500),
    ):
        state.take(event)
    contents = [image["f"].ljust(1600, b"\0") for image in images(state, rng)]
    images_seen = {
        tuple(set(content[a:b]) == {120} for a, b in ((100, 512), (512, 1024), (1024, 1536)))
        for content in contents
    }
    assert len(images_seen) == 8


def test_what_a_failed_sync_had_is_never_on_the_disk_but_still_seen():
    state, rng = disk.Disk(), random.Random(0)
    write, failed, synced = (
        disk.Event("W", 1, 0, b"lost"),
        disk.Event("S", 1, 1, b""),
        disk.Event("S", 1, 0, b""),
    )
    for event in (disk.Event("N", 1, 0, b"f"), disk.Event("D", 0, 0, b""), write, failed):
        state.take(event)
    assert {image["f"] for image in images(state, rng)} == {b""}
    assert state.seen() == {"f": b"lost"}
    for event in (disk.Event("W", 1, 4, b"kept"), synced):
        state.take(event)
    assert {image["f"] for image in images(state, rng)} == {b"\0\0\0\0kept"}
    assert state.seen() == {"f": b"lostkept"}
