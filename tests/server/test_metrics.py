"""``metrics.jsonl``: lines come back in order, a line cut short is left out, and rounds can be dropped."""

from __future__ import annotations

import pytest

from fedforget.errors import RunError
from fedforget.server.metrics import MetricsFile

LINES = [{"round": 1, "loss": 0.5}, {"round": 2, "loss": None}, {"round": 2, "full": {"hr": 1 / 3}}, {"round": 3}]


@pytest.fixture
def metrics(tmp_path) -> MetricsFile:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    for line in LINES:
        metrics.append(line)
    return metrics


def test_lines_come_back_in_order_from_any_reader(metrics):
    assert metrics.read() == LINES
    assert MetricsFile(metrics.path).read() == LINES
    assert len(metrics.path.read_text().splitlines()) == len(LINES)


def test_a_file_that_is_not_there_holds_nothing(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    assert metrics.read() == []
    metrics.drop_after(3)
    assert list(tmp_path.iterdir()) == []


def test_without_a_path_nothing_is_kept():
    metrics = MetricsFile(None)
    metrics.append({"round": 1})
    metrics.drop_after(0)
    assert metrics.read() == []


@pytest.mark.parametrize("last", [0, 1, 2, 3, 9])
def test_dropping_keeps_every_line_up_to_a_round(metrics, last):
    metrics.drop_after(last)
    assert metrics.read() == [line for line in LINES if line["round"] <= last]
    metrics.append({"round": last + 1})
    assert metrics.read()[-1] == {"round": last + 1}
    assert [path.name for path in metrics.path.parent.iterdir()] == ["metrics.jsonl"]


def test_a_last_line_cut_anywhere_is_left_out_and_gone_after_dropping(metrics):
    whole = metrics.path.read_bytes()
    start = whole.rstrip().rfind(b"\n") + 1
    for end in range(start, len(whole) - 1):
        metrics.path.write_bytes(whole[:end])
        assert metrics.read() == LINES[:-1]
        metrics.drop_after(3)
        metrics.append({"round": 4})
        assert metrics.read() == [*LINES[:-1], {"round": 4}]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"Cannot write .*metrics\.jsonl"):
        MetricsFile(tmp_path / "file" / "metrics.jsonl").append({"round": 1})
