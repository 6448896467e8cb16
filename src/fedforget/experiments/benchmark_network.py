"""``fedforget bench flower``: cost of a round or an erasure on a network of processes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from flwr.app import RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedforget.data import Interactions
from fedforget.device.host import Host
from fedforget.experiments import machine
from fedforget.flower import messages
from fedforget.flower.testbed.trial import Trial
from fedforget.models import MODELS
from fedforget.protocol.log import Log
from fedforget.protocol.order import ORIGIN, Order
from fedforget.protocol.tasks import Replay, Train
from fedforget.protocol.training import SMALLEST_SUM
from fedforget.server.receipt import Receipt
from fedforget.server.run_config import RunConfig
from fedforget.server.server_config import ServerConfig
from fedforget.server.service import Service, create_federation
from fedforget.server.unlearning import FRU, Method, Retrain, condensed_retrain

Say = Callable[[str], None]


def bench_flower(data: Interactions, models: list[str], devices: int, rounds: int, say: Say) -> dict[str, Any]:
    """Bytes per device and seconds per round of each model, on nodes with one user each."""
    result: dict[str, Any] = {"models": {}, "devices": devices, "rounds": rounds, "machine": machine.describe()}
    for name in models:
        say(f"{name}: messages")
        row = bench_messages(data, name)
        say(f"{name}: {rounds} rounds on {devices} nodes, then forgetting one user")
        trained, erasures = erase(data, name, devices, rounds, {"fru": FRU()}, lambda line: None)
        receipt, replayed = erasures["fru"]
        result["models"][name] = row | {
            "first_round_seconds": trained[0],
            "round_seconds": median(trained[1:]),
            "replay_seconds": median(replayed),
            "erasure_seconds": receipt.seconds,
        }
    return result


def bench_messages(data: Interactions, model: str, users: int = 20) -> dict[str, float]:
    """Mean bytes to and from a device with one user, in training and in replays for both calibrations."""
    train, _ = data.split(test=0.2)
    places = np.linspace(0, train.n_users - 1, min(users, train.n_users)).astype(int)
    config = RunConfig(model=MODELS.build(model), log=Log("float32"), engine="flower")
    sizes: dict[str, list[int]] = {"down": [], "up": [], "replay_up": [], "replay_stored_up": []}
    with TemporaryDirectory(prefix="fedforget-bench-") as folder:
        invitation = create_federation(Path(folder) / "run", config, train.item_ids.tolist())
        public, training = config.model.init_public(train.n_items, config.seed), Train(config.training.epochs)
        host, sent = Host(Path(folder) / "device"), (public.items, public.dense)
        for user in train.user_ids[places].tolist():
            host.enrol(invitation.terms, user, invitation.positions(train.item_ids_of(user)))
            order = Order(invitation.terms.federation, 1, ORIGIN, ORIGIN[0][0], 1, (user,), (0,), (0,))
            sizes["down"].append(weight(messages.pack_order(order, training, public)))
            sizes["up"].append(weight(messages.pack_results(host.run(training, order, sent))))
            again = replace(order, number=2, lineage=(*ORIGIN, ("again", 0)), served=(1,))
            short = Replay(2, parts="rows")
            sizes["replay_up"].append(weight(messages.pack_results(host.run(short, again, sent))))
            again, whole = replace(again, number=3), replace(short, parts="none", stored=True)
            sizes["replay_stored_up"].append(weight(messages.pack_results(host.run(whole, again, sent))))
    return {name: mean(values) for name, values in sizes.items()}


def weight(content: RecordDict) -> int:
    """The bytes of a message as Flower sends it."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(content).values())


def bench_erasure(data: Interactions, model: str, devices: int, rounds: int, say: Say) -> dict[str, Any]:
    """Seconds and communication rounds of forgetting a user by FRU, condensed Retrain and Retrain."""
    bench_messages(data, model, users=2)  # compiles
    condensed = condensed_retrain(MODELS.build(model))
    methods: dict[str, Method] = {"fru": FRU(), "retrain-condensed": condensed, "retrain": Retrain()}
    _, erasures = erase(data, model, devices, rounds, methods, say)
    rows = {
        name: {
            "seconds": receipt.seconds,
            "rounds": receipt.communication_rounds,
            "coverage": receipt.coverage,
            "speedup": erasures["retrain"][0].seconds / receipt.seconds,
        }
        for name, (receipt, _) in erasures.items()
    }
    return {"erasure": rows, "model": model, "devices": devices, "rounds": rounds, "machine": machine.describe()}


def erase(
    data: Interactions,
    model: str,
    devices: int,
    rounds: int,
    methods: Mapping[str, Method],
    say: Say,
    *,
    secure: bool = False,
    users: int | None = None,
) -> tuple[list[float], dict[str, tuple[Receipt, list[float]]]]:
    """Train one federation on a network, and forget one user after another, each by another method.

    Returns the seconds of the rounds, and for each method its receipt and the seconds of the rounds after it. There is
    one user for each node and one to forget for each method; all of them take part in every round.
    """
    train, test = data.only(data.user_ids[: users or devices + len(methods)].tolist()).split(test=0.2)
    server = ServerConfig(fraction=1.0, secure=secure, minimum=SMALLEST_SUM)
    config = RunConfig(model=MODELS.build(model), server=server, engine="flower")
    with (
        TemporaryDirectory(prefix="fedforget-bench-") as folder,
        Trial(Path(folder), config, train, test, devices) as trial,
    ):
        say(f"{model}: {rounds} rounds on {devices} nodes")
        trial.serve(rounds)
        trained, _ = _measured(trial.run, rounds)
        erasures = {}
        for (name, method), user in zip(methods.items(), reversed(train.user_ids.tolist()), strict=False):
            say(f"{model}: forgetting a user by {name}")
            request = trial.forget([user], method)
            trial.serve(rounds)
            seconds, receipts = _measured(trial.run, rounds)
            erasures[name] = receipts[request.id], seconds
    return trained, erasures


def _measured(run: Path, rounds: int) -> tuple[list[float], dict[str, Receipt]]:
    """The seconds of each round, and the receipts by request."""
    with closing(Service(run, lambda *_: None)) as service:  # type: ignore[arg-type]
        seconds = [service.history.record(round_).seconds for round_ in range(1, rounds + 1)]
        return seconds, {receipt.request: receipt for receipt in service.receipts()}
