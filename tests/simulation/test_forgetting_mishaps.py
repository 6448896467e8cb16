"""Errors around the commit of an erasure, and what else must not be lost by one."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedforget as ff
from fedforget.errors import QuorumError, RunError, RunWarning
from fedforget.runtime.randomness import user_key
from fedforget.server.history import RoundRecord
from fedforget.server.run import Run
from tests.small_federations import DATA, assert_same_state, build, first_in, trained


@pytest.mark.parametrize("place", ["write_receipts", "_clear"])
def test_an_error_after_the_commit_leaves_a_federation_that_can_go_on(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is committed stays committed; the purge is made up for, and asking again finds nobody to forget."""
    run = tmp_path / "run"
    fed = trained(run)
    forgotten = first_in(fed, 2)

    def broken(self: Run) -> None:
        raise OSError("the disk went away")

    monkeypatch.setattr(Run, place, broken)
    with pytest.warns(RunWarning, match="went away"):
        assert fed.forget(forgotten).salt
    monkeypatch.undo()
    assert forgotten[0] not in fed.train.user_ids.tolist()
    with pytest.raises(ff.ConfigError, match="no user"):
        fed.forget(forgotten)
    fed.fit(more=1)
    assert fed.waiting is None
    assert [path.name for path in run.glob("trajectory-*")] == ["trajectory-2"]
    assert len(list((run / "receipts").iterdir())) == 1
    opened = ff.Federation.open(run, fed.train)
    assert_same_state(opened, fed)


def test_a_run_whose_users_are_forgotten_while_it_is_being_opened_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    fed = trained(run)
    original = Run._finish_if_committed

    def overtaken(self: Run) -> None:
        monkeypatch.setattr(Run, "_finish_if_committed", original)
        fed.forget(first_in(fed, 2))
        original(self)

    monkeypatch.setattr(Run, "_finish_if_committed", overtaken)
    with pytest.raises(RunError, match="Open it again"):
        trained(run)
    assert [path.name for path in run.glob("trajectory-*")] == ["trajectory-2"]
    assert_same_state(ff.Federation.open(run, fed.train), fed)


def test_a_resumed_request_still_requires_what_it_required(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run")
    forgotten = first_in(fed, 2)

    def stop(record: RoundRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fed.forget(forgotten, require=1.0, on_round=stop)
    fed.offline = lambda round_, user: True
    with pytest.raises(QuorumError):
        fed.forget(forgotten)


def test_purging_someone_who_never_took_part_keeps_what_is_known_exactly(tmp_path: Path) -> None:
    """But for the cohort of the last round, of whom only the newest parameters go along."""
    never = DATA.user_ids.tolist()[0]
    fed = trained(tmp_path / "run", joins={never: 1000})
    before = set(fed._run.current.devices.log.store.private_state(fed.rounds - 1).keys.tolist())
    newest = {user_key(user) for user in fed.cohort(fed.rounds)}
    fed.forget([never])
    after = set(fed._run.current.devices.log.store.private_state(fed.rounds - 1).keys.tolist())
    assert after == before - newest
    assert len(after) > 5


def test_a_copy_into_a_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    fed = trained(tmp_path / "run")
    fed.copy(tmp_path / "copy").close()
    with pytest.raises(RunError, match="already holds a run"):
        fed.copy(tmp_path / "copy")


def test_cohorts_may_be_named_in_any_order_but_only_of_members() -> None:
    users = DATA.user_ids.tolist()[:4]
    fed, other = build().fit(rounds=1, cohorts={1: users}), build().fit(rounds=1, cohorts={1: [*users[::-1], users[0]]})
    assert_same_state(fed, other)
    with pytest.raises(ff.DataError, match="no user"):
        build().fit(rounds=1, cohorts={1: ["nobody"]})
