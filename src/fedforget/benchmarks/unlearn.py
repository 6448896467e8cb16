"""``fedforget bench unlearn``: every way to forget malicious users, side by side in one run, for each model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedforget.benchmarks import machine
from fedforget.data import Interactions
from fedforget.device.training import LocalTraining
from fedforget.errors import ConfigError
from fedforget.experiments.recovery import Recovery
from fedforget.experiments.ways import WAYS, chosen_ways
from fedforget.models import build_model

Say = Callable[[str], None]


def bench_unlearn(
    data: Interactions,
    models: Sequence[str],
    *,
    rounds: int = 200,
    malicious: float = 0.2,
    gamma: float = 4.0,
    seed: int = 0,
    ways: Sequence[str] = tuple(WAYS),
    repeats: int = 1,
    training: LocalTraining | None = None,
    preset: str = "default",
    work: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Train each model under attack, forget the malicious users in every way, and collect what each cost and reached.

    Logs and snapshots are on disk, in a temporary folder inside ``work``: for NCF with whole updates on MovieLens-100k
    some 20 GB at 200 rounds. Everything is warm before it is timed.
    """
    chosen = chosen_ways(ways)
    if work is not None and not work.is_dir():
        raise ConfigError(
            f"The work folder {work} is not there.", "Make it first, or leave it out for a temporary one."
        )
    train, test = data.split(test=0.2, seed=seed)
    settings = {
        "preset": preset,
        "rounds": rounds,
        "malicious": malicious,
        "gamma": gamma,
        "seed": seed,
        "repeats": repeats,
    }
    result: dict[str, Any] = {"models": {}, "settings": settings, "machine": machine.describe()}
    for name in models:
        with TemporaryDirectory(prefix="fedforget-bench-", dir=work) as folder:
            recovery = Recovery(
                train, test, build_model(name), folder,
                rounds=rounds, malicious=malicious, gamma=gamma, seed=seed, ways=chosen, training=training,
                preset=preset,
            )  # fmt: skip
            say(f"{name}: warming up, then {rounds} rounds with {len(recovery.malicious)} malicious users")
            recovery.warm_up()
            recovery.fit()
            outcomes = recovery.compare(repeats=repeats, say=lambda label: say(f"{name}: {label}"))  # noqa: B023
            recovery.close()
        result["models"][name] = {"methods": {way: outcome.to_dict() for way, outcome in outcomes.items()}}
    return result
