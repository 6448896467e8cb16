"""The round loop with clients made up for the purpose: what counts, what is refused, what is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedforget.errors import ConfigError
from fedforget.models import GlobalParameters
from fedforget.protocol import reasons
from fedforget.protocol.tasks import Train
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.server.history import History, RoundRecord
from fedforget.server.optimiser import Adam
from fedforget.server.roster import Roster
from fedforget.server.rounds import run_round, run_rounds
from fedforget.server.server_config import ServerConfig
from fedforget.server.state import ServerState
from tests.server.made_updates import DENSE, aggregator, config_of, public_part, updates_of

USERS = ["ann", "bob", "cid", "dee"]
EVERYONE = ServerConfig(fraction=1.0)


class FakeClients:
    """Answers with what a function says, and remembers what it was asked."""

    def __init__(self, answer: Callable[[list], CohortResult]) -> None:
        self.answer = answer
        self.asked: list[tuple[int, GlobalParameters, list, int]] = []

    def run(self, task, asked, public=None) -> dict[int, CohortResult]:
        assert isinstance(task, Train)
        ((round_, users),) = asked.items()
        self.asked.append((round_, public, list(users), task.epochs))
        return {round_: self.answer(list(users))}

    def apply_factors(self, round_, factors) -> None:
        raise AssertionError("no factors were to be applied")


def ones(users: list) -> Updates:
    """Everyone moves item 0 and the dense tensors by one."""
    return updates_of({user: {0: [1, 1]} for user in users}, np.ones((len(users), DENSE)), losses=[0.5] * len(users))


def run(answer, server=EVERYONE, public=None) -> tuple[GlobalParameters, RoundRecord]:
    state, record = run_round(
        4, ServerState(public or public_part()), FakeClients(answer), USERS, aggregator(server), epochs=3
    )
    return state.public, record


def test_a_round_asks_its_cohort_and_adds_the_mean_of_what_comes_back():
    clients = FakeClients(lambda users: CohortResult(ones(users)))
    before = public_part(0.25)
    cohort = ["bob", "dee"]
    state, record = run_round(4, ServerState(before), clients, cohort, aggregator(EVERYONE), epochs=3)
    public = state.public
    assert [(round_, users, epochs) for round_, _, users, epochs in clients.asked] == [(4, cohort, 3)]
    assert clients.asked[0][1] is before
    assert public.items[0].tolist() == [1.25, 1.25]
    assert (public.items[1:] == 0.25).all()
    assert (public.dense == 1.25).all()
    assert (before.items == 0.25).all()
    assert record.round == 4
    assert record.participants == cohort
    assert record.loss == 0.5
    assert record.seconds >= 0
    assert record.failures == {}


def test_the_rule_of_the_server_combines_the_updates():
    def answer(users):
        return CohortResult(updates_of({user: {place: [8, 8]} for place, user in enumerate(users)}, sizes=[1, 1, 1, 5]))

    steps = {
        rule: run(answer, ServerConfig(1.0, rule))[0].items[:4, 0].tolist() for rule in ("mean", "touched", "weighted")
    }
    assert steps == {"mean": [2, 2, 2, 2], "touched": [8, 8, 8, 8], "weighted": [1, 1, 1, 5]}


def test_refused_updates_become_failures_and_do_not_count():
    def answer(users):
        updates = ones(users)
        updates.rows[1] = np.inf
        updates.items[3] = 99
        updates.losses[:] = [1, 1000, 3, 1000]
        return CohortResult(updates)

    public, record = run(answer)
    assert public.items[0].tolist() == [1, 1]
    assert (public.dense == 1).all()
    assert record.participants == ["ann", "cid"]
    assert record.loss == 2
    assert record.failures == {
        "bob": reasons.NOT_FINITE,
        "dee": reasons.UNKNOWN_ITEM,
    }


def test_clients_that_did_not_answer_are_written_down_beside_those_refused():
    def answer(users):
        updates = ones(users[:3])
        updates.dense[0] = np.nan
        return CohortResult(updates, {"dee": "timed out"})

    _, record = run(answer)
    assert record.participants == ["bob", "cid"]
    assert record.failures == {"dee": "timed out", "ann": reasons.NOT_FINITE}


def test_a_cohort_of_which_nobody_answers_leaves_the_model_as_it_was():
    before = public_part(0.25)
    public, record = run(lambda users: CohortResult(ones([]), dict.fromkeys(users, "away")), public=before)
    assert public.digest == before.digest
    assert record.participants == []
    assert record.loss is None
    assert record.failures == dict.fromkeys(USERS, "away")


@pytest.mark.parametrize(
    "change",
    [
        {"dense": np.zeros((4, DENSE + 1), np.float32)},
        {"dense": np.zeros((1, DENSE), np.float32)},
        {"rows": np.zeros((3, 2), np.float32)},
        {"ptr": np.array([0, 1])},
        {"ptr": np.array([0, 1, 2, 3, 9])},
        {"ptr": np.array([0, 3, 2, 3, 4])},
    ],
    ids=str,
)
def test_updates_whose_parts_do_not_fit_leave_the_model_as_it_was(change):
    before = public_part(0.25)
    public, record = run(lambda users: CohortResult(replace(ones(users), **change)), public=before)
    assert public.digest == before.digest
    assert record.participants == []
    assert record.failures == dict.fromkeys(USERS, reasons.WRONG_SHAPE)


def test_an_empty_cohort_has_a_round_without_anyone():
    clients = FakeClients(lambda users: CohortResult(ones(users)))
    state, record = run_round(1, ServerState(public_part()), clients, [], aggregator(EVERYONE), epochs=1)
    assert state.public.digest == public_part().digest
    assert (record.participants, record.loss) == ([], None)


def test_rounds_go_on_after_the_last_one_committed_and_each_is_committed_and_told():
    state = ServerState(public_part())
    history = History(None, state.public.layout)
    history.commit([RoundRecord(0, [], None, 0.0)], state)
    told = []

    def go_on(until: int, state: ServerState) -> ServerState:
        return run_rounds(
            until,
            state,
            history,
            FakeClients(lambda users: CohortResult(ones(users))),
            Roster(USERS),
            config_of(EVERYONE, epochs=1, seed=0),
            on_round=lambda record, state: told.append(
                (record.round, history.last_round, float(state.public.items[0, 0]))
            ),
        )

    state = go_on(2, state)
    state = go_on(2, state)
    state = go_on(3, state)
    assert told == [(1, 1, 1.0), (2, 2, 2.0), (3, 3, 3.0)]
    assert [float(history.snapshot(round_).items[0, 0]) for round_ in range(4)] == [0, 1, 2, 3]
    assert history.record(3).participants == USERS
    history.close()


def test_the_cohort_of_a_round_is_drawn_from_the_roster_unless_it_is_named():
    state = ServerState(public_part())
    history = History(None, state.public.layout)
    history.commit([RoundRecord(0, [], None, 0.0)], state)
    clients, roster = FakeClients(lambda users: CohortResult(ones(users))), Roster(USERS)
    run_rounds(
        3, state, history, clients, roster, config_of(ServerConfig(0.5), epochs=3, seed=7), on_round=lambda *_: None,
        cohorts={2: ["cid"]},
    )  # fmt: skip
    drawn = {round_: roster.cohort(round_, 0.5, 7) for round_ in (1, 3)}
    assert [len(users) for users in drawn.values()] == [2, 2]
    asked = [(round_, users, epochs) for round_, _, users, epochs in clients.asked]
    assert asked == [(1, drawn[1], 3), (2, ["cid"], 3), (3, drawn[3], 3)]
    assert [history.record(round_).participants for round_ in (1, 2, 3)] == [drawn[1], ["cid"], drawn[3]]
    history.close()


def test_a_record_has_the_training_seconds_and_the_bytes_that_were_sent():
    _, record = run(lambda users: CohortResult(ones(users[:2]), seconds=0.25))
    assert record.training == 0.25
    assert record.sent == 2 * (4 + 2 * 4 + 3 * 4)  # an item number, a row of two and three dense numbers each


@pytest.mark.parametrize(
    ("setting", "value"), [("fraction", 0), ("fraction", 1.5), ("snapshot_every", 0), ("aggregation", "mode")]
)
def test_a_server_config_refuses_settings_that_make_no_sense(setting, value):
    with pytest.raises(ConfigError, match=f"{setting}.*{value}"):
        ServerConfig(**{setting: value})


def test_updates_of_users_who_were_not_asked_do_not_count():
    asked = updates_of({"a": {0: [2, 2]}, "b": {1: [2, 2]}, "stranger": {2: [2, 2]}})
    answers = aggregator().accept(
        CohortResult(asked, {"stranger": "odd", "b": "said no as well", "c": "time-out"}),
        public_part(),
        ["a", "b", "c"],
    )
    assert list(answers.updates.users) == ["a", "b"]
    assert answers.failures == {"c": "time-out"}


def test_the_optimisers_state_goes_from_round_to_round_and_a_round_without_updates_leaves_it():
    combine = aggregator(ServerConfig(1.0, optimiser=Adam(lr=0.5)))
    state = ServerState(public_part())
    for round_ in (1, 2):
        clients = FakeClients(lambda users: CohortResult(ones(users)))
        state, _ = run_round(round_, state, clients, USERS, combine, epochs=1)
        assert state.moments["steps"].tolist() == [round_]
    assert state.public.items[0].tolist() == pytest.approx(
        [1.0, 1.0]
    )  # two steps of lr each: the updates are all alike
    assert (state.public.items[1:] == 0).all()
    after, _ = run_round(3, state, FakeClients(lambda users: CohortResult(ones([]))), USERS, combine, epochs=1)
    assert after.checksum == state.checksum
