"""The attack: -γ·M + μ from malicious users, and from nobody else, in a way that can be repeated."""

from __future__ import annotations

import numpy as np
import pytest

import fedforget as ff
from fedforget.models import GlobalParameters, Layout
from fedforget.protocol.attack import Attack
from fedforget.protocol.tasks import Recall, Replay, Train
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.server.run_config import RunConfig
from fedforget.simulation.poisoned import PoisonedClients

LAYOUT = Layout({"w": (50, 40), "b": (1500,)})
N_ITEMS, DIM = 1000, 2
PUBLIC = GlobalParameters(np.zeros((N_ITEMS, DIM), np.float32), np.zeros(LAYOUT.size, np.float32), LAYOUT)


class Honest:
    """Clients who always send the same update, and what else they were told."""

    def __init__(self, empty: bool = False) -> None:
        self.told: list[object] = []
        self.n_rows = 0 if empty else N_ITEMS

    def updates(self, users: list) -> Updates:
        rows, dense = [], []
        for user in users:
            rng = np.random.default_rng(len(str(user)) + ord(str(user)[0]))
            rows.append(rng.normal(3, 0.5, size=(self.n_rows, DIM)))
            dense.append(np.concatenate([rng.normal(-1, 0.1, 2000), rng.normal(0, 2, 1500)]))
        n = len(users)
        return Updates(
            list(users), np.arange(n + 1) * self.n_rows, np.tile(np.arange(self.n_rows, dtype=np.int32), n),
            np.array(rows, np.float32).reshape(-1, DIM), np.array(dense, np.float32).reshape(n, LAYOUT.size),
            np.full(n, 9), np.full(n, 0.5, np.float32),
        )  # fmt: skip

    def run(self, task, asked, public=None) -> dict[int, CohortResult]:
        return {round_: self.result(task, users) for round_, users in asked.items()}

    def result(self, task, users) -> CohortResult:
        match task:
            case Train():
                return CohortResult(self.updates(users), {"late": "away"}, seconds=0.25)
            case Replay():
                return CohortResult(self.updates(users), stored=self.updates(users))
        return CohortResult(self.updates(users))

    def apply_factors(self, round_, factors) -> None:
        self.told.append(("factors", round_, factors))


def poisoned_by(malicious: list, honest: Honest | None = None, gamma: float = 4.0, seed: int = 0) -> PoisonedClients:
    return PoisonedClients(honest or Honest(), Attack(malicious, gamma), seed, PUBLIC.layout)


def poison(users: list, malicious: list, gamma: float = 4.0, seed: int = 0, round_: int = 1) -> Updates:
    clients = poisoned_by(malicious, gamma=gamma, seed=seed)
    return clients.run(Train(1), {round_: users}, PUBLIC)[round_].updates


def tensors(updates: Updates, place: int) -> list[np.ndarray]:
    """A client's item rows and other tensors, each as one vector of float64."""
    rows = updates.rows[updates.ptr[place] : updates.ptr[place + 1]].reshape(-1)
    parts = [rows, *LAYOUT.views(updates.dense[place]).values()]
    return [part.reshape(-1).astype(np.float64) for part in parts]


def gamma_of(sent: np.ndarray, true: np.ndarray) -> float:
    """The factor that was used, up to the noise."""
    return -float(np.cov(sent, true)[0, 1] / true.var(ddof=1))


def test_what_is_sent_is_the_update_flipped_and_noise_of_its_own_mean_and_spread():
    sent, true = poison(["eve"], ["eve"]), Honest().updates(["eve"])
    gammas = []
    for found, update in zip(tensors(sent, 0), tensors(true, 0), strict=True):
        gammas.append(gamma_of(found, update))
        noise = found + gammas[0] * update
        assert noise.mean() == pytest.approx(update.mean(), abs=4 * update.std() / np.sqrt(update.size) + 0.1)
        assert noise.std() == pytest.approx(update.std(), rel=0.1)
        assert abs(np.corrcoef(noise[::2], noise[1::2])[0, 1]) < 0.1
    assert 0 < gammas[0] < 4
    assert gammas == pytest.approx([gammas[0]] * 3, abs=0.12)  # one γ for all tensors of a client


def test_gamma_is_drawn_anew_for_every_client_and_round_between_nothing_and_its_largest():
    users = ["ann", "bob", "cid", "dee"]
    true = [tensors(Honest().updates(users), place)[0] for place in range(4)]
    gammas = np.array(
        [
            [gamma_of(tensors(sent, place)[0], true[place]) for place in range(4)]
            for sent in (poison(users, users, gamma=2.0, round_=round_) for round_ in range(100))
        ]
    )
    assert gammas.min() > -0.1
    assert gammas.max() < 2.1
    assert gammas.mean() == pytest.approx(1, abs=0.1)
    assert gammas.std() == pytest.approx(2 / np.sqrt(12), abs=0.06)
    assert abs(np.corrcoef(gammas.T) - np.eye(4)).max() < 0.35


def test_honest_users_send_the_same_bits_as_without_an_attack():
    users = ["ann", "eve", "bob"]
    sent, true = poison(users, ["eve"]), Honest().updates(users)
    for place in (0, 2):
        for found, update in zip(tensors(sent, place), tensors(true, place), strict=True):
            np.testing.assert_array_equal(found, update)
    for found, update in zip(tensors(sent, 1), tensors(true, 1), strict=True):
        assert not (found == update).any()
    for field in ("users", "ptr", "items", "sizes", "losses"):
        np.testing.assert_array_equal(getattr(sent, field), getattr(true, field))


