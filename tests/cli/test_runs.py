"""The commands on run folders, as a person and as a program would use them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import fedforget as ff
from tests.cli.conftest import QUICK, Shell, train_arguments


def test_train_evaluate_recommend_on_own_data(shell: Shell, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trained = shell.json(*train_arguments(table, out), "--rounds", 3, "--model", "mf", "--evaluate-every", 2)
    assert trained["rounds"] == 3
    assert trained["model"]["name"] == "mf"
    evaluated = shell.json("evaluate", out)
    assert evaluated["sampled"] == trained["sampled"]
    assert evaluated["full"] == trained["full"]
    metrics = (out / "trajectory-1" / "metrics.jsonl").read_text().splitlines()
    assert {json.loads(line)["round"] for line in metrics} == {1, 2, 3}
    offered = shell.json("recommend", out, "--user", "u3", "-k", 4)
    fed = ff.Federation.open(out)
    assert offered["user"] == "u3"
    assert [(row["item"], row["score"]) for row in offered["items"]] == fed.recommend("u3", k=4)


def test_a_run_goes_on_with_its_folder_alone(shell: Shell, table: Path, tmp_path: Path) -> None:
    shell.json(*train_arguments(table, tmp_path / "run"), "--rounds", 2, "--set", "training.lr=0.01")
    again = shell.json("train", "--out", tmp_path / "run", "--rounds", 3)
    assert again["rounds"] == 3
    assert shell.json("train", "--out", tmp_path / "run", "--rounds", 1)["rounds"] == 3
    assert "nothing to train" in shell("train", "--out", tmp_path / "run", "--rounds", 1) + shell.errors


def test_a_refused_start_leaves_nothing_behind(shell: Shell, table: Path, tmp_path: Path) -> None:
    shell(*train_arguments(table, tmp_path / "run"), "--workers", 0, fails=1)
    shell(*train_arguments(table, tmp_path / "run"), "--device", "tpu", fails=1)
    assert not (tmp_path / "run").exists()


def test_moved_data_is_recognised_by_its_content(shell: Shell, table: Path, tmp_path: Path) -> None:
    before = shell.json(*train_arguments(table, tmp_path / "run"), "--rounds", 1)
    moved = table.rename(tmp_path / "moved.csv")
    after = shell.json(*train_arguments(moved, tmp_path / "run"), "--rounds", 1)
    assert after["full"] == before["full"]


def test_names_with_brackets_are_shown_as_they_are(shell: Shell, tmp_path: Path) -> None:
    users, items = ff.synthetic(users=20, items=30, mean_items=8).pairs()
    path = tmp_path / "[odd].csv"
    names = [f"Game {i} [DLC] [/x]" for i in items]
    pl.DataFrame({"user": [f"[b]{u}" for u in users], "item": names}).write_csv(path)
    shell("train", path, "--out", tmp_path / "[run]", "--rounds", 1, *QUICK)
    assert "[DLC] [/x]" in shell("recommend", tmp_path / "[run]", "--user", "[b]3")


def test_interrupted_it_says_so_and_can_go_on(table: Path, tmp_path: Path) -> None:
    """A real SIGINT to a real process."""
    arguments = [*train_arguments(table, tmp_path / "run"), "--rounds", 100_000]
    command = [sys.executable, "-m", "fedforget", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "trajectory-1" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed == ""
    assert "Interrupted" in told
    done = ff.Federation.open(tmp_path / "run").rounds
    assert done >= 2


def test_training_goes_on_where_it_was(shell: Shell, table: Path, tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    shell.json(*train_arguments(table, broken), "--rounds", 2)
    again = shell.json(*train_arguments(table, broken), "--rounds", 4)
    assert again["rounds"] == 4
    assert again["full"] == shell.json(*train_arguments(table, whole), "--rounds", 4)["full"]


def test_people_get_tables_and_the_next_step(shell: Shell, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shown = shell(*train_arguments(table, out), "--rounds", 2)
    assert "sampled HR@10" in shown
    assert "fedforget recommend" in shown
    assert "NDCG@5" in shell("evaluate", out, "--k", 5)
    assert "song" in shell("recommend", out, "--user", "u1")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_results_per_user(shell: Shell, table: Path, tmp_path: Path, ending: str) -> None:
    out, rows = tmp_path / "run", tmp_path / f"users.{ending}"
    shell.json(*train_arguments(table, out), "--rounds", 1)
    means = shell.json("evaluate", out, "--per-user", rows)
    frame = pl.read_csv(rows) if ending == "csv" else pl.read_parquet(rows)
    assert frame.height == means["users"] == 40
    assert frame["full_ndcg"].mean() == pytest.approx(means["full"]["ndcg"])


class TestErrors:
    """Each names the value, the reason and the next step, and exits with a code other than 0."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["train", "ml-100", "--out", "x"], "Did you mean 'ml-100k'?"),
            (["train", "synthetic", "--out", "x", "--model", "nfc"], "Did you mean 'ncf'?"),
            (["train", "synthetic", "--out", "x", "--set", "sampler=mixd"], "Did you mean 'mixed'?"),
            (["train", "synthetic", "--out", "x", "--set", "beta=0"], "beta is 0"),
            (["train", "synthetic", "--out", "x", "--set", "fraction=2"], "fraction is 2"),
            (["train", "synthetic", "--out", "x", "--test", "1.5"], "The test share is 1.5"),
            (["train", "synthetic", "--out", "x", "--device", "tpu"], "tpu"),
            (["train", "synthetic", "--out", "x", "--rounds", "-1"], "rounds is -1"),
            (["train", "synthetic", "--out", "x", "--seed", "99999999999999999999"], "seed is 9999"),
            (["train", "--out", "x"], "no config.toml"),
            (["train", "gone.csv", "--out", "x"], "gone.csv"),
            (["evaluate", "nowhere"], "no config.toml"),
            (["recommend", "nowhere", "--user", "1"], "no config.toml"),
            (["bench", "engine", "--models", "ncf,foo"], "Unknown model 'foo'"),
        ],
    )
    def test_named(
        self, shell: Shell, arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert shell(*arguments, fails=1) == ""
        assert said in shell.errors
        assert "Traceback" not in shell.errors

    def test_unknown_user_names_some_that_are_there(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        shell.json(*train_arguments(table, tmp_path / "run"), "--rounds", 1)
        shell("recommend", tmp_path / "run", "--user", "nobody", fails=1)
        assert "no user 'nobody'" in shell.errors
        assert "u0" in shell.errors

    def test_other_settings_for_the_same_folder(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        shell.json(*train_arguments(table, tmp_path / "run"), "--rounds", 1)
        shell(*train_arguments(table, tmp_path / "run"), "--rounds", 1, "--set", "training.lr=0.01", fails=1)
        assert "training.lr is 0.001 there, 0.01 here" in shell.errors

    def test_data_that_changed_since(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        shell.json(*train_arguments(table, tmp_path / "run"), "--rounds", 1)
        table.write_text(table.read_text() + "u0,a new song\n")
        before = shell.json("evaluate", tmp_path / "run")
        table.unlink()
        assert shell.json("evaluate", tmp_path / "run") == before

    def test_wrong_usage(self, shell: Shell) -> None:
        shell("train", "--nonsense", fails=2)
        assert "No such option" in shell.errors

    def test_debug_shows_the_traceback(self, shell: Shell) -> None:
        with pytest.raises(ff.RunError):
            shell("--debug", "evaluate", "nowhere")


def test_json_is_alone_on_standard_output(table: Path, tmp_path: Path) -> None:
    """In a process of its own, as a script would call it."""
    command = [sys.executable, "-m", "fedforget", *train_arguments(table, tmp_path / "run"), "--rounds", 1, "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["rounds"] == 1


@pytest.mark.parametrize("command", [[], ["train"], ["evaluate"], ["recommend"], ["quickstart"], ["bench", "engine"]])
def test_every_command_explains_itself(shell: Shell, command: list[str]) -> None:
    shown = shell(*command, "--help")
    assert "Usage: " in shown
    assert "--help" in shown


class TestGrowing:
    """New interactions, users and items from the command line."""

    def test_a_run_grows_and_recommends_to_all(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        shell.json(*train_arguments(table, run), "--rounds", 1)
        table.unlink()
        more = tmp_path / "more.csv"
        more.write_text("listener,song\nu0,a new song\nnewcomer,a new song\nnewcomer,another\n")
        columns = ("--user-column", "listener", "--item-column", "song")
        added = shell.json("data", "add", run, more, *columns)
        assert (added["interactions"], added["users"], added["items"], added["known"]) == (3, 1, 2, 0)
        assert added["since"] == 2
        assert shell.json("data", "add", run, more, *columns)["known"] == 3
        assert "3 interactions were there already" in shell("data", "add", run, more, *columns)
        assert shell.json("train", "--out", run, "--rounds", 3)["rounds"] == 3
        out = tmp_path / "all.csv"
        listed = shell.json("recommend", run, "--all", "--out", out, "-k", 2)
        assert listed["users"] == len({line.split(",")[0] for line in out.read_text().splitlines()[1:]})
        assert out.read_text().startswith("user,rank,item,score\n")
        assert len(shell.json("recommend", run, "--user", "newcomer", "-k", 2)["items"]) == 2
        written = shell.json("export", run, "--out", tmp_path / "vectors")
        assert (tmp_path / "vectors" / "users.parquet").exists()
        assert written["users"] == listed["users"]

    def test_a_forgotten_user_is_readmitted_by_name_only(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        shell.json(*train_arguments(table, run), "--rounds", 2)
        shell.json("forget", run, "--yes", "--users", "u1")
        more = tmp_path / "more.csv"
        more.write_text("user,item\nu1,a new song\n")
        shell("data", "add", run, more, fails=1)
        assert "--readmit" in shell.errors
        assert shell.json("data", "add", run, more, "--readmit")["readmitted"] == 1

    def test_training_without_a_test_part(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        trained = shell.json(*train_arguments(table, run), "--rounds", 1, "--test", 0)
        assert "full" not in trained
        shell("evaluate", run, fails=1)
        assert "no test part" in shell.errors

    def test_what_recommend_needs(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        shell.json(*train_arguments(table, run), "--rounds", 1)
        shell("recommend", run, fails=1)
        assert "--user ID or --all" in shell.errors
        shell("recommend", run, "--all", fails=1)
        assert "--out" in shell.errors

    def test_the_run_says_that_its_source_still_holds_the_forgotten(
        self, shell: Shell, table: Path, tmp_path: Path
    ) -> None:
        run = tmp_path / "run"
        shell.json(*train_arguments(table, run), "--rounds", 2)
        assert (
            f"{table} still holds 1 of the forgotten users"
            in shell.json("forget", run, "--yes", "--users", "u1")["source"]
        )
        assert "does not read them again" in shell("forget", run, "--yes", "--users", "u2")
        moved = table.rename(tmp_path / "moved.csv")
        assert shell.json("forget", run, "--yes", "--users", "u3")["source"] is None
        shell.json("train", "--out", run, "--data", moved, "--rounds", 2)
        assert str(moved) in (run / "config.toml").read_text()
        fed = ff.Federation.open(run)
        assert {"u1", "u2", "u3"}.isdisjoint(fed.members)
        items = ",".join(fed.train.item_ids_of("u4")[:2])
        fed.close()
        told = shell.json("forget", run, "--yes", "--user", "u4", "--items", items)["source"]
        assert "still holds 2 of the forgotten interactions" in told
        moved.unlink()
        assert shell.json("train", "--out", run, "--rounds", 3)["rounds"] == 3

    def test_data_is_given_once(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        shell(*train_arguments(table, tmp_path / "run"), "--data", table, fails=1)
        assert "Give one of them" in shell.errors

    def test_an_addition_from_the_future_is_refused(self, shell: Shell, table: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        shell.json(*train_arguments(table, run), "--rounds", 1)
        more = tmp_path / "more.csv"
        more.write_text("user,item,time\nu1,a new song,99999999999\n")
        shell("data", "add", run, more, "--time-column", "time", fails=1)
        assert "user 'u1' with item 'a new song'" in shell.errors
        assert "in the future" in shell.errors
