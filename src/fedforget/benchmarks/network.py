"""``fedforget bench flower``: what a round, or an erasure, costs on a real network of processes on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from flwr.app import RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedforget.benchmarks import machine
from fedforget.data import Interactions
from fedforget.device.host import Host
from fedforget.device.log.settings import Log
from fedforget.engines.flower import messages
from fedforget.engines.flower.trial import Trial
from fedforget.invitation import Invitation
from fedforget.models import build_model
from fedforget.orders import ORIGIN, Order
from fedforget.randomness import UserId
from fedforget.replay import Replay
from fedforget.server.rounds import Protocol
from fedforget.server.unlearning import FRU, Method, Retrain, condensed_retrain
from fedforget.service import Service, found
from fedforget.settings import Settings

Say = Callable[[str], None]


def weight(content: RecordDict) -> int:
    """The bytes of a message's objects as Flower sends them."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(content).values())


def bench_messages(data: Interactions, model: str, users: int = 20, seed: int = 0) -> dict[str, float]:
    """The mean bytes to and from a device with one user: in training, and replaying for either calibration."""
    train, _ = data.split(test=0.2, seed=seed)
    places = np.linspace(0, train.n_users - 1, min(users, train.n_users)).astype(int)
    chosen: list[UserId] = train.user_ids[places].tolist()
    settings = Settings(build_model(model), log=Log("float32"), seed=seed, engine="flower")
    down, up, replayed, stored = [], [], [], []
    with TemporaryDirectory(prefix="fedforget-bench-") as folder:
        invitation = found(Path(folder) / "run", settings, train.item_ids.tolist())
        public = settings.model.init_public(train.n_items, seed)
        host, sent = Host(Path(folder) / "device"), (public.items, public.dense)
        epochs = settings.training.epochs
        for user in chosen:
            host.enrol(invitation.terms, user, invitation.places(train, user))
            order = _order(invitation, user)
            down.append(weight(messages.pack_order(order, {"epochs": epochs}, public)))
            up.append(weight(messages.pack_answers({1: host.train(order, sent, epochs)})))
            again = replace(order, number=2, lineage=(*ORIGIN, ("again", 0)), served=(1,))
            short = Replay(2, parts="rows")
            replayed.append(weight(messages.pack_answers(host.replay(again, sent, short))))
            whole = replace(short, parts=None, stored=True)
            stored.append(weight(messages.pack_answers(host.replay(replace(again, number=3), sent, whole))))
    return {"down": mean(down), "up": mean(up), "replay_up": mean(replayed), "replay_stored_up": mean(stored)}


def _order(invitation: Invitation, user: UserId) -> Order:
    return Order(invitation.terms.federation, 1, ORIGIN, ORIGIN[0][0], 1, (user,), (0,), (0,))


def bench_rounds(
    data: Interactions, model: str, folder: Path, *, devices: int = 3, rounds: int = 5, seed: int = 0
) -> dict[str, float]:
    """The median seconds of a round, and of one gone through again, with every user asked in every round."""
    few = data.only(data.user_ids[: devices + 1].tolist())
    train, test = few.split(test=0.2, seed=seed)
    settings = Settings(build_model(model), protocol=Protocol(fraction=1.0), seed=seed, engine="flower")
    with Trial(folder, settings, train, test, devices) as trial:
        trial.serve(rounds)
        trained = _seconds(trial.run, rounds)
        request = trial.forget(train.user_ids[-1:].tolist(), FRU())
        trial.serve(rounds)
        again = _seconds(trial.run, rounds)
    with closing(Service(trial.run, lambda *_: None)) as service:  # type: ignore[arg-type]
        receipt = next(found for found in service.receipts() if found.request == request.id)
    return {
        "first_round_seconds": trained[0],
        "round_seconds": median(trained[1:]),
        "replay_seconds": median(again),
        "erasure_seconds": receipt.seconds,
    }


def bench_erasure(
    data: Interactions, model: str = "lightgcn", *, devices: int = 3, rounds: int = 40, seed: int = 0, say: Say = print
) -> dict[str, Any]:
    """Seconds and communication rounds of forgetting one user of round 1 by FRU, condensed Retrain and Retrain.

    One federation forgets three users, one after another, so that everything runs beside the same processes. Every
    user takes part in every round. What devices compute is compiled before anything is timed.
    """
    built = build_model(model)
    bench_messages(data, model, users=2, seed=seed)
    methods: dict[str, Method] = {"fru": FRU(), "retrain-condensed": condensed_retrain(built), "retrain": Retrain()}
    few = data.only(data.user_ids[: devices + len(methods)].tolist())
    train, test = few.split(test=0.2, seed=seed)
    settings = Settings(built, protocol=Protocol(fraction=1.0), seed=seed, engine="flower")
    result: dict[str, Any] = {}
    with TemporaryDirectory(prefix="fedforget-bench-") as folder:
        with Trial(Path(folder), settings, train, test, devices) as trial:
            say(f"{model}: {rounds} rounds on {devices} nodes")
            trial.serve(rounds)
            requests = {}
            for (name, method), user in zip(methods.items(), reversed(train.user_ids.tolist()), strict=False):
                say(f"{model}: forgetting a user by {name}")
                requests[name] = trial.forget([user], method)
                trial.serve(rounds)
        with closing(Service(trial.run, lambda *_: None)) as service:  # type: ignore[arg-type]
            receipts = {receipt.request: receipt for receipt in service.receipts()}
    for name, request in requests.items():
        receipt = receipts[request.id]
        result[name] = {
            "seconds": receipt.seconds, "rounds": receipt.communication_rounds, "coverage": receipt.coverage
        }  # fmt: skip
    for row in result.values():
        row["speedup"] = result["retrain"]["seconds"] / row["seconds"]
    return {
        "erasure": result, "model": model, "devices": devices, "rounds": rounds, "machine": machine.describe()
    }  # fmt: skip


def _seconds(run: Path, rounds: int) -> list[float]:
    with closing(Service(run, lambda *_: None)) as service:  # type: ignore[arg-type]
        return [service.history.record(round_).seconds for round_ in range(1, rounds + 1)]


def bench_flower(
    data: Interactions, models: list[str], *, devices: int = 3, rounds: int = 5, seed: int = 0, say: Say = print
) -> dict[str, Any]:
    """For each model: bytes a device and seconds a round."""
    result: dict[str, Any] = {"models": {}, "devices": devices, "rounds": rounds, "machine": machine.describe()}
    for name in models:
        say(f"{name}: messages")
        row = bench_messages(data, name, seed=seed)
        say(f"{name}: {rounds} rounds on {devices} nodes, and all of them again without one user")
        with TemporaryDirectory(prefix="fedforget-bench-") as folder:
            row |= bench_rounds(data, name, Path(folder), devices=devices, rounds=rounds, seed=seed)
        result["models"][name] = row
    return result
