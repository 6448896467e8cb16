"""The Flower app: a folder that names the two sides of fedforget and contains no code.

Flower ships the folder to the devices. Because it contains no code, a device only runs the fedforget that is installed
on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tomli_w

from fedforget.runtime.files import make_folder, write_file
from fedforget.version import __version__

Config = Mapping[str, str | int | float | bool]


def write_app(folder: Path, config: Config) -> Path:
    """Write the app into a folder and return the folder.

    A run can override the keys of ``config`` and no others. Flower ships every file of the folder to the devices.
    """
    app = {
        "publisher": "fedforget",
        "components": {
            "serverapp": "fedforget.flower.server_app:app",
            "clientapp": "fedforget.flower.client_app:app",
        },
        "config": dict(config),
    }
    project = {
        "name": "fedforget",
        "version": __version__,
        "description": "Federated recommendation that can forget.",
        "license": "Apache-2.0",
    }
    content = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    write_file(make_folder(folder, private=False) / "pyproject.toml", content.encode(), private=False)
    return folder
