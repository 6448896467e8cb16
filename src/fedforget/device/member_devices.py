"""The devices of members of a federation: their interactions and logs from their files, on one trajectory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedforget.data import Interactions
from fedforget.device.compute import Compute
from fedforget.device.devices import Devices
from fedforget.device.log.device_log import DeviceLog, open_log
from fedforget.device.log.entries import Entries
from fedforget.device.log.sqlite import SqliteStore
from fedforget.device.member import TRAIN, Member
from fedforget.device.pending import Pending
from fedforget.protocol.order import Order
from fedforget.protocol.terms import CatalogueSizes
from fedforget.runtime.ragged import offsets
from fedforget.runtime.randomness import UserId


def devices_of(members: list[Member], order: Order, compute: Compute) -> Devices:
    """The members' devices on the trajectory of an order, in their state before its first round."""
    devices = build_devices(members, order.trajectory, compute, order)
    devices.restore(order.round - 1)
    return devices


def build_devices(members: list[Member], trajectory: str, compute: Compute, order: Order | None = None) -> Devices:
    """The members' devices on a trajectory; with an order they know the catalogue and can replay."""
    terms, log = members[0].terms, log_of(members, trajectory)
    keys = np.array([member.draw_key for member in members], np.uint64)
    if order is None:
        interactions = interactions_of(members, TRAIN, all_rounds(*members))
        return Devices(interactions, terms, log, compute, draw_keys=keys)
    sizes, now, before = terms.catalogue(order.sizes), order.erased_of(), order.erased_of(in_service=True)
    old_log = log_of(members, order.in_service) if order.branches else None
    interactions = interactions_of(members, TRAIN, sizes, now)
    devices = Devices(interactions, terms, log, compute, old_log, sizes.in_round, keys)
    if old_log is not None and now != before:
        devices.logged_interactions = interactions_of(members, TRAIN, sizes, before)
    return devices


def log_of(members: list[Member], trajectory: str) -> DeviceLog:
    """The members' update log on a trajectory."""
    terms, files = members[0].terms, members[0].files
    keys = [member.key for member in members]
    return open_log(terms, terms.federation, SqliteStore(files.folder, terms.federation, trajectory, keys, files))


def interactions_of(
    members: list[Member], part: str, sizes: CatalogueSizes, erased: Mapping[UserId, int] | None = None
) -> Interactions:
    """The members' training or test items, as positions in the catalogue.

    An interaction counts from its own round on and not before its item does. ``erased`` are the requests to forget
    items that are carried out.
    """
    lines = [member.items(part, (erased or {}).get(member.user, 0)) for member in members]
    items = np.concatenate([of_member for of_member, _ in lines])
    since = np.maximum(np.concatenate([rounds for _, rounds in lines]), sizes.first_rounds(items))
    indptr = offsets([of_member.size for of_member, _ in lines])
    users = np.empty(len(members), object)
    users[:] = [member.user for member in members]
    if all(isinstance(member.user, int) for member in members):
        users = users.astype(np.int64)
    return Interactions(
        users,
        np.arange(max(sizes.largest, int(items.max(initial=-1)) + 1)),
        indptr,
        items,
        since=since if since.any() else None,
    )


def all_rounds(*members: Member) -> CatalogueSizes:
    """The catalogue without an order: all items that a member knows."""
    return CatalogueSizes(((0, max(member.n_items for member in members)),))


def roll_back(member: Member, order: Order, trajectory: str, counted: int) -> None:
    """Undo everything after the last round that counted, and log that round if it waits for factors."""
    log = log_of([member], trajectory)
    log.roll_back(counted)
    pending, factors = member.pending(trajectory, counted), order.factors.get((trajectory, counted))
    if pending is not None and factors is not None:
        member.terms.check_factors(factors, member.terms.catalogue(order.sizes).in_round(counted))
        pending.apply_factors(factors, log, member.terms.model.update_layout)
        member.drop_pending(trajectory)


def keep_pending(pending: Pending, log: DeviceLog, members: list[Member], order: Order) -> None:
    """Store a replayed round until the server sends its factors; until then its log entry is empty."""
    sound = np.flatnonzero(pending.sound)
    keys = pending.keys[sound]
    log.store.append(order.round, Entries.of(keys, [b""] * sound.size), pending.trained.private[sound])
    places = dict(zip(keys.tolist(), sound.tolist(), strict=True))
    for member in members:
        if member.key in places:
            member.keep_pending(order.trajectory, order.round, pending.to_bytes(places[member.key]))