def test_the_poison_belongs_to_seed_round_and_user_and_to_nothing_else():
    alone = tensors(poison(["eve"], ["eve"]), 0)
    together = tensors(poison(["ann", "mal", "eve"], ["eve", "mal"]), 2)
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    for change in ({"seed": 1}, {"round_": 2}):
        assert not (tensors(poison(["eve"], ["eve"], **change), 0)[0] == alone[0]).any()


def test_nothing_is_changed_in_place_and_the_rest_of_an_answer_stays():
    honest = Honest()
    before = honest.updates(["eve"])
    honest.updates = lambda users: before  # type: ignore[method-assign]
    rows = before.rows.copy()
    answers = poisoned_by(["eve"], honest).run(Train(1), {1: ["eve"]}, PUBLIC)[1]
    np.testing.assert_array_equal(before.rows, rows)
    assert answers.failures == {"late": "away"}
    assert answers.seconds == 0.25


def test_in_a_replay_the_fresh_update_is_poisoned_and_the_stored_one_is_not():
    answers = poisoned_by(["eve"]).run(Replay(1), {1: ["eve"]}, PUBLIC)[1]
    true = Honest().updates(["eve"])
    assert not (answers.updates.rows == true.rows).any()
    np.testing.assert_array_equal(answers.stored.rows, true.rows)


def test_all_else_is_passed_on():
    honest = Honest()
    poisoned = poisoned_by(["eve"], honest)
    poisoned.apply_factors(3, None)
    assert honest.told == [("factors", 3, None)]
    recalled = poisoned.run(Recall(), {1: ["eve"]})[1].updates
    np.testing.assert_array_equal(recalled.rows, honest.updates(["eve"]).rows)
    np.testing.assert_array_equal(recalled.dense, honest.updates(["eve"]).dense)


def test_an_update_without_rows_is_poisoned_where_there_is_something():
    sent = poisoned_by(["eve"], Honest(empty=True)).run(Train(1), {1: ["eve"]}, PUBLIC)[1].updates
    assert sent.rows.shape == (0, DIM)
    assert np.isfinite(sent.dense).all()
    assert not (sent.dense == Honest(empty=True).updates(["eve"]).dense).any()


class TestWho:
    """Which users are malicious."""

    users = tuple(f"u{number}" for number in range(50))

    @pytest.mark.parametrize(("share", "n"), [(0.2, 10), (0.1, 5), (0.001, 1), (0.99, 50)])
    def test_a_share_of_the_users_at_least_one(self, share, n):
        attack = Attack.by(self.users, share)
        assert len(attack.users) == len(set(attack.users)) == n
        assert set(attack.users) <= set(self.users)

    def test_the_draw_is_the_same_again_in_any_order_and_another_with_another_seed(self):
        first = Attack.by(self.users, 0.2, gamma=2)
        assert first == Attack.by(self.users, 0.2, gamma=2)
        assert set(first.users) == set(Attack.by(self.users[::-1], 0.2).users)
        assert set(first.users) != set(Attack.by(self.users, 0.2, seed=1).users)
        assert set(Attack.by(self.users, 0.1).users) < set(first.users)
        assert first.gamma == 2

    def test_those_who_are_left_when_some_are_forgotten(self):
        attack = Attack(["a", "b", 3], 2.5)
        assert attack.without(["b", "z"]) == Attack(["a", 3], 2.5)
        assert attack.without([]) == attack
        assert attack.without(["a", "b", 3]) is None

    def test_ids_as_they_come_out_of_an_array_can_be_written_down(self, board, tmp_path):
        attack = Attack.by(board.user_ids, 0.2)
        assert all(type(user) is int for user in attack.users)
        RunConfig(model=ff.MF(), attack=attack).save(tmp_path / "config.toml")
        assert RunConfig.load(tmp_path / "config.toml").attack == attack

    @pytest.mark.parametrize("share", [0, 1, -0.1, 1.5])
    def test_a_senseless_share_is_refused(self, share):
        with pytest.raises(ff.ConfigError, match=f"share of malicious users is {share}"):
            Attack.by(self.users, share)

    def test_nobody_and_no_strength_are_refused(self):
        with pytest.raises(ff.ConfigError, match="no users"):
            Attack([])
        for gamma in (0, -1, float("nan")):
            with pytest.raises(ff.ConfigError, match="gamma is"):
                Attack(["a"], gamma)


def test_an_attacked_federation_differs_only_in_what_malicious_users_send(board):
    settings = {"training": ff.LocalTraining(epochs=2, batch=16), "server": ff.ServerConfig(fraction=0.3)}
    attack = Attack.by(board.user_ids.tolist(), 0.2)
    clean = ff.Federation(board, ff.MF(dim=8), **settings)
    attacked = ff.Federation(board, ff.MF(dim=8), attack=attack, **settings)
    users = board.user_ids.tolist()
    one, other = (fed.clients().run(Train(2), {1: users}, fed.public)[1].updates for fed in (clean, attacked))
    same = [
        np.array_equal(*(made.rows[made.ptr[place] : made.ptr[place + 1]] for made in (one, other)))
        for place in range(len(users))
    ]
    assert {user for user, equal in zip(users, same, strict=True) if not equal} == set(attack.users)
    for user in users:  # the poison is on the way out: what stays on a device is its own
        np.testing.assert_array_equal(clean.devices.private(user), attacked.devices.private(user))
