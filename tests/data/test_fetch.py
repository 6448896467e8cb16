"""Fetching: from a fake web and a fake pip, and once for real."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import subprocess
import zipfile
from pathlib import Path
from urllib.error import HTTPError

import pytest
from interaction_pairs import pairs_of

from fedforget.data import CATALOGUE, fetch, load, sources
from fedforget.data.catalogue import checksum
from fedforget.data.sources import Archive
from fedforget.errors import ConfigError, DataError

ROWS = b"1\t5\t3\t88\n1\t6\t4\t89\n2\t5\t1\t90\n"
HEADER = b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
PAIRS = {(1, 5), (1, 6), (2, 5)}
INTER = "recbole/dataset_example/ml-100k/ml-100k.inter"


def zipped(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in members.items():
            archive.writestr(name, rows)
    return content.getvalue()


GOOD_ZIP = zipped(**{"../../evil": b"x", "ml-100k/u.data": ROWS})


class Web:
    """A web that answers with the given contents in turn, or raises them."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def __call__(self, url, timeout):
        self.asked.append(url)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        response = io.BytesIO(answer)
        response.headers = {"Content-Length": str(len(answer))}
        return response


@pytest.fixture
def small(monkeypatch, write):
    """A stand-in for ml-100k with three interactions, known by counts and checksum."""
    expected = checksum(write("published/u.data", ROWS))
    entry = CATALOGUE["ml-100k"]
    form = dataclasses.replace(entry.forms[0], users=2, items=2, interactions=3, checksum=expected)
    archive = dataclasses.replace(entry.sources[0], md5=hashlib.md5(GOOD_ZIP).hexdigest())
    small = dataclasses.replace(entry, forms=(form,), sources=(archive, entry.sources[1]))
    monkeypatch.setitem(CATALOGUE, "ml-100k", small)
    return small


@pytest.fixture
def web(monkeypatch):
    def answering(*answers):
        fake = Web(*answers)
        monkeypatch.setattr(sources, "urlopen", fake)
        return fake

    return answering


@pytest.fixture
def pip(monkeypatch):
    """A pip that brings one wheel, or fails with a message."""

    def bringing(wheel: bytes | None, message: str = ""):
        commands = []

        def run(command, **options):
            commands.append(command)
            if wheel is not None:
                (Path(command[command.index("--dest") + 1]) / "recbole-1-py3-none-any.whl").write_bytes(wheel)
            return subprocess.CompletedProcess(command, int(bool(message)), "", message)

        monkeypatch.setattr(sources.subprocess, "run", run)
        return commands

    return bringing


def silent(line: str) -> None:
    """Hears what is said and forgets it."""


def test_the_official_archive_is_taken_once(small, web, own_folder):
    fake = web(GOOD_ZIP)
    path = fetch("ml-100k", say=silent)
    assert path == own_folder / "ml-100k" / "u.data"
    assert path.read_bytes() == ROWS
    assert fetch("ml-100k", say=silent) == path
    assert pairs_of(load("ml-100k")) == PAIRS
    assert fake.asked == ["https://files.grouplens.org/datasets/movielens/ml-100k.zip"]


def test_nothing_but_the_wanted_member_is_unpacked(small, web, tmp_path):
    folder = tmp_path / "a" / "b" / "c"
    web(GOOD_ZIP)
    fetch("ml-100k", folder, say=silent)
    assert [path for path in (tmp_path / "a").rglob("*") if path.is_file()] == [folder / "ml-100k" / "u.data"]


def test_force_fetches_anew(small, web):
    fake = web(GOOD_ZIP, GOOD_ZIP)
    path = fetch("ml-100k", say=silent)
    path.write_text("damaged")
    assert fetch("ml-100k", force=True, say=silent) == path
    assert path.read_bytes() == ROWS
    assert len(fake.asked) == 2


def test_progress_is_told_in_bytes(small, web):
    seen = []
    web(GOOD_ZIP)
    fetch("ml-100k", say=silent, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(GOOD_ZIP), len(GOOD_ZIP))


def test_a_lost_connection_is_tried_again(small, web, monkeypatch):
    pauses = []
    monkeypatch.setattr(sources, "sleep", pauses.append)
    fake = web(TimeoutError("timed out"), HTTPError("u", 503, "busy", {}, io.BytesIO()), GOOD_ZIP)
    assert fetch("ml-100k", say=silent).read_bytes() == ROWS
    assert len(fake.asked) == 3
    assert pauses == [1.0, 2.0]


def test_a_refusal_is_not_tried_again(small, web, pip):
    fake = web(HTTPError("u", 404, "gone", {}, io.BytesIO()))
    pip(None, "ERROR: No matching distribution found for recbole")
    with pytest.raises(DataError, match=r"status 404.*pip could not download recbole .ERROR: No matching"):
        fetch("ml-100k", say=silent)
    assert len(fake.asked) == 1


