"""The facade: learning, seeds, late joiners, resuming, recommending, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from fedforget.errors import RunWarning
from fedforget.protocol import reasons
from fedforget.protocol.tasks import Train
from fedforget.protocol.training import LocalTraining
from fedforget.runtime.files import only_writer
from fedforget.server.config_file import FORMAT
from tests.samplers import make_sampler

MODELS = [ff.MF(dim=8), ff.LightGCN(dim=8), ff.NCF(dim=8, hidden=(32, 16, 8), negatives=2)]
QUICK = {"training": LocalTraining(epochs=2, batch=16), "server": ff.ServerConfig(fraction=0.3)}


def build(board: ff.Interactions, model: ff.Recommender | None = None, **settings: object) -> ff.Federation:
    return ff.Federation(board, model or MODELS[0], **{**QUICK, **settings})  # type: ignore[arg-type]


def same(a: ff.Federation, b: ff.Federation) -> bool:
    users = a.train.user_ids.tolist()
    privates = all(np.array_equal(a.devices.private(user), b.devices.private(user)) for user in users)
    return a.public.digest == b.public.digest and privates


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("kind", ["random", "mixed"])
def test_every_model_learns_the_visible_answer_of_a_checkerboard(
    board: ff.Interactions, model: ff.Recommender, kind: str
) -> None:
    """Users of one colour should be offered items of that colour before any of the other."""
    fed = ff.Federation(
        board, model, sampler=make_sampler(kind, R=60),
        training=LocalTraining(epochs=5, batch=16, lr=0.005), server=ff.ServerConfig(fraction=0.5),
    )  # fmt: skip
    fed.fit(rounds=60)
    for user in board.user_ids.tolist():
        left = 20 - int(board.counts[user])
        offered = [item for item, _ in fed.recommend(user, k=left)]
        assert all(item % 2 == user % 2 for item in offered), (user, offered)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_same_seed_same_run_another_seed_another_run(board: ff.Interactions, model: ff.Recommender) -> None:
    first = build(board, model, seed=1).fit(rounds=3)
    again = build(board, model, seed=1).fit(rounds=3)
    other = build(board, model, seed=2).fit(rounds=3)
    assert same(first, again)
    assert not same(first, other)


def test_workers_do_not_change_the_result(board: ff.Interactions) -> None:
    one = build(board, compute=ff.Compute(workers=1)).fit(rounds=3)
    four = build(board, compute=ff.Compute(workers=4)).fit(rounds=3)
    assert same(one, four)


def test_late_joiners_take_no_part_before_their_round(board: ff.Interactions) -> None:
    late = dict.fromkeys(range(0, 60, 2), 4)
    fed = build(board, joins=late, server=ff.ServerConfig(fraction=1.0))
    start = {user: fed.devices.private(user).copy() for user in range(60)}
    fed.fit(rounds=3)
    assert set(fed.cohort(3)) == set(range(1, 60, 2))
    assert all(np.array_equal(fed.devices.private(user), start[user]) for user in late)
    fed.fit(rounds=4)
    assert set(fed.cohort(4)) == set(range(60))
    assert not any(np.array_equal(fed.devices.private(user), start[user]) for user in late)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_stopped_and_reopened_equals_unbroken(board: ff.Interactions, model: ff.Recommender, tmp_path: Path) -> None:
    unbroken = build(board, model).fit(rounds=6)
    build(board, model, path=tmp_path / "run").fit(rounds=2).close()
    build(board, model, path=tmp_path / "run").fit(more=1).close()
    resumed = ff.Federation.open(tmp_path / "run", board)
    assert resumed.rounds == 3
    assert same(resumed.fit(rounds=6), unbroken)
    resumed.fit(rounds=4)
    assert resumed.rounds == 6


def test_a_missing_last_snapshot_goes_on_from_the_one_before(board: ff.Interactions, tmp_path: Path) -> None:
    unbroken = build(board).fit(rounds=5)
    build(board, path=tmp_path / "run").fit(rounds=4).close()
    (tmp_path / "run" / "trajectory-1" / "snapshots" / "000004.safetensors").unlink()
    with pytest.warns(RunWarning, match="continues from round 3"):
        resumed = build(board, path=tmp_path / "run")
    assert resumed.rounds == 3
    with pytest.warns(RunWarning):
        resumed.fit(rounds=5)
    assert same(resumed, unbroken)


def test_a_lost_end_of_the_device_log_goes_on_from_what_is_left(board: ff.Interactions, tmp_path: Path) -> None:
    """As after a power cut, when history and log need not end at the same round."""
    unbroken = build(board).fit(rounds=5)
    run = tmp_path / "run"
    build(board, path=run).fit(rounds=3).close()
    devices = run / "trajectory-1" / "devices"
    shutil.copytree(devices, tmp_path / "older")
    build(board, path=run).fit(rounds=5).close()
    shutil.rmtree(devices)
    shutil.copytree(tmp_path / "older", devices)
    with pytest.warns(RunWarning, match="the log of its devices at 3"):
        resumed = build(board, path=run)
    assert resumed.rounds == 3
    with pytest.warns(RunWarning):
        resumed.fit(rounds=5)
    assert same(resumed, unbroken)


def test_metrics_have_one_line_a_round_whatever_happened(board: ff.Interactions, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train, test = board.split()
    build(train, path=run).fit(rounds=3, test=test, evaluate_every=2).close()
    metrics = run / "trajectory-1" / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    metrics.write_text("\n".join(lines[:1]) + '\n{"round": 3, "lo')
    build(train, path=run).fit(rounds=4, test=test, evaluate_every=2).close()
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    trained = [row for row in rows if "loss" in row]
    assert sorted(row["round"] for row in trained) == [1, 2, 3, 4]
    assert all(row["loss"] > 0 and row["clients"] == 18 and row["seconds"] > 0 for row in trained)
    assert [row["round"] for row in rows if "full" in row] == [4]


def test_recommendations_are_new_to_the_user_and_sorted(board: ff.Interactions) -> None:
    fed = build(board).fit(rounds=2)
    best = fed.recommend(3, k=100)
    assert len(best) == 40 - board.counts[3]
    assert not {item for item, _ in best} & set(board.items_of(3).tolist())
    scores = [score for _, score in best]
    assert scores == sorted(scores, reverse=True)
    assert all(type(item) is int for item, _ in best)
    assert best[:4] == fed.recommend(3, k=4)


def test_evaluation_is_the_same_with_any_number_of_workers(board: ff.Interactions) -> None:
    train, test = board.split()
    results = [build(train, compute=ff.Compute(workers=n)).fit(rounds=2).evaluate(test) for n in (1, 3)]
    np.testing.assert_array_equal(results[0].per_user_full, results[1].per_user_full)
    np.testing.assert_array_equal(results[0].per_user_sampled, results[1].per_user_sampled)


class TestRefused:
    """Each error names the value, the reason and the next step, and loses nothing."""

    def test_other_settings_in_the_folder(self, board: ff.Interactions, tmp_path: Path) -> None:
        build(board, path=tmp_path / "run").fit(rounds=1).close()
        with pytest.raises(ff.RunError, match=r"model.dim is 8 there, 9 here") as caught:
            build(board, ff.MF(dim=9), path=tmp_path / "run")
        assert "another folder" in caught.value.hint
        assert build(board, path=tmp_path / "run").rounds == 1

    def test_other_data(self, board: ff.Interactions, tmp_path: Path) -> None:
        build(board, path=tmp_path / "run").close()
        other = ff.synthetic(users=9, items=40, mean_items=12, seed=4)
        with pytest.raises(ff.RunError, match="holds a run with other data"):
            build(other, path=tmp_path / "run")

    def test_a_folder_that_is_no_run(self, board: ff.Interactions, tmp_path: Path) -> None:
        (tmp_path / "letters.txt").write_text("dear")
        with pytest.raises(ff.RunError, match="not a run folder"):
            build(board, path=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]
        with pytest.raises(ff.RunError, match=r"no config.toml"):
            ff.Federation.open(tmp_path)

    def test_an_unwritable_folder(self, board: ff.Interactions, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ff.RunError, match="Cannot write"):
            build(board, path=tmp_path / "file" / "run")

    def test_a_folder_of_another_version(self, board: ff.Interactions, tmp_path: Path) -> None:
        build(board, path=tmp_path / "run").close()
        config = tmp_path / "run" / "config.toml"
        config.write_text(config.read_text().replace(f"format = {FORMAT}", "format = 99"))
        with pytest.raises(ff.RunError, match="format 99"):
            ff.Federation.open(tmp_path / "run", board)

    def test_data_that_came_from_python(self, board: ff.Interactions, tmp_path: Path) -> None:
        build(board, path=tmp_path / "run").close()
        assert ff.Federation.open(tmp_path / "run").train == board

    def test_two_writers(self, board: ff.Interactions, tmp_path: Path) -> None:
        fed = build(board, path=tmp_path / "run")
        with only_writer(tmp_path / "run"), pytest.raises(ff.RunError, match="Another process"):
            fed.fit(rounds=1)
        assert fed.fit(rounds=1).rounds == 1

    def test_users_without_training_items(self, board: ff.Interactions) -> None:
        train = board.split()[0]
        empty = ff.Interactions(train.user_ids, train.item_ids, np.zeros_like(train.indptr), train.indices[:0])
        with pytest.raises(ff.ConfigError, match="no training interactions"):
            build(empty)

    @pytest.mark.parametrize("arguments", [{}, {"rounds": 1, "more": 1}, {"rounds": -1}, {"more": -2}])
    def test_senseless_fit(self, board: ff.Interactions, arguments: dict[str, int]) -> None:
        with pytest.raises(ff.ConfigError):
            build(board).fit(**arguments)

    def test_unknown_user_and_senseless_k(self, board: ff.Interactions) -> None:
        fed = build(board)
        with pytest.raises(ff.DataError, match="no user 99"):
            fed.recommend(99)
        with pytest.raises(ff.DataError, match="no user '3'"):
            fed.recommend("3")
        with pytest.raises(ff.ConfigError, match="k is 0"):
            fed.recommend(3, k=0)

    def test_test_data_of_another_catalogue(self, board: ff.Interactions) -> None:
        other = ff.Interactions.from_pairs(range(60), [77] * 60)
        with pytest.raises(ff.DataError, match="item 77, which is not in the training data"):
            build(board).evaluate(other)

    @pytest.mark.parametrize(
        "make",
        [
            lambda: make_sampler(beta=0),
            lambda: make_sampler(R=101),
            lambda: make_sampler("hard"),
            lambda: ff.LocalTraining(epochs=0),
            lambda: ff.LocalTraining(lr=-1),
            lambda: ff.ServerConfig(fraction=1.5),
            lambda: ff.ServerConfig(aggregation="median"),
            lambda: ff.ServerConfig(snapshot_every=0),
            lambda: ff.Log("float64"),
            lambda: ff.Log(selection="best"),
            lambda: ff.Log(alpha=0),
            lambda: ff.Log(quota=-1),
            lambda: ff.Log(when_full="newest"),
            lambda: ff.Log(store="cloud"),
        ],
    )
    def test_senseless_settings(self, make: Callable[[], object]) -> None:
        with pytest.raises(ff.ConfigError):
            make()

    def test_users_who_join_but_are_not_there(self, board: ff.Interactions) -> None:
        with pytest.raises(ff.ConfigError, match="User 'x' is to join"):
            build(board, joins={"x": 2})

    def test_a_device_that_is_not_there(self, board: ff.Interactions) -> None:
        with pytest.raises(ff.ConfigError, match=r"tpu"):
            build(board, compute=ff.Compute(device="tpu"))
        with pytest.raises(ff.ConfigError, match="workers is 0"):
            build(board, compute=ff.Compute(workers=0))


def test_rounds_in_which_nobody_took_part_survive_a_restart(board: ff.Interactions, tmp_path: Path) -> None:
    late = dict.fromkeys(range(60), 3)
    fed = build(board, joins=late, path=tmp_path / "run").fit(rounds=2)
    assert fed.cohort(1) == fed.cohort(2) == []
    fed.close()
    resumed = build(board, joins=late, path=tmp_path / "run")
    assert resumed.rounds == 2
    assert same(resumed.fit(rounds=4), build(board, joins=late).fit(rounds=4))


class TestStatesThatMustNotMix:
    """Readers, second objects, interruptions and half-deleted folders."""

    def test_opening_a_run_writes_nothing_to_it(self, board: ff.Interactions, tmp_path: Path) -> None:
        """As a reader would between a live trainer's snapshot, log entry and commit."""
        run = tmp_path / "run"
        fed = build(board, path=run).fit(rounds=3)
        fed.devices.train({4: [1, 2]}, fed.public, Train(1))
        stray = run / "trajectory-1" / "snapshots" / "000004.safetensors"
        stray.write_bytes(fed.state.to_bytes())
        reader = ff.Federation.open(run, board)
        assert reader.rounds == 3
        assert reader.public.digest == fed.public.digest
        assert stray.exists()
        assert fed._run.current.devices.log.last_round() == 4

    def test_a_second_object_goes_on_from_what_the_first_did(self, board: ff.Interactions, tmp_path: Path) -> None:
        unbroken = build(board).fit(rounds=6)
        first, second = (build(board, path=tmp_path / "run") for _ in range(2))
        first.fit(rounds=3)
        second.fit(rounds=6)
        assert same(second, unbroken)
        assert same(first.fit(rounds=6), unbroken)

    @pytest.mark.parametrize("folder", [True, False])
    def test_interrupted_within_a_round_and_fitted_again(
        self, board: ff.Interactions, tmp_path: Path, folder: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unbroken = build(board).fit(rounds=4)
        fed = build(board, path=tmp_path / "run" if folder else None).fit(rounds=2)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(fed.history, "commit", interrupt)
            with pytest.raises(KeyboardInterrupt):
                fed.fit(rounds=4)
        assert fed.rounds == 2
        assert same(fed.fit(rounds=4), unbroken)

    def test_a_round_asked_for_again_gives_the_same_answer(self, board: ff.Interactions) -> None:
        fed = build(board).fit(rounds=2)
        first, again = (fed.devices.train({3: [4, 7]}, fed.public, Train(2))[3] for _ in range(2))
        assert first.updates.users == [4, 7]
        np.testing.assert_array_equal(first.updates.rows, again.updates.rows)

    @pytest.mark.parametrize("lost", ["devices", "history.sqlite", "snapshots"])
    def test_half_a_run_is_reported_and_never_mixed(self, board: ff.Interactions, tmp_path: Path, lost: str) -> None:
        unbroken = build(board).fit(rounds=5)
        run = tmp_path / "run"
        build(board, path=run).fit(rounds=4).close()
        gone = run / "trajectory-1" / lost
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        errors = {"snapshots": "no usable snapshot", "history.sqlite": "history.sqlite is missing"}
        if lost in errors:
            with pytest.raises(ff.RunError, match=errors[lost]):
                ff.Federation.open(run, board)
            return
        with pytest.warns(RunWarning, match="continues from round 0"):
            fed = ff.Federation.open(run, board)
        assert fed.rounds == 0
        with pytest.warns(RunWarning):
            fed.fit(rounds=5)
        assert same(fed, unbroken)

    def test_a_device_whose_training_diverges_keeps_what_it_had(self, board: ff.Interactions) -> None:
        fed = build(board)
        before = fed.devices.private(3).copy()
        public = fed.public.copy()
        public.items[:] = np.nan
        answers = fed.devices.train({1: [3]}, public, Train(1))[1]
        assert len(answers.updates) == 0
        assert answers.failures == {3: reasons.DIVERGED}
        np.testing.assert_array_equal(fed.devices.private(3), before)

    def test_evaluation_on_training_items_is_refused(self, board: ff.Interactions) -> None:
        train, _ = board.split()
        with pytest.raises(ff.DataError, match="in the training and the test data"):
            build(train).evaluate(board)


def test_ids_are_hashed_once_and_not_at_every_call_of_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call costs must not grow with the users: at 100,000 of them it once took twelve times as long."""
    fed = ff.Federation(ff.synthetic(users=30, items=20, mean_items=6), ff.MF(dim=4)).fit(more=1)

    def refuse(user: object) -> None:
        raise AssertionError(f"{user} is hashed again")

    monkeypatch.setattr("fedforget.server.roster.randomness.user_key", refuse)
    fed.fit(more=2)
    monkeypatch.undo()
    fed.forget(fed.cohort(1)[:1])
    assert len(fed.fit(more=1).cohort(4)) == 3


def test_a_user_whose_training_diverged_keeps_its_vector_also_where_it_was_fitted_anew(tmp_path: Path) -> None:
    fed = ff.Federation(
        ff.synthetic(users=12, items=20, mean_items=6), ff.MF(dim=4), path=tmp_path / "run",
        server=ff.ServerConfig(fraction=1.0),
    ).fit(rounds=1)  # fmt: skip
    assert fed.config.training.refit
    victim, trainer = fed.cohort(1)[3], fed.devices._trainer
    before = fed.devices.private(victim).copy()

    def diverging(*args: object) -> object:
        trained = trainer(*args)  # type: ignore[arg-type]
        trained.private[3] = np.nan
        return trained

    fed.devices._trainer = diverging  # type: ignore[assignment]
    fed.fit(rounds=2)
    assert fed.history.record(2).failures == {victim: reasons.DIVERGED}
    assert np.array_equal(fed.devices.private(victim), before)
    fed.close()
    again = ff.Federation.open(tmp_path / "run", fed.train)
    assert np.array_equal(again.devices.private(victim), before)
