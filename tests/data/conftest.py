"""What the tests of the data room share. None of them reads the user's cache or the network by accident."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedforget.data import sources

REPOSITORY = Path(__file__).resolve().parents[2]
REAL_DATA = Path(os.environ.get("FEDFORGET_DATA") or REPOSITORY.parent / "shared" / "data")


@pytest.fixture(autouse=True)
def own_folder(request, tmp_path_factory, monkeypatch):
    """Every test has a data folder of its own, and the web is out of reach unless it says otherwise."""
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("FEDFORGET_DATA", str(folder))

    def unreachable(url, timeout):
        raise OSError(f"a test asked for {url}")

    monkeypatch.setattr(sources, "urlopen", unreachable)
    monkeypatch.setattr(sources, "sleep", lambda seconds: None)
    return folder


@pytest.fixture
def real_data():
    """The folder of the real data sets; it is only ever read."""

    def having(file: str) -> Path:
        if not (REAL_DATA / file).is_file():
            pytest.skip(f"{file} is not in the folder of real data; set FEDFORGET_DATA to one that has it")
        return REAL_DATA

    return having


@pytest.fixture
def write(tmp_path):
    """Write a small file and return its path."""

    def written(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written
