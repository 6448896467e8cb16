"""Central methods are ranked as the federation is, and ``fedforget bench accuracy`` says what it promises."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from fedforget.evaluation import Ranking, evaluate
from fedforget.experiments import benchmark_accuracy, central
from fedforget.experiments.benchmark_accuracy import AccuracySettings, bench_accuracy, curve_rounds
from fedforget.runtime.workers import Workers
from tests.cli.conftest import Shell, write_table

FULL, SAMPLED = {"hr", "ndcg", "recall"}, {"hr", "ndcg"}
COLUMNS = ["--user-column", "who", "--item-column", "what"]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("Something was trained.")

    monkeypatch.setattr(benchmark_accuracy, "Federation", refuse)
    monkeypatch.setattr(benchmark_accuracy, "central_accuracy", refuse)


def needs_implicit() -> None:
    pytest.importorskip("implicit", reason="the extra fedforget[compare] is not installed")


def ranked(name: str, data: ff.Interactions) -> dict[str, float]:
    train, test = data.split(test=0.2, seed=0)
    return evaluate(central.CENTRAL[name](train, 0), train, test, Ranking(k=5), Workers(1)).full


def best(scores: np.ndarray, own: np.ndarray, k: int) -> list[int]:
    masked = scores.astype(np.float64)
    masked[own] = -np.inf
    return np.argsort(-masked, kind="stable")[:k].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["als", "als-tuned", "item-knn"])
def test_who_tells_two_tastes_apart_finds_what_is_left(name: str, board: ff.Interactions) -> None:
    """A user's 14 of 20 items of one colour: 11 to train on, 3 to find among the 9 of that colour, 20 of the other."""
    needs_implicit()
    found, blind = ranked(name, board), ranked("popular", board)
    assert found["hr"] > 0.8
    assert blind["hr"] < found["hr"] - 0.15
    assert blind["recall"] < found["recall"] / 1.4


@pytest.mark.parametrize("name", ["als", "bpr", "item-knn"])
def test_the_best_items_of_the_two_tastes_are_of_the_users_own(name: str, board: ff.Interactions) -> None:
    needs_implicit()
    train, _ = board.split(test=0.2, seed=0)
    score = central.CENTRAL[name](train, 0)
    right = [
        item % 2 == user % 2 for user in range(train.n_users) for item in best(score(user), train.items_of(user), 5)
    ]
    assert np.mean(right) > 0.95


def test_popularity_is_counted_by_hand() -> None:
    data = ff.Interactions.from_pairs([0, 1, 2, 2], [5, 5, 5, 7]).with_items([5, 6, 7])
    assert central.popular(data, 0)(1).tolist() == [3, 0, 1]


