"""The history: what is committed comes back, in memory or from a folder opened again, and damage is found and named."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedforget.errors import RunError
from fedforget.models import GlobalParameters, Layout
from fedforget.server.history import History, RoundRecord
from fedforget.server.state import ServerState

LAYOUT = Layout({"mlp.weight": (2, 2), "mlp.bias": (1,)})


def state_after(round_: int) -> ServerState:
    """What a server with an optimiser has after a round."""
    public = public_after(round_)
    return ServerState(public, {"steps": np.array([round_], np.float32), "first.items": public.items * 2})


def public_after(round_: int) -> GlobalParameters:
    rng = np.random.default_rng(round_)
    return GlobalParameters(rng.normal(size=(3, 2)).astype(np.float32), rng.normal(size=5).astype(np.float32), LAYOUT)


def record_of(round_: int) -> RoundRecord:
    failures = {9: "timed out", "Zoë": "away"}
    return RoundRecord(round_, [1, 2, "1"], 1 / (round_ + 1), 0.5 * round_, failures, 0.25 * round_, 100 * round_)


def commit(history: History, *rounds: int) -> None:
    for round_ in rounds:
        history.commit([record_of(round_)], state_after(round_))


def snapshot_file(folder: Path, round_: int) -> Path:
    return folder / "snapshots" / f"{round_:06d}.safetensors"


@pytest.fixture(params=["memory", "folder"])
def folder(request, tmp_path) -> Path | None:
    return None if request.param == "memory" else tmp_path / "run"


@pytest.fixture
def history(folder) -> Iterator[History]:
    history = History(folder, LAYOUT)
    yield history
    history.close()


@pytest.fixture
def run(tmp_path) -> Path:
    """A folder with the rounds 0 to 3, closed."""
    history = History(tmp_path / "run", LAYOUT)
    commit(history, 0, 1, 2, 3)
    history.close()
    return tmp_path / "run"


def test_a_new_history_is_before_its_first_parameters(history):
    assert history.last_round == -1
    assert history.usable_rounds() == []
    with pytest.raises(RunError, match="Round 0 is not in the history"):
        history.snapshot(0)


def test_what_is_committed_comes_back(history):
    commit(history, 0, 1, 2)
    assert history.last_round == 2
    assert history.usable_rounds() == [2, 1, 0]
    for round_ in (0, 1, 2):
        found, expected = history.record(round_), record_of(round_)
        assert set(found.participants) == set(expected.participants)
        assert len(found.participants) == 3
        assert found.failures == expected.failures
        assert (found.round, found.loss, found.seconds) == (round_, expected.loss, expected.seconds)
        assert (found.training, found.sent) == (0.25 * round_, 100 * round_)
        assert history.snapshot(round_).digest == public_after(round_).digest
        assert history.snapshot(round_).layout == LAYOUT


def test_a_round_in_which_nobody_took_part_has_no_loss(history):
    history.commit([RoundRecord(0, [], None, 0.0)], state_after(0))
    assert history.record(0) == RoundRecord(0, [], None, 0.0, {})


@pytest.mark.parametrize("round_", [-1, 3, 100])
def test_a_round_that_is_not_there_is_named_with_the_last_one(history, round_):
    commit(history, 0, 1, 2)
    for ask in (history.record, history.snapshot):
        with pytest.raises(RunError, match=rf"Round {round_} is not in the history(.|\n)*last one is 2"):
            ask(round_)


def test_a_folder_opened_again_holds_the_same(run):
    history = History(run, LAYOUT)
    assert history.last_round == 3
    assert history.usable_rounds() == [3, 2, 1, 0]
    assert [history.snapshot(round_).digest for round_ in range(4)] == [public_after(r).digest for r in range(4)]
    assert history.record(3).failures == record_of(3).failures
    commit(history, 4)
    assert history.last_round == 4
    history.close()


def test_thinning_keeps_the_latest_the_first_and_the_multiples(folder):
    history = History(folder, LAYOUT, snapshot_every=3)
    kept = []
    for round_ in range(9):
        commit(history, round_)
        kept.append(history.usable_rounds())
    assert kept == [[0], [1, 0], [2, 0], [3, 0], [4, 3, 0], [5, 3, 0], [6, 3, 0], [7, 6, 3, 0], [8, 6, 3, 0]]
    for round_ in kept[-1]:
        assert history.snapshot(round_).digest == public_after(round_).digest
    assert [history.record(round_).round for round_ in range(9)] == list(range(9))
    with pytest.raises(RunError, match=r"no snapshot of round 7(.|\n)*snapshot_every"):
        history.snapshot(7)
    history.close()
    assert folder is None or len(list((folder / "snapshots").iterdir())) == 4


def test_forgetting_drops_the_rounds_after_one_and_they_can_be_made_anew(history, folder):
    commit(history, 0, 1, 2, 3)
    history.drop_after(1)
    assert history.last_round == 1
    assert history.usable_rounds() == [1, 0]
    for ask in (history.record, history.snapshot):
        with pytest.raises(RunError, match="Round 2 is not in the history"):
            ask(2)
    if folder is not None:
        assert sorted(path.name for path in (folder / "snapshots").iterdir()) == [
            "000000.safetensors",
            "000001.safetensors",
        ]
    history.commit([RoundRecord(2, ["new"], 0.1, 1.0)], state_after(77))
    assert history.snapshot(2).digest == public_after(77).digest
    assert history.record(2) == RoundRecord(2, ["new"], 0.1, 1.0, {})
    assert history.snapshot(1).digest == public_after(1).digest


def test_forgetting_after_the_last_round_forgets_nothing(history):
    commit(history, 0, 1)
    history.drop_after(1)
    assert history.usable_rounds() == [1, 0]
    assert history.record(1).failures == record_of(1).failures


def test_a_snapshot_with_any_bit_turned_over_is_refused_by_name(run):
    history = History(run, LAYOUT)
    path = snapshot_file(run, 2)
    sound = path.read_bytes()
    for place in range(len(sound)):
        damaged = bytearray(sound)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"000002\.safetensors is damaged"):
            history.snapshot(2)
    path.write_bytes(sound)
    assert history.snapshot(2).digest == public_after(2).digest
    history.close()


def test_a_snapshot_that_was_cut_short_is_refused_by_name(run):
    history = History(run, LAYOUT)
    path = snapshot_file(run, 2)
    sound = path.read_bytes()
    for length in (0, 1, 7, 8, 9, len(sound) // 2, len(sound) - 1):
        path.write_bytes(sound[:length])
        with pytest.raises(RunError, match=r"000002\.safetensors is damaged(.|\n)*Remove that file"):
            history.snapshot(2)
    history.close()


def test_the_snapshot_of_another_round_or_model_is_not_taken_for_the_right_one(run):
    history = History(run, LAYOUT)
    shutil.copy(snapshot_file(run, 1), snapshot_file(run, 2))
    with pytest.raises(RunError, match=r"000002\.safetensors is damaged.*checksum"):
        history.snapshot(2)
    history.close()
    other = History(run, Layout({"something.else": (5,)}))
    with pytest.raises(RunError, match=r"000003\.safetensors is damaged.*something\.else"):
        other.snapshot(3)
    other.close()


def test_a_missing_snapshot_is_skipped_where_a_run_can_be_taken_up(run):
    snapshot_file(run, 3).unlink()
    snapshot_file(run, 1).unlink()
    history = History(run, LAYOUT)
    assert history.usable_rounds() == [2, 0]
    assert history.last_round == 3
    with pytest.raises(RunError, match="no snapshot of round 3"):
        history.snapshot(3)
    history.close()


def test_a_snapshot_without_a_row_is_no_round(run):
    snapshot_file(run, 4).write_bytes(state_after(4).to_bytes())
    history = History(run, LAYOUT)
    assert history.last_round == 3
    assert history.usable_rounds() == [3, 2, 1, 0]
    history.close()


def test_a_folder_of_another_format_is_refused_with_both_numbers(run):
    db = sqlite3.connect(run / "history.sqlite")
    db.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
    db.commit()
    db.close()
    with pytest.raises(RunError, match=r"history\.sqlite has format 99; .* reads format 3"):
        History(run, LAYOUT)


def test_a_history_that_is_no_database_is_refused_by_name(run):
    (run / "history.sqlite").write_bytes(b"no database at all" * 300)
    with pytest.raises(RunError, match=r"Cannot open .*history\.sqlite"):
        History(run, LAYOUT)


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"Cannot write .*snapshots"):
        History(tmp_path / "file", LAYOUT)


def test_a_round_that_cannot_be_written_is_no_part_of_the_history(run):
    history = History(run, LAYOUT)
    shutil.rmtree(run / "snapshots")
    with pytest.raises(RunError, match=r"Cannot write .*000004\.safetensors"):
        commit(history, 4)
    assert history.last_round == 3
    history.close()


def test_a_folder_that_another_process_has_replaced_is_said_so(run: Path) -> None:
    history = History(run, LAYOUT)
    shutil.rmtree(run / "snapshots")
    with pytest.raises(RunError, match="Another process"):
        history.usable_rounds()
    history.close()
