"""The benchmarks of speed and memory measure what they say."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import fedforget as ff
from fedforget.cli.main import run
from fedforget.experiments import benchmark_engine, machine


def test_result_has_the_promised_shape(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = ff.synthetic(users=30, items=40, mean_items=8)
    monkeypatch.setattr("fedforget.cli.bench.load", lambda *_, **__: small)
    monkeypatch.setattr(benchmark_engine, "GROWTH_USERS", (200, 400))
    monkeypatch.setattr(machine, "SIDE", 64)
    monkeypatch.setattr(sys, "argv", ["fedforget", "bench", "engine", "--quick", "--json", "--models", "mf,ncf"])
    run()
    result = json.loads(capsys.readouterr().out)
    assert set(result["models"]) == {"mf", "ncf"}
    for row in result["models"].values():
        assert set(row) == {
            "round_seconds",
            "plain_loop_round_seconds",
            "speedup",
            "gflops",
            "peak_gflops",
            "utilization",
        }
        assert row["utilization"] == pytest.approx(row["gflops"] / row["peak_gflops"])
        assert all(value > 0 for value in row.values())
    assert result["growth"]["users"] == [200, 400]
    assert len(result["growth"]["round_seconds"]) == 2
    assert result["growth"]["ratio"] > 0
    assert "bytes_per_user" in result["growth"]
    assert result["machine"]["cores"] >= 1


def test_useful_arithmetic_is_counted_by_hand() -> None:
    """One user with 10 items and 20 negatives, batch 8: 4 steps an epoch, the user's half once a step."""
    data = ff.Interactions.from_pairs([0] * 10 + [1] * 10, list(range(10)) + list(range(20, 30))).with_items(range(60))
    model = ff.NCF(dim=4, hidden=(6, 5, 3))
    fed = ff.Federation(
        data, model, training=ff.LocalTraining(epochs=2, batch=8), server=ff.ServerConfig(fraction=0.5)
    ).fit(rounds=1)
    assert len(fed.cohort(1)) == 1
    per_sample = 4 * 6 + 6 * 5 + 5 * 3 + 3
    assert benchmark_engine.useful_flops(model, data, fed) == 6 * (2 * 30 * per_sample + 2 * 4 * 4 * 6)


def test_growth_measures_time_and_memory() -> None:
    point = benchmark_engine.measure_growth(users=150, rounds=2)
    assert point["round_seconds"] > 0
    assert point["resident_bytes"] > 10_000_000


def test_peak_is_a_rate() -> None:
    assert 0.01 < machine.peak_gflops(cores=1, repeats=2) < 100_000
    assert np.isfinite(machine.resident_bytes())


def test_memory_is_measured_in_training_and_in_forgetting() -> None:
    result = benchmark_engine.bench_memory(users=1000, rounds=2)  # in a new process: other tests leave memory to reuse
    assert [point["after"] for point in result["points"]] == ["start", "load", "2 rounds", "4 rounds", "forgetting 10"]
    assert all(point["peak_bytes"] > 10_000_000 for point in result["points"])
    assert result["rounds_replayed"] == 4
    assert result["bytes_per_user"] > 0


def test_memory_is_measured_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedforget", "bench", "memory", "--num-users", "1000", "--rounds", "1", "--json"])
    run()
    assert json.loads(capsys.readouterr().out)["users"] == 1000
    monkeypatch.setattr(sys, "argv", ["fedforget", "bench", "memory", "--num-users", "10"])
    with pytest.raises(SystemExit):
        run()
    assert "at least 1000 users" in capsys.readouterr().err
