"""Files that are whole or not there, and the lock of a run folder, with real processes and a really full disk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedforget
from fedforget.errors import RunError
from fedforget.runtime.files import make_folder, only_writer, write_file

#: What a process is told to do: write more to a file than the system lets it.
WRITE_TOO_MUCH = """
import resource, signal, sys
from pathlib import Path
from fedforget.errors import RunError
from fedforget.runtime.files import write_file

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_file(Path(sys.argv[1]), b"n" * 5000)
except RunError as error:
    print(error)
"""

HOLD_THE_LOCK = """
import sys, time
from pathlib import Path
from fedforget.runtime.files import only_writer

with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def command(script: str, path: Path) -> dict:
    env = {**os.environ, "PYTHONPATH": str(Path(fedforget.__file__).parents[1])}
    return {"args": [sys.executable, "-c", script, str(path)], "env": env, "stdout": subprocess.PIPE, "text": True}


@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_the_new_content_replaces_the_old_and_leaves_nothing_beside_it(tmp_path_factory, old, new):
    folder = tmp_path_factory.mktemp("files")
    for content in (old, new):
        write_file(folder / "file.bin", content)
        assert (folder / "file.bin").read_bytes() == content
    assert [path.name for path in folder.iterdir()] == ["file.bin"]


def test_a_reader_with_the_old_file_open_keeps_the_whole_of_it(tmp_path):
    path = tmp_path / "file.bin"
    write_file(path, b"old" * 1000)
    with path.open("rb") as reader:
        first = reader.read(1500)
        write_file(path, b"new")
        assert first + reader.read() == b"old" * 1000
    assert path.read_bytes() == b"new"


def test_what_an_earlier_crash_left_beside_the_file_does_not_matter(tmp_path):
    (tmp_path / ".file.bin.part").write_bytes(b"half of someth")
    write_file(tmp_path / "file.bin", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    assert (tmp_path / "file.bin").read_bytes() == b"new"


def test_a_folder_in_the_place_of_the_file_stays_and_nothing_is_left_beside_it(tmp_path):
    (tmp_path / "file.bin").mkdir()
    with pytest.raises(RunError, match=r"Cannot write .*file\.bin: Is a directory"):
        write_file(tmp_path / "file.bin", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_a_path_below_a_file_cannot_be_written_and_says_so(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(RunError, match=r"Cannot write .*below: Not a directory(.|\n)*another folder"):
        write_file(tmp_path / "file" / "below", b"new")
    with pytest.raises(RunError, match=r"Cannot write .*below"):
        make_folder(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_folder_is_made_with_its_parents_and_left_if_it_is_there(tmp_path):
    folder = make_folder(tmp_path / "a" / "b")
    (folder / "kept").write_text("kept")
    assert make_folder(folder) == tmp_path / "a" / "b"
    assert (folder / "kept").read_text() == "kept"


def test_a_write_that_runs_out_of_room_leaves_the_old_content_and_no_part_of_the_new(tmp_path):
    pytest.importorskip("resource")
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    said = subprocess.run(**command(WRITE_TOO_MUCH, path), check=True).stdout
    assert said.startswith(f"Cannot write {path}: File too large")
    assert "Files saved before are intact" in said
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_a_second_process_cannot_write_until_the_first_is_gone_even_if_it_was_killed(tmp_path):
    pytest.importorskip("fcntl")
    with subprocess.Popen(**command(HOLD_THE_LOCK, tmp_path)) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(RunError, match=re.escape(f"writing to {tmp_path}")), only_writer(tmp_path):
                pytest.fail("two writers at once")
        finally:
            holder.send_signal(signal.SIGKILL)
    assert holder.returncode == -signal.SIGKILL
    with only_writer(tmp_path):
        pass


def test_a_writer_lets_go_when_it_is_done_or_fails(tmp_path):
    pytest.importorskip("fcntl")
    with pytest.raises(ZeroDivisionError), only_writer(tmp_path):
        raise ZeroDivisionError
    with only_writer(tmp_path):
        with pytest.raises(RunError, match="Another process"), only_writer(tmp_path):
            pytest.fail("two writers at once")
        other = make_folder(tmp_path / "other")
        with only_writer(other):
            pass
    with only_writer(tmp_path):
        pass
