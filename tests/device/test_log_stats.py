"""What a log takes, part by part: it adds up, and the paper's formula gives the paper's figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.log.codec import PARTS
from fedforget.device.log.stats import PLACES, LogStats, PaperLog, log_stats
from fedforget.errors import RunError
from fedforget.models import MODELS
from fedforget.protocol.encoding import ENCODINGS
from tests.samplers import make_sampler

PAPER = ff.Log("float32", "importance", 0.5)


def trained(board: ff.Interactions, log: ff.Log, model: str = "ncf", path: Path | None = None) -> ff.Federation:
    """Two rounds of a third of the board's users, so that some took part twice and some never."""
    fed = ff.Federation(
        board, MODELS.build(model, dim=8), path=path, log=log, server=ff.ServerConfig(fraction=1 / 3),
        training=ff.LocalTraining(epochs=1), compute=ff.Compute(workers=1),
    )  # fmt: skip
    return fed.fit(rounds=2)


def stats_of(fed: ff.Federation) -> LogStats:
    return log_stats(fed.devices.log, fed.train.user_keys)


def in_heads(fed: ff.Federation) -> tuple[np.ndarray, np.ndarray]:
    """Entries and bytes of each user, as the store's heads tell them."""
    place = {key: at for at, key in enumerate(fed.train.user_keys.tolist())}
    entries, sizes = np.zeros(len(place), np.int64), np.zeros(len(place), np.int64)
    for _, keys, lengths in fed.devices.log.store.heads():
        for key, length in zip(keys.tolist(), lengths.tolist(), strict=True):
            entries[place[key]] += length > 0
            sizes[place[key]] += length
    return entries, sizes


@pytest.mark.parametrize("encoding", list(ENCODINGS))
@pytest.mark.parametrize("selection", ["importance", "all"])
def test_the_parts_add_up_to_what_the_store_holds(board: ff.Interactions, encoding: str, selection: str) -> None:
    fed = trained(board, ff.Log(encoding, selection))
    stats = stats_of(fed)
    entries, sizes = in_heads(fed)
    assert entries.max() == 2
    assert entries.min() == 0
    np.testing.assert_array_equal(stats.entries, entries)
    np.testing.assert_array_equal(stats.per_device - stats.of("copy"), sizes)
    assert stats.damaged == stats.full == 0
    assert not stats.of("damaged").any()


@pytest.mark.parametrize("store", ["packed", "sqlite"])
def test_it_is_the_same_wherever_logs_are_kept(board: ff.Interactions, store: str, tmp_path: Path) -> None:
    on_disk = stats_of(trained(board, ff.Log(store=store), path=tmp_path / "run"))
    in_memory = stats_of(trained(board, ff.Log()))
    np.testing.assert_array_equal(on_disk.bytes, in_memory.bytes)


def test_each_part_has_the_size_that_its_format_says(board: ff.Interactions) -> None:
    fed = trained(board, PAPER)
    stats = stats_of(fed)
    _, logged, _ = fed.devices.log.read(1, fed.train.user_keys)
    once = np.isin(fed.train.user_keys, logged.keys) & (stats.entries == 1)
    assert once.any()
    order = np.argsort(logged.keys)
    of_user = order[np.searchsorted(logged.keys, fed.train.user_keys[once], sorter=order)]
    n_rows = np.diff(logged.row_ptr)[of_user]
    kept = np.array([logged.kept[logged.row_ptr[c] : logged.row_ptr[c + 1]].sum() for c in of_user])
    np.testing.assert_array_equal(stats.of("negatives")[once], np.diff(logged.bit_ptr)[of_user])
    np.testing.assert_array_equal(stats.of("kept")[once], (n_rows + 7) // 8)
    np.testing.assert_array_equal(stats.of("rows")[once], kept * 8 * 4)
    np.testing.assert_array_equal(stats.of("dense")[once], fed.model.dense_layout.size * 4)
    np.testing.assert_array_equal(stats.of("private")[once], 8 * 4)
    np.testing.assert_array_equal(stats.of("copy"), 8 * 4 + 8)
    assert [*PARTS, "damaged", "copy"] == PLACES


def test_damaged_entries_are_counted_apart(board: ff.Interactions, tmp_path: Path) -> None:
    fed = trained(board, ff.Log(), path=tmp_path / "run")
    before = stats_of(fed)
    file = next((tmp_path / "run").rglob("000002.log"))
    whole = bytearray(file.read_bytes())
    whole[-1] ^= 1
    file.write_bytes(whole)
    after = stats_of(fed)
    assert after.damaged == 1
    np.testing.assert_array_equal(after.per_device, before.per_device)
    hurt = np.flatnonzero(after.of("damaged"))
    assert hurt.size == 1
    assert after.of("rows")[hurt] < before.of("rows")[hurt]


def test_rounds_for_which_there_was_no_room_are_counted(board: ff.Interactions) -> None:
    stats = stats_of(trained(board, ff.Log(quota=1, when_full="stop")))
    assert stats.full == 40
    assert not stats.entries.any()
    np.testing.assert_array_equal(stats.per_device, stats.of("copy"))


def test_a_log_with_strangers_in_it_is_refused(board: ff.Interactions) -> None:
    fed = trained(board, ff.Log(), "mf")
    with pytest.raises(RunError, match="outside the federation"):
        log_stats(fed.devices.log, fed.train.user_keys[:5])


@pytest.mark.parametrize(("model", "rows"), [("ncf", 900), ("lightgcn", 450)])
def test_the_formula_gives_the_figures_of_the_paper(model: str, rows: int) -> None:
    """Steam-200k: 200 rounds of 10% of the users, α = β = 0.5, about 30 items a user."""
    built = MODELS.build(model)
    paper = PaperLog.of(built, make_sampler(beta=0.5), np.array([30]), np.array([20]))
    assert paper.rows.tolist() == [rows * built.dim * 4]
    assert paper.with_dense.tolist() == [rows * built.dim * 4 + 20 * built.dense_layout.size * 4]


def test_the_formula_is_what_the_papers_log_takes() -> None:
    """Where there are items enough: where negatives repeat, an update has fewer rows than the formula counts."""
    fed = trained(ff.synthetic(users=60, items=500, mean_items=20), PAPER)
    stats = stats_of(fed)
    paper = PaperLog.of(fed.model, fed.config.sampler, fed.train.counts, stats.entries)
    assert stats.of("rows").mean() == pytest.approx(paper.rows.mean(), rel=0.05)
    assert (stats.of("rows") + stats.of("dense")).mean() == pytest.approx(paper.with_dense.mean(), rel=0.01)
