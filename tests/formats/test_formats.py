"""Run folders and devices' files of every format since the first that is migrated: they are opened and go on."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import fedforget as ff
from fedforget.device.log import user_files
from fedforget.server import config_file

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from tests.flower.worlds import USERS, OnFlower, Simulated

HERE = Path(__file__).parent
SIMULATIONS = sorted(HERE.glob("simulation-*.zip"))
NETWORKS = sorted(HERE.glob("network-*.zip"))


def unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as files:
        files.extractall(folder)
    return folder


def test_the_present_formats_are_stored():
    assert HERE / f"simulation-{config_file.FORMAT}.zip" in SIMULATIONS
    assert HERE / f"network-{config_file.FORMAT}-devices-{user_files.FORMAT}.zip" in NETWORKS


@pytest.mark.parametrize("archive", SIMULATIONS, ids=lambda path: path.stem)
def test_a_stored_run_goes_on_as_one_that_was_never_stored(archive, tmp_path):
    unbroken = Simulated(tmp_path / "new")
    unbroken.train(3)
    fed = ff.Federation.open(unpacked(archive, tmp_path / "old") / "run")
    np.testing.assert_allclose(fed.public.items, unbroken.public.items, rtol=1e-5, atol=1e-6)
    for each in (fed, unbroken.fed):
        each.forget([USERS[2]], ff.FRU())
        each.fit(more=2)
    np.testing.assert_allclose(fed.public.items, unbroken.public.items, rtol=1e-5, atol=1e-6)
    fed.close()
    unbroken.close()


@pytest.mark.parametrize("archive", NETWORKS, ids=lambda path: path.stem)
def test_stored_devices_and_their_server_go_on(archive, tmp_path):
    unbroken = Simulated(tmp_path / "new")
    unbroken.train(3)
    world = OnFlower(unpacked(archive, tmp_path / "old"))
    np.testing.assert_allclose(world.public.items, unbroken.public.items, rtol=1e-5, atol=1e-6)
    for each in (world, unbroken):
        each.forget([USERS[2]], ff.FRU())
        each.train(5)
    np.testing.assert_allclose(world.public.items, unbroken.public.items, rtol=1e-5, atol=1e-6)
    world.close()
    unbroken.close()
