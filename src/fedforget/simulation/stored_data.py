"""StoredData: the interactions of simulated devices, in the trajectory's folder.

    items.json            item ids at the start, in the order of the item table
    NNNNNN.safetensors    interactions: user and item (positions in the lists of ids in the metadata), test (1: held out
                          for evaluation), since (round from which it counts). 000000 are the interactions at the
                          start; each addition has a file of its own

A run carries out erasures with its own copy, whatever happens to the file that the data came from.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedforget.data import Interactions
from fedforget.data.ids import Id
from fedforget.errors import RunError, RunWarning
from fedforget.runtime.files import link_file, make_folder, refused, write_file
from fedforget.runtime.ragged import offsets
from fedforget.server.config_file import read_config
from fedforget.server.history import History
from fedforget.server.request import ItemsOf

ITEMS = "items.json"
#: Columns of interactions: users, items, whether they are held out, rounds from which they count.
Rows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int32]]


def stored_parts(path: Path) -> tuple[Interactions, Interactions] | None:
    """The training and test data of a run folder; None if it has none yet."""
    if not (path / "config.toml").exists():
        return None
    config = read_config(path / "config.toml")
    if config.get("engine", "simulation") != "simulation":
        raise RunError(
            f"The devices of {path} are on a network: their data is not here.",
            f"See how far it is with: fedforget flower status {path}",
        )
    folder = path / f"trajectory-{config['trajectory']}"
    data = StoredData(folder / "devices" / "data")
    return data.load(*History.extensions(folder)) if data.exists else None


class StoredData:
    """The interactions in a folder; without a folder nothing is stored."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @property
    def exists(self) -> bool:
        """Whether there are interactions."""
        return self.folder is not None and self._path(0).exists()

    def create(self, train: Interactions, test: Interactions | None) -> None:
        """Store the interactions at the start."""
        if self.folder is None:
            return
        make_folder(self.folder)
        write_file(self.folder / ITEMS, json.dumps(train.item_ids.tolist()).encode())
        self.add(0, train, test)

    def add(self, number: int, train: Interactions, test: Interactions | None = None, since: int = 0) -> None:
        """Store an addition; it counts once the history has recorded it."""
        if self.folder is None:
            return
        parts = [(train, False), *([] if test is None else [(test, True)])]
        pairs = [data.pairs() for data, _ in parts]
        rounds = [np.zeros(len(data), np.int32) if data.since is None else data.since for data, _ in parts]
        rows = (
            np.concatenate([users for users, _ in pairs]),
            np.concatenate([items.astype(np.int64) for _, items in pairs]),
            np.concatenate([np.full(len(data), held_out) for data, held_out in parts]),
            np.maximum(np.concatenate(rounds), np.int32(since)),
        )
        _write(self._path(number), train.user_ids.tolist(), train.item_ids.tolist(), rows)

    def load(self, additions: int, added_items: Sequence[Id]) -> tuple[Interactions, Interactions]:
        """The training and test interactions after a number of additions."""
        assert self.folder is not None
        items = [*_load_items(self.folder / ITEMS), *added_items]
        item_place = {item: place for place, item in enumerate(items)}
        user_place: dict[Id, int] = {}
        parts: list[Rows] = []
        for number in range(additions + 1):
            user_ids, item_ids, (users, item, test, since) = _read(self._path(number))
            try:
                item = np.array([item_place[id_] for id_ in item_ids], np.int64)[item]
            except KeyError as error:
                raise RunError(
                    f"{self._path(number)} has an unknown item {error}.", "Restore it from a copy."
                ) from None
            places = np.array([user_place.setdefault(id_, len(user_place)) for id_ in user_ids], np.int64)
            parts.append((places[users], item, test, since))
        users, item, test, since = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((item, users))
        rows = (users[order], item[order], test[order], since[order])
        ids = _ids(list(user_place)), _ids(items)
        return _interactions(rows, False, *ids), _interactions(rows, True, *ids)

    def branch(self, folder: Path | None, without: Collection[Id], items: ItemsOf, additions: int) -> StoredData:
        """A copy without some users, and without some items of others; files without any of them are linked."""
        other = StoredData(folder)
        if self.folder is None or folder is None:
            return other
        make_folder(folder)
        link_file(self.folder / ITEMS, folder / ITEMS)
        forgotten = set(without)
        for number in range(additions + 1):
            user_ids, item_ids, rows = _read(self._path(number))
            keep = np.array([user not in forgotten for user in user_ids], bool)
            kept, place = keep[rows[0]], np.cumsum(keep) - 1
            for index, user in enumerate(user_ids):
                if user in items:
                    erased = set(items[user])
                    unwanted = np.isin(rows[1], [at for at, item in enumerate(item_ids) if item in erased])
                    kept &= ~(unwanted & (rows[0] == index))
            if kept.all() and keep.all():
                link_file(self._path(number), other._path(number))
                continue
            users, item, test, since = (column[kept] for column in rows)
            _write(
                other._path(number),
                [user for user in user_ids if user not in forgotten],
                item_ids,
                (place[users], item, test, since),
            )
        return other

    def _path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:06d}.safetensors"


