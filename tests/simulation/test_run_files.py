"""Files of a run: only their owner can read them, reading needs no writing, and files for people are never required."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedforget as ff
from fedforget.errors import RunWarning
from fedforget.server.run import Run
from fedforget.server.service import create_federation
from tests.forks import processes
from tests.small_federations import named

DATA, TEST = named(ff.synthetic(users=12, items=30, mean_items=8, seed=2)).split(0.2, 0)
USERS = DATA.user_ids.tolist()


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def trained(path: Path, store: str = "packed", rounds: int = 2) -> ff.Federation:
    log = ff.Log(store=store)
    return ff.Federation(DATA, ff.MF(dim=4), path=path, log=log, server=ff.ServerConfig(fraction=1.0)).fit(rounds)


def readable_by_others(folder: Path) -> list[str]:
    paths = [folder, *folder.rglob("*")]
    return [path.name for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077]


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_only_the_owner_can_read_a_run(tmp_path, store):
    fed = trained(tmp_path / "run", store)
    fed.forget([USERS[0]])
    fed.add(ff.Interactions.from_pairs([USERS[1], "new"], [1000, 1000]))
    fed.fit(more=1)
    assert readable_by_others(tmp_path / "run") == []
    fed.close()


@pytest.mark.usefixtures("open_umask")
def test_only_the_invitation_of_a_network_can_be_read_by_others(tmp_path):
    config = ff.configure(ff.MF(dim=4))
    from dataclasses import replace

    invitation = create_federation(tmp_path / "run", replace(config, engine="flower"), DATA.item_ids.tolist())
    device = ff.Device(tmp_path / "state")
    device.join(invitation, USERS[0], DATA.item_ids_of(USERS[0]))
    assert readable_by_others(tmp_path / "run") == ["invitation.json"]
    assert readable_by_others(tmp_path / "state") == []


def read_as_nobody(run: Path) -> None:
    first = ff.Federation.open(run)  # loads compiled code, which belongs to root too
    first.evaluate(TEST)
    first.recommend(USERS[1])
    first.close()
    os.setgroups([])
    os.setegid(65534)
    os.seteuid(65534)
    assert not os.access(run, os.W_OK, effective_ids=True)
    fed = ff.Federation.open(run)
    assert fed.rounds == 2
    fed.evaluate(TEST)
    fed.recommend(USERS[1])
    assert len(fed.receipts()) == 1
    fed.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to read as")
@pytest.mark.parametrize("crashed", [False, True])
def test_reading_works_in_a_folder_that_cannot_be_written(tmp_path, crashed):
    run = tmp_path / "run"
    fed = trained(run)
    fed.forget([USERS[0]])
    if crashed:  # with a write-ahead log that was not merged
        shutil.copytree(run, tmp_path / "copy")
        run = tmp_path / "copy"
    fed.close()
    for path in [run, *run.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and stat.S_IMODE(folder.stat().st_mode) & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o005)
    process = processes.Process(target=read_as_nobody, args=(run,))
    process.start()
    process.join(120)
    assert process.exitcode == 0


@pytest.mark.parametrize("damage", [b"\xff\xfe{", b"", b"{}"])
def test_damaged_files_for_people_stop_nothing(tmp_path, damage):
    fed = trained(tmp_path / "run")
    fed.forget([USERS[0]])
    (receipt,) = (tmp_path / "run" / "receipts").glob("*.json")
    whole = receipt.read_bytes()
    receipt.write_bytes(damage)
    (metrics,) = (tmp_path / "run").rglob("metrics.jsonl")
    metrics.write_bytes(metrics.read_bytes() + b'{"round": \xff}\n')
    fed.close()
    fed = ff.Federation.open(tmp_path / "run")
    fed.forget([USERS[1]])
    fed.fit(more=1)
    assert receipt.read_bytes() == whole
    assert not (tmp_path / "run" / "request.json").exists()
    assert len(list((tmp_path / "run").glob("trajectory-*"))) == 1
    assert len(list((tmp_path / "run" / "receipts").glob("*.json"))) == 2
    fed.close()


def test_a_step_that_fails_after_the_commit_keeps_neither_the_receipt_nor_the_purge(tmp_path, monkeypatch):
    fed = trained(tmp_path / "run")

    def fail(self: Run) -> None:
        raise OSError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "write_receipts", fail)
        with pytest.warns(RunWarning, match="new model is in service"):
            receipt = fed.forget([USERS[0]])
    assert receipt.names(USERS[0])
    assert not (tmp_path / "run" / "trajectory-1").exists()
    assert not (tmp_path / "run" / "request.json").exists()
    fed.close()
    fed = ff.Federation.open(tmp_path / "run").fit(more=1)
    assert (tmp_path / "run" / "receipts" / f"{receipt.request}.json").exists()
    fed.close()


def test_a_damaged_request_of_a_committed_erasure_is_removed(tmp_path, monkeypatch):
    fed = trained(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_finish_erasure", lambda self: None)
        fed.forget([USERS[0]])
    fed.close()
    assert (tmp_path / "run" / "trajectory-1").exists()
    (tmp_path / "run" / "request.json").write_bytes(b"\xff")
    fed = ff.Federation.open(tmp_path / "run")
    assert not (tmp_path / "run" / "trajectory-1").exists()
    assert not (tmp_path / "run" / "request.json").exists()
    assert USERS[0] not in fed.members
    fed.close()


def test_a_folder_that_others_write_to_is_removed_when_they_are_done(tmp_path, monkeypatch):
    fed = trained(tmp_path / "run")
    original, calls = shutil.rmtree, []

    def raced(path: Path, *args: object, **options: object) -> None:
        original(path, *args, **options)  # type: ignore[arg-type]
        calls.append(path)
        if len(calls) < 3:  # another process opens it and leaves a file
            Path(path).mkdir(exist_ok=True)
            sqlite3.connect(Path(path) / "history.sqlite").execute("CREATE TABLE t (x)").connection.close()

    monkeypatch.setattr(shutil, "rmtree", raced)
    fed.forget([USERS[0]])
    assert not (tmp_path / "run" / "trajectory-1").exists()
    fed.close()


def test_a_federation_that_is_open_notices_what_another_process_forgets(tmp_path):
    first = trained(tmp_path / "run")
    first.recommend(USERS[0])
    second = ff.Federation.open(tmp_path / "run")
    second.forget([USERS[0]])
    for ask in (lambda: first.recommend(USERS[0]), lambda: first.recommend_all(3)):
        with pytest.raises(ff.RunError, match="were forgotten after this federation was opened"):
            ask()
    assert second.recommend(USERS[1])
    first.close()
    second.close()