def test_out_of_reach_the_wheel_gives_the_same_rows(small, pip, own_folder):
    said = []
    commands = pip(zipped(**{INTER: HEADER + ROWS}))
    path = fetch("ml-100k", say=said.append)
    assert path.read_bytes() == ROWS
    assert commands[0][1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary", "recbole"} <= set(commands[0])
    assert [line.split()[0] for line in said] == ["Downloading", "Downloading", "ml-100k"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GOOD_ZIP[:-30], "wrong checksum"),
        (b"<html>Log in to the network</html>", "wrong checksum"),
    ],
)
def test_a_wrong_archive_is_not_used(small, web, pip, own_folder, content, reason):
    web(content)
    pip(None, "ERROR: no network")
    with pytest.raises(DataError, match=reason) as error:
        fetch("ml-100k", say=silent)
    assert str(own_folder / "ml-100k" / "u.data") in error.value.hint
    assert not [path for path in own_folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("wheel", "reason"),
    [
        (zipped(**{INTER: HEADER + ROWS.replace(b"2\t5", b"2\t6")}), "some rows differ"),
        (zipped(**{INTER: HEADER + ROWS[:-10]}), "it has 1 users where the published set has 2"),
        (zipped(**{INTER: HEADER + ROWS[:-2]}), "some rows differ"),
        (zipped(**{INTER: HEADER + ROWS[:-4]}), "fields, the first line"),
        (zipped(**{INTER: HEADER}), "is empty"),
        (zipped(other=ROWS), f"does not contain {INTER}"),
        (zipped(**{INTER: HEADER + ROWS})[:-40], "is not a complete zip file"),
        (None, "pip downloaded no wheel"),
    ],
)
def test_altered_content_is_not_stored(small, pip, own_folder, wheel, reason):
    pip(wheel)
    with pytest.raises(DataError, match=reason):
        fetch("ml-100k", say=silent)
    assert not [path for path in own_folder.rglob("*") if path.is_file()]


def test_an_archive_of_the_right_checksum_may_still_lack_the_rows(web):
    content = zipped(**{"ml-100k/README": b"x"})
    web(content)
    archive = Archive("https://example.org/a.zip", hashlib.md5(content).hexdigest(), "ml-100k/u.data")
    with pytest.raises(sources.SourceError, match=r"does not contain ml-100k/u\.data"):
        archive.rows(silent, lambda done, total: None)


def test_what_is_too_large_is_not_taken(web, monkeypatch):
    monkeypatch.setattr(sources, "MOST_BYTES", 50)
    bomb = zipped(member=b"0" * 10_000)
    with pytest.raises(sources.SourceError, match="is larger than 50 bytes"):
        sources.unzipped(bomb, "member", "bomb.zip")
    web(bomb)
    with pytest.raises(sources.SourceError, match="gave more than 50 bytes"):
        sources.download("https://example.org/bomb.zip", lambda done, total: None)


def test_a_connection_cut_short_is_out_of_reach(web, monkeypatch):
    def cut(url, timeout):
        response = io.BytesIO(b"half")
        response.headers = {"Content-Length": "8"}
        return response

    monkeypatch.setattr(sources, "urlopen", cut)
    with pytest.raises(sources.SourceError, match="ended after 4 of 8 bytes"):
        sources.download("https://example.org/a.zip", lambda done, total: None)


def test_a_machine_without_pip_says_so(small, monkeypatch):
    def run(command, **options):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(sources.subprocess, "run", run)
    with pytest.raises(DataError, match="pip could not be run"):
        fetch("ml-100k", say=silent)


def test_a_damaged_copy_is_named_with_the_way_to_mend_it(small, web, own_folder):
    web(GOOD_ZIP)
    path = fetch("ml-100k", say=silent)
    for content, problem in (
        (ROWS[:-9], "is not ml-100k: it has 1 users where the published set has 2"),
        (ROWS[:-2], "is not ml-100k: its counts are right, but some rows differ"),
        (ROWS[:-4], "is damaged. Line 3 .* has 3 fields"),
        (b"", "is damaged. .* is empty"),
    ):
        path.write_bytes(content)
        for use in (load, fetch):
            with pytest.raises(DataError, match=problem) as error:
                use("ml-100k")
            assert str(path) in error.value.problem
            assert "fedforget data fetch ml-100k --force\n" in error.value.hint


def test_the_way_to_mend_a_copy_elsewhere_names_the_folder(small, web, tmp_path):
    web(GOOD_ZIP)
    fetch("ml-100k", tmp_path, say=silent).write_bytes(ROWS[:-9])
    with pytest.raises(DataError) as error:
        load("ml-100k", folder=tmp_path)
    assert f"fedforget data fetch ml-100k --force --folder {tmp_path}\n" in error.value.hint


def test_a_folder_that_cannot_be_written(small, web, tmp_path):
    (tmp_path / "ml-100k").write_text("a file where a folder should be")
    web(GOOD_ZIP)
    with pytest.raises(DataError, match=r"u\.data cannot be written"):
        fetch("ml-100k", tmp_path, say=silent)


def test_what_cannot_be_fetched_says_where_to_get_it(own_folder):
    with pytest.raises(DataError, match="steam-200k cannot be downloaded without a login") as error:
        fetch("steam-200k")
    assert "kaggle.com" in error.value.hint
    assert str(own_folder / "steam-200k" / "steam-200k.csv") in error.value.hint
    with pytest.raises(DataError, match="synthetic is generated, not downloaded"):
        fetch("synthetic")
    with pytest.raises(ConfigError, match="Did you mean 'ml-1m'"):
        fetch("ml-1n")


def test_ml_1m_out_of_reach_says_where_to_put_it(own_folder):
    with pytest.raises(DataError, match=r"ml-1m\.zip cannot be reached") as error:
        fetch("ml-1m", say=silent)
    assert str(own_folder / "ml-1m" / "ratings.dat") in error.value.hint


@pytest.mark.slow
def test_the_real_wheel_holds_the_real_rows(own_folder):
    try:
        path = fetch("ml-100k", say=silent)
    except DataError as error:
        if "pip could not" not in error.problem:
            raise
        pytest.skip(f"pip reaches no registry here: {error.problem}")
    assert path.stat().st_size == 1_979_173
    assert len(load("ml-100k")) == 100_000
