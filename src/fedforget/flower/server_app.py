"""The Flower ServerApp: the server of a federation. The run's configuration names the run folder."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedforget.errors import ConfigError
from fedforget.flower.fleet import FlowerFleet
from fedforget.server.node_registry import NodeRegistry
from fedforget.server.run_config import RunConfig
from fedforget.server.service import Service

#: The keys of a run's configuration and their defaults. ``evaluate-every`` is 0 for never.
CONFIG: dict[str, str | int | float | bool] = {
    "run": "",
    "rounds": 0,
    "timeout": 120.0,
    "deadline": 600.0,
    "replay-share": 0.5,
    "evaluate-every": 0,
    "linger": False,
}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the server of the federation in a run folder."""
    config = {**CONFIG, **context.run_config}
    if not config["run"]:
        raise ConfigError(
            "The run's configuration does not name the run folder.",
            "Name it: flwr run … --run-config 'run=\"/path\" rounds=100'.",
        )

    def fleet(settings: RunConfig, registry: NodeRegistry) -> FlowerFleet:
        timeout, deadline, share = (float(config[name]) for name in ("timeout", "deadline", "replay-share"))
        return FlowerFleet(grid, settings, registry, timeout, deadline, share, tell)

    def tell(line: str) -> None:
        print(line, flush=True)

    service = Service(Path(str(config["run"])), fleet)
    try:
        service.serve(
            int(config["rounds"]),
            evaluate_every=int(config["evaluate-every"]) or None,
            linger=bool(config["linger"]),
            tell=tell,
        )
    finally:
        service.close()
