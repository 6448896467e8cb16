"""ModelFile: the newest model that a device received, and the federation's catalogue, for recommendations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedforget.errors import RunError
from fedforget.models import GlobalParameters, Layout
from fedforget.protocol import reasons
from fedforget.protocol.order import Order
from fedforget.protocol.terms import RefusedError
from fedforget.runtime.checked_json import from_checked_json, to_checked_json
from fedforget.runtime.files import refused, write_file
from fedforget.runtime.randomness import ItemId

MODEL, CATALOGUE = "model.safetensors", "catalogue.json"


@dataclass(frozen=True)
class ReceivedModel:
    """Global parameters, the trajectory they are on, and the round that devices were asked for with them."""

    public: GlobalParameters
    trajectory: str
    round: int


class ModelFile:
    """The model and the catalogue in the folder of a federation on a device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, public: GlobalParameters, order: Order) -> None:
        """Store the parameters that came with an order, if they are of the trajectory in service."""
        if order.branches:
            return
        tensors = {"items": np.ascontiguousarray(public.items), "dense": np.ascontiguousarray(public.dense)}
        metadata = {"trajectory": order.trajectory, "round": str(order.round), "order": str(order.number)}
        metadata["check"] = _check(public, metadata)
        write_file(self.folder / MODEL, save(tensors, metadata))

    def load(self, layout: Layout) -> ReceivedModel:
        """The newest model."""
        path = self.folder / MODEL
        if not path.exists():
            raise RunError(
                f"This device has not received a model yet: there is no {path}.",
                "It gets one when it takes part in a round or evaluation.",
            )
        try:
            with safe_open(path, framework="np") as file:
                public = GlobalParameters(file.get_tensor("items"), file.get_tensor("dense"), layout)
                metadata = dict(file.metadata())
            if metadata.pop("check", None) not in (None, _check(public, metadata)):  # earlier versions have none
                raise ValueError("its content does not match its digest")
            return ReceivedModel(public, metadata["trajectory"], int(metadata["round"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise refused(path, error) or RunError(
                f"{path} cannot be read: {error}.", "Delete it; the next round brings a new one."
            ) from error

    def save_catalogue(self, items: list[ItemId]) -> None:
        """Store the item ids in the order of the item table."""
        write_file(self.folder / CATALOGUE, to_checked_json({"items": items}))

    def extend_catalogue(self, n_items: int, last: Sequence[ItemId]) -> None:
        """Store the ids of the last items of a catalogue of ``n_items`` items, as far as they are new.

        A device that has no catalogue that it can read, or lacks ids before these, stores nothing.
        """
        first = n_items - len(last)
        try:
            items = self.catalogue()
        except RunError:
            return
        known = items[first:]
        new = last[len(known) :]
        if known != list(last[: len(known)]) or len({*items, *new}) != len(items) + len(new):
            raise RefusedError(reasons.OTHER_ITEMS)
        if new and items and type(new[0]) is not type(items[0]):
            raise RefusedError(reasons.OTHER_ITEMS)
        if len(items) >= first and new:
            self.save_catalogue([*items, *new])

    def catalogue_size(self) -> int:
        """The number of items whose ids are stored; 0 without a catalogue."""
        return len(self.catalogue()) if (self.folder / CATALOGUE).exists() else 0

    def catalogue(self) -> list[ItemId]:
        """The item ids in the order of the item table."""
        path = self.folder / CATALOGUE
        try:
            content = path.read_bytes()  # of an earlier version: a list without a digest
            items: list[ItemId] = json.loads(content) if content[:1] == b"[" else from_checked_json(content)["items"]
            if not isinstance(items, list):
                raise ValueError("it is not a list")
        except (OSError, ValueError, KeyError) as error:
            raise refused(path, error) or RunError(
                f"{path} cannot be read: {error}.", "Store it again: Device(state).set_catalogue(invitation)."
            ) from error
        return items

    def remove(self) -> None:
        """Remove the model and the catalogue."""
        for name in (MODEL, CATALOGUE):
            (self.folder / name).unlink(missing_ok=True)


def _check(public: GlobalParameters, metadata: Mapping[str, str]) -> str:
    """A digest of a model and what came with it."""
    return hashlib.blake2b(json.dumps([public.digest, metadata], sort_keys=True).encode(), digest_size=8).hexdigest()