@pytest.mark.parametrize(
    ("name", "module", "kind"),
    [
        ("als", "implicit.als", "AlternatingLeastSquares"),
        ("bpr", "implicit.bpr", "BayesianPersonalizedRanking"),
        ("item-knn", "implicit.nearest_neighbours", "CosineRecommender"),
    ],
)
def test_scores_rank_as_the_library_recommends(
    name: str, module: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fitted model is kept aside, and its own recommendations are compared with the scores."""
    needs_implicit()
    library = pytest.importorskip(module)
    made, build = [], getattr(library, kind)

    def keep(**settings: object) -> object:
        made.append(build(**settings))
        return made[-1]

    monkeypatch.setattr(library, kind, keep)
    train, _ = ff.synthetic(users=50, items=80, mean_items=12).split()
    score, matrix = central.CENTRAL[name](train, 3), central.user_item_matrix(train)
    for user in (0, 17, 49):
        ids, values = made[0].recommend(user, matrix[user], N=8)
        own = train.items_of(user)
        assert not set(own.tolist()) & set(ids.tolist())
        np.testing.assert_allclose(score(user)[ids], values, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(score(user)[best(score(user), own, 8)], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["als", "bpr", "item-knn"])
def test_the_same_seed_gives_the_same_scores(name: str) -> None:
    needs_implicit()
    data = ff.synthetic(users=30, items=40, mean_items=8)
    first, again = (central.CENTRAL[name](data, 1) for _ in range(2))
    assert all(np.array_equal(first(user), again(user)) for user in range(data.n_users))
    assert first(0).shape == (40,)
    assert first(0).dtype == np.float32


def test_a_curve_ends_with_the_last_round() -> None:
    assert curve_rounds(1) == [1]
    assert curve_rounds(7) == [1, 5, 7]
    assert curve_rounds(100) == [1, 5, 10, 25, 50, 100]
    assert curve_rounds(500) == [1, 5, 10, 25, 50, 100, 200, 400, 500]


def test_the_federation_is_evaluated_as_it_evaluates_itself() -> None:
    data = ff.synthetic(users=40, items=60, mean_items=10)
    result = bench_accuracy({"made": data}, ["mf"], AccuracySettings(2, 4, 0.3), central=["popular"])
    train, test = data.split(test=0.3, seed=4)
    straight = ff.Federation(train, ff.MF(), seed=4).fit(rounds=2).evaluate(test)
    model = result["datasets"]["made"]["models"]["mf"]
    assert model["full"] == straight.full
    assert model["sampled"] == straight.sampled
    assert [point["round"] for point in model["curve"]] == [1, 2]
    assert model["of_als"] is None


def test_the_promised_shape(shell: Shell, tmp_path: Path) -> None:
    needs_implicit()
    table = write_table(tmp_path / "plays.csv")
    result = shell.json("bench", "accuracy", table, *COLUMNS, "--models", "mf,ials", "--rounds", 2)
    assert set(result) == {"datasets", "settings", "machine"}
    row = result["datasets"][str(table)]
    sizes = {"users", "items", "interactions"}
    assert set(row) == sizes | {"popular", "als", "bpr", "item-knn", "federated", "models"}
    assert (row["users"], list(row["models"])) == (40, ["mf", "ials"])
    for found in (
        *(row[name] for name in central.CENTRAL if name != "als-tuned"),
        row["federated"],
        *row["models"].values(),
    ):
        assert set(found["full"]) == FULL
        assert set(found["sampled"]) == SAMPLED
    assert row["federated"] == {key: value for key, value in row["models"]["mf"].items() if key != "curve"}
    assert set(row["federated"]) == {"model", "rounds", "full", "sampled", "of_als"}
    assert row["federated"]["of_als"] == pytest.approx(row["federated"]["full"]["ndcg"] / row["als"]["full"]["ndcg"])
    assert result["settings"]["central"]["als"]["factors"] == 64
    assert "federated mf, round 2" in shell.errors


def test_people_get_a_table_a_picture_and_the_figures(shell: Shell, tmp_path: Path) -> None:
    table, out = write_table(tmp_path / "plays.csv"), tmp_path / "new" / "out"
    arguments = ["--models", "mf", "--rounds", 2, "--central", "popular", "--out", out]
    shown = shell("bench", "accuracy", table, *COLUMNS, *arguments)
    assert "Most popular" in shown
    assert "Fed-mf, 2 rounds" in shown
    assert "Item kNN" not in shown
    assert sorted(path.name for path in out.iterdir()) == ["accuracy.png", "accuracy.svg", "result.json"]
    saved = json.loads((out / "result.json").read_text())
    assert saved["settings"]["rounds"] == 2
    drawn = (out / "accuracy.svg").read_text()
    assert all(label in drawn for label in ("federated mf", "Most popular", "plays.csv", "full NDCG@10"))


@pytest.mark.usefixtures("no_training")
def test_without_the_library_the_command_says_what_to_install(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit", None)
    assert shell("bench", "accuracy", "synthetic", fails=1) == ""
    assert "implicit is not installed; it computes item-knn, als, bpr" in shell.errors
    assert "pip install 'fedforget[compare]'" in shell.errors
    assert "--central popular" in shell.errors


def test_without_the_library_popularity_is_still_compared(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit", None)
    small = ff.synthetic(users=30, items=40, mean_items=8)
    monkeypatch.setattr("fedforget.cli.bench_accuracy.load", lambda *_, **__: small)
    result = shell.json("bench", "accuracy", "--quick", "--rounds", 1, "--central", "popular")
    assert set(result["datasets"]) == {"ml-100k"}
    assert result["datasets"]["ml-100k"]["federated"]["model"] == "ials"


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["good.csv", "missing.csv", *COLUMNS], "missing.csv"),
        (["good.csv", "lone.csv", *COLUMNS], "lone.csv leaves nothing for a test"),
        (["good.csv", "ml-100", *COLUMNS], "Did you mean 'ml-100k'?"),
        (["ml-100k", *COLUMNS], "--user-column, --item-column and --separator are for files"),
        (["good.csv", *COLUMNS, "--models", "lightgnc"], "Did you mean 'lightgcn'?"),
        (["good.csv", *COLUMNS, "--central", "svd"], "Unknown central method 'svd'"),
        (["good.csv", *COLUMNS, "--rounds", "0"], "rounds is 0"),
        (["good.csv", *COLUMNS, "--test", "1.5"], "test share is 1.5"),
        (["good.csv", *COLUMNS, "--out", "good.csv"], "Cannot write good.csv"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_trained(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "good.csv")
    (tmp_path / "lone.csv").write_text("who,what\na,x\nb,y\n")
    assert shell("bench", "accuracy", "--central", "popular", *arguments, fails=1) == ""
    assert said in shell.errors
