"""``fedforget audit server``: how much a curious server learns of users' items, with plain and with secure updates."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedforget.data import Interactions
from fedforget.device.devices import Devices
from fedforget.errors import ConfigError
from fedforget.evaluation.server_attacks import Scores
from fedforget.experiments import machine
from fedforget.experiments.server_view import Found, ServerView, by_attack, found, mean_of
from fedforget.models import GlobalParameters
from fedforget.protocol.factors import Factors
from fedforget.protocol.tasks import Asked, Task, Train
from fedforget.protocol.updates import CohortResult, Updates
from fedforget.runtime import randomness
from fedforget.runtime.randomness import UserId
from fedforget.server.clients import Clients
from fedforget.server.run_config import RunConfig
from fedforget.simulation.federation import Federation

Say = Callable[[str], None]
#: Numbers of devices in the sums that are attacked, and sums of each.
SUMS = {10: 20, 100: 5, 1000: 1}


@dataclass(frozen=True)
class WatchedClients:
    """Clients whose updates are shown to somebody before the server gets them."""

    clients: Clients
    show: Callable[[int, Updates], None]

    def run(self, task: Task, asked: Asked, public: GlobalParameters | None = None) -> Mapping[int, CohortResult]:
        results = self.clients.run(task, asked, public)
        for round_, result in results.items():
            self.show(round_, result.updates)
        return results

    def apply_factors(self, round_: int, factors: Factors) -> None:
        self.clients.apply_factors(round_, factors)


class WatchedFederation(Federation):
    """A federation whose updates are shown to somebody."""

    def __init__(self, train: Interactions, config: RunConfig, show: Callable[[int, Updates], None]) -> None:
        self.show = show
        super().__init__(train, config)

    def _reached(self, devices: Devices) -> Clients:
        return WatchedClients(super()._reached(devices), self.show)


def audit_server(
    data: Interactions, config: RunConfig, rounds: int, num_users: int, say: Say = lambda line: None
) -> dict[str, Any]:
    """Train with plain updates, and attack what the server receives then, and what it would receive in secure mode.

    ``num_users`` random users are attacked. On real devices draws are keyed by a secret; here each user takes part
    under a random name, so that the keys cannot be computed from the seed and the id.
    """
    config = replace(config, server=replace(config.server, secure=False), joins={}, attack=None)
    names: list[UserId] = [secrets.token_hex(16) for _ in range(data.n_users)]
    hidden = Interactions(np.array(names), np.arange(data.n_items), data.indptr, data.indices)
    rng = np.random.default_rng(config.seed)
    audited = rng.choice(data.n_users, min(num_users, data.n_users), replace=False)
    guesses = {names[place]: randomness.user_key(data.user_ids.tolist()[place]) for place in audited}
    items_of = {names[place]: data.items_of(place) for place in audited}
    view = ServerView(config, data.n_items, items_of, guesses)
    with closing(WatchedFederation(hidden, config, view.take)) as fed:

        def tell(record: Any) -> None:
            if record.round % 10 == 0:
                say(f"round {record.round} of {rounds}")

        fed.fit(rounds=rounds, on_round=tell)
        say("sums")
        sums = {str(size): _sums(fed, view, size, number, rng) for size, number in SUMS.items()}
    if not view.erasure:
        raise ConfigError(
            f"None of the {num_users} users who are attacked took part in {rounds} rounds.",
            "Give more --rounds or --num-users.",
        )
    covered, bare = zip(*view.erasure.values(), strict=True)
    of_own, of_other = view.sums_over_rounds()
    cohort = round(float(np.mean([len(each) for each in view.cohorts])))
    return {
        "model": config.model.name,
        "rounds": rounds,
        "users": len(view.erasure),
        "plain": {
            "one_round": by_attack(view.plain, lambda each: each.newest),
            "all_rounds": by_attack(view.plain, lambda each: each.over_all_rounds()),
        },
        "secure": {
            "one_round": by_attack(view.secure, lambda each: each.newest),
            "all_rounds": by_attack(view.secure, lambda each: each.over_all_rounds()),
            "sum": {
                **sums,
                "all_rounds": {"devices": cohort, **mean_of(of_own), "of_another_user": mean_of(of_other)},
            },
            "erasure": {**mean_of(covered), "without_cover": mean_of(bare), "minimum": config.server.minimum},
        },
        "machine": machine.describe(),
    }


def _sums(fed: Federation, view: ServerView, size: int, number: int, rng: np.random.Generator) -> dict[str, Any] | None:
    """What the sum over so many devices tells of each, and for comparison of users who are not in it.

    None if there are not as many users. A sum of sent rows tells how many devices sent each item.
    """
    if size > len(fed.members):
        return None
    inside: list[Found] = []
    outside: list[Found] = []
    audited = list(view.plain)
    for _ in range(number):
        some = rng.choice(audited, min(10, len(audited), size), replace=False).tolist()
        others = [user for user in fed.members if user not in set(some)]
        cohort = set(some) | set(rng.choice(others, size - len(some), replace=False).tolist())
        members = [user for user in fed.members if user in cohort]
        scores = _sum(fed, members, view.n_items)
        inside += [found(scores, view.plain[user].own) for user in some]
        strangers = [user for user in audited if user not in cohort][: len(some)]
        outside += [found(scores, view.plain[user].own) for user in strangers]
    return {**mean_of(inside), "of_another_user": mean_of(outside)}


def _sum(fed: Federation, users: list[UserId], n_items: int) -> Scores:
    """The number of devices that send each item, were these users asked in the next round."""
    task = Train(fed.config.training.epochs)
    updates: Updates = fed.devices.run(task, {fed.rounds + 1: users}, fed.public)[fed.rounds + 1].updates
    counts: NDArray[np.int64] = np.bincount(updates.items, minlength=n_items)
    return counts.astype(np.float64)
