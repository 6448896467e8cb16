"""The Flower app: a folder that names the two sides of fedforget and carries no code.

Flower ships the folder to the devices. As there is no code in it, a device only ever runs the fedforget that its
owner installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fedforget.runtime.files import make_folder, write_file
from fedforget.version import __version__

SERVER_APP = "fedforget.flower.server_app:app"
CLIENT_APP = "fedforget.flower.client_app:app"

Config = Mapping[str, str | int | float | bool]


def write_app(folder: Path, config: Config, *, server: str = SERVER_APP, client: str = CLIENT_APP) -> Path:
    """Write the app into a folder of its own and return the folder.

    A run can override the keys of ``config`` and no others. Whatever else lies in the folder would be shipped too.
    """
    make_folder(folder)
    app = {
        "publisher": "fedforget",
        "components": {"serverapp": server, "clientapp": client},
        "config": dict(config),
    }
    project = {
        "name": "fedforget",
        "version": __version__,
        "description": "Federated recommendation that can forget.",
        "license": "Apache-2.0",
    }
    write_file(folder / "pyproject.toml", tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}}).encode())
    return folder
