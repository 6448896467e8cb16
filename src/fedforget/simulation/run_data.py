"""The data of a run, without the forgotten users."""

from __future__ import annotations

from pathlib import Path

from fedforget.data import Interactions, load
from fedforget.errors import RunError
from fedforget.server.history import History
from fedforget.server.run_config import read_config


def members_only(path: Path, data: Interactions) -> Interactions:
    """The data of a run's members: forgotten users are left out."""
    config = path / "config.toml"
    values = read_config(config) if config.exists() else {}
    if not values or values.get("data", {}).get("digest") == data.digest:
        return data
    members = set(History.members_in(path / f"trajectory-{values['trajectory']}"))
    return data.only(members) if members and members < set(data.user_ids.tolist()) else data


def load_parts(path: str | Path, folder: str | Path | None = None) -> tuple[Interactions, Interactions]:
    """The training and test parts of a run whose data came from a named set or a file."""
    config = read_config(Path(path) / "config.toml")
    if config.get("engine", "simulation") != "simulation":
        raise RunError(
            f"The devices of {path} are on a network: their data is not here.",
            f"See its state with: fedforget flower status {path}",
        )
    source = config.get("data", {})
    if "name" not in source:
        raise RunError(
            "The run's data was passed in from Python, so it cannot be loaded again.",
            "Open it from Python: Federation.open(path, train).",
        )
    data = load(source["name"], folder=folder, **source.get("options", {}))
    train, test = data.split(source.get("test", 0.2), source.get("split_seed", 0))
    members = members_only(Path(path), train)
    if members.n_users < train.n_users:
        train, test = members, test.only(members.user_ids.tolist())
    if train.digest != source.get("digest"):
        raise RunError(
            f"The data of {source['name']!r} is not what this run was trained on.",
            "Restore the original file, or start a new run in another folder.",
        )
    return train, test