def report_difference(path: Path | None, given: Interactions, unknown: Interactions) -> None:
    """Report interactions that were passed in and are not in the run: an error if most are not, else a warning."""
    if len(unknown) > len(given) / 2:
        raise RunError(
            f"{path} holds a run with other data: {len(unknown):,} of the {len(given):,} interactions are not in it.",
            "Use another folder for a new run, or Federation.open(path) to continue this one.",
        )
    if len(unknown):
        warnings.warn(
            f"{len(unknown):,} interactions of the data are not in {path} and are not used. "
            "Add them: fed.add(data), or fedforget data add RUN FILE.",
            RunWarning,
            stacklevel=4,
        )


def _interactions(rows: Rows, held_out: bool, user_ids: NDArray[Any], item_ids: NDArray[Any]) -> Interactions:
    users, items, _, since = (column[rows[2] == held_out] for column in rows)
    counts = np.bincount(users, minlength=user_ids.size)
    return Interactions(
        user_ids, item_ids, offsets(counts), items.astype(np.int32), since=since if since.any() else None
    )


def _ids(values: Sequence[Id]) -> NDArray[Any]:
    if values and isinstance(values[0], str):
        ids = np.empty(len(values), object)
        ids[:] = values
        return ids
    return np.array(values, np.int64)


def _write(path: Path, user_ids: Sequence[Id], item_ids: Sequence[Id], rows: Rows) -> None:
    users, items, test, since = rows
    used, items = np.unique(items, return_inverse=True)  # an erased item must not stay in the list of ids
    item_ids = [item_ids[place] for place in used.tolist()]
    columns = {"user": users, "item": items.astype(np.int32), "test": test.astype(np.uint8), "since": since}
    arrays: dict[str, NDArray[Any]] = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    metadata = {"users": json.dumps(list(user_ids)), "items": json.dumps(list(item_ids))}
    write_file(path, save(arrays, {**metadata, "crc": str(_crc(arrays.values(), metadata))}))


def _read(path: Path) -> tuple[list[Id], list[Id], Rows]:
    try:
        with safe_open(path, framework="np") as file:
            users, items, test, since = (file.get_tensor(name) for name in ("user", "item", "test", "since"))
            metadata = file.metadata()
        if "crc" in metadata and metadata["crc"] != str(_crc((users, items, test, since), metadata)):
            raise ValueError("its content does not match its checksum")
        ids = json.loads(metadata["users"]), json.loads(metadata["items"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise refused(path, error) or RunError(
            f"{path} cannot be read: {error}.", "Restore it from a copy of the run."
        ) from error
    return *ids, (users, items.astype(np.int64), test.astype(bool), since)


def _crc(columns: Iterable[NDArray[Any]], metadata: Mapping[str, str]) -> int:
    """A checksum of the rows and ids in a file; files of earlier versions have none."""
    crc = zlib.crc32((metadata["users"] + metadata["items"]).encode())
    for column in columns:
        crc = zlib.crc32(column.tobytes(), crc)
    return crc


def _load_items(path: Path) -> list[Id]:
    try:
        items: list[Id] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refused(path, error) or RunError(
            f"{path} cannot be read: {error}.", "Restore it from a copy of the run."
        ) from error
    return items
