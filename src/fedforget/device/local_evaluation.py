"""Evaluation on a device. Only the number of users and the sums of their metrics are sent."""

from __future__ import annotations

from fedforget.data import Interactions
from fedforget.device.devices import Devices
from fedforget.evaluation import Ranking, evaluate
from fedforget.models import GlobalParameters
from fedforget.protocol.metrics import FULL, SAMPLED


def evaluate_locally(devices: Devices, test: Interactions, public: GlobalParameters) -> tuple[int, dict[str, float]]:
    """The number of users with test items, and the sums of their metrics."""
    if not len(test):
        return no_users()
    n_items = public.items.shape[0]  # those whose items were added since are not scored yet
    train, test = devices.interactions.up_to(n_items), test.up_to(n_items)
    result = evaluate(devices.scorer(public), train, test, Ranking(), devices.workers)
    count = int(result.users.size)
    sums = {f"sampled_{name}": count * value for name, value in result.sampled.items()}
    return count, sums | {f"full_{name}": count * value for name, value in result.full.items()}


def no_users() -> tuple[int, dict[str, float]]:
    """The result without any users."""
    return 0, dict.fromkeys([*(f"sampled_{name}" for name in SAMPLED), *(f"full_{name}" for name in FULL)], 0.0)
