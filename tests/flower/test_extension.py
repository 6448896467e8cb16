"""Components from an installed package, found by name on both sides of a network and on the command line."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fedforget as ff

pytest.importorskip("flwr", reason="the Flower engine is an extra: pip install 'fedforget[flower]'")

from fedforget.cli.main import app
from fedforget.errors import NoAnswerError
from fedforget.models import MODELS
from fedforget.protocol import reasons
from fedforget.protocol.encoding import ENCODINGS
from fedforget.protocol.sampler import SAMPLERS
from fedforget.runtime import components
from fedforget.server.aggregation import AGGREGATIONS
from fedforget.server.optimiser import OPTIMISERS
from fedforget.server.unlearning import METHODS
from tests.flower.worlds import USERS, OnFlower, Simulated

PACKAGE = Path(__file__).parents[2] / "examples" / "extension"
NAMES = {
    "fedforget.models": ("metric", MODELS),
    "fedforget.samplers": ("hard", SAMPLERS),
    "fedforget.aggregations": ("clipped", AGGREGATIONS),
    "fedforget.optimisers": ("sign", OPTIMISERS),
    "fedforget.encodings": ("bfloat16", ENCODINGS),
    "fedforget.methods": ("sparse-retrain", METHODS),
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example package as pip installs it: its modules and its entry points in a folder of the path."""
    declared = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    site = tmp_path / "site"
    info = site / f"fedforget_extension-{declared['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {declared['name']}\nVersion: {declared['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for group, e in declared["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    (site / "fedforget_extension").symlink_to(PACKAGE / "fedforget_extension")
    monkeypatch.syspath_prepend(str(site))
    with pytest.MonkeyPatch.context() as patch:
        for _, registry in NAMES.values():
            patch.setattr(registry, "_known", dict(registry._known))
        components._installed.cache_clear()
        yield
    components._installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith("fedforget_extension")]:
        del sys.modules[name]


def settings() -> dict[str, object]:
    return {
        "model": MODELS.build("metric", dim=8, margin=0.5),
        "sampler": SAMPLERS.build("hard", R=40.0),
        "server": ff.ServerConfig(
            fraction=0.5,
            aggregation=AGGREGATIONS.build("clipped", norm=0.05),
            optimiser=OPTIMISERS.build("sign", lr=0.02),
        ),
        "log": ff.Log(encoding="bfloat16", selection="importance"),
    }


@pytest.mark.usefixtures("installed")
def test_the_package_offers_one_component_of_each_kind() -> None:
    for group, (name, registry) in NAMES.items():
        assert registry.group == group
        assert registry.build(name).name == name
    listed = json.loads(CliRunner().invoke(app, ["components", "--json"]).stdout)["components"]
    assert all(any(name in names for names in listed.values()) for name, _ in NAMES.values())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("method", ["sparse-retrain", "fedremove"])
def test_they_train_and_forget_on_flower_as_in_the_simulation(tmp_path: Path, method: str) -> None:
    worlds = [Simulated(tmp_path / "simulated", **settings()), OnFlower(tmp_path / "flower", **settings())]
    for world in worlds:
        world.train(4)
        moved = np.abs(world.history.snapshot(1).items - world.history.snapshot(0).items)
        np.testing.assert_allclose(moved[moved > 0], 0.02, rtol=1e-4)  # the optimiser is really the package's
        receipt = world.forget(USERS[:2], METHODS.build(method))
        assert receipt.method["name"] == method
        assert not receipt.missing
    simulated, on_flower = worlds
    assert simulated.history.usable_rounds() == on_flower.history.usable_rounds()
    for round_ in simulated.history.usable_rounds():
        here, there = simulated.history.snapshot(round_), on_flower.history.snapshot(round_)
        np.testing.assert_allclose(here.items, there.items, rtol=1e-5, atol=1e-6)
    for world in worlds:
        world.close()


@pytest.mark.usefixtures("installed")
def test_an_erasure_by_a_method_of_the_package_is_queued_and_resumed(tmp_path: Path) -> None:
    world = OnFlower(tmp_path, **settings())
    world.train(4)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(METHODS.build("sparse-retrain")), "step", die)
        with pytest.raises(KeyboardInterrupt):
            world.forget(USERS[:2], METHODS.build("sparse-retrain", every=3))
    world.restart()
    world.service.serve(4)
    (receipt,) = world.service.receipts()
    assert receipt.method == {"name": "sparse-retrain", "every": 3}
    assert receipt.communication_rounds == 2
    world.close()


def test_a_device_without_the_package_refuses_by_name(tmp_path: Path, installed: None) -> None:
    world = OnFlower(tmp_path, **settings())
    for name, registry in NAMES.values():
        registry._known.pop(name, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "_installed", lambda group: {})
        with pytest.raises(NoAnswerError, match=reasons.MISSING_COMPONENT):
            world.train(1)
    world.close()


@pytest.mark.usefixtures("installed")
def test_they_are_named_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: str) -> dict:  # type: ignore[type-arg]
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    data = tmp_path / "data.csv"
    data.write_text("user,item\n" + "".join(f"{u},{(u * 7 + i * i) % 30}\n" for u in range(12) for i in range(6)))
    run_folder = str(tmp_path / "run")
    chosen = ["--set", "dim=4", "--set", "margin=0.5", "--set", "sampler=hard", "--set", "aggregation=clipped"]
    chosen += ["--set", "optimiser=sign", "--set", "log.encoding=bfloat16", "--set", "fraction=0.5"]
    trained = run("train", str(data), "--out", run_folder, "--rounds", "3", "--model", "metric", *chosen)
    assert trained["model"]["name"] == "metric"
    assert trained["model"]["margin"] == 0.5
    done = run("forget", run_folder, "--yes", "--users", "3", "--method", "sparse-retrain", "--set", "every=3")
    assert done["receipt"]["method"] == {"name": "sparse-retrain", "every": 3}
    assert run("train", "--out", run_folder, "--rounds", "4")["rounds"] == 4
