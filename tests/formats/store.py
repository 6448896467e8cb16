"""Stores a small federation of each engine as the present version writes it: ``python -m tests.formats.store``.

Run it when a format changes, and keep the files of the formats before: ``test_formats`` opens them all.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import fedforget as ff
from fedforget.device.log import user_files
from fedforget.server import config_file
from tests.flower.worlds import TRAIN, OnFlower, options

HERE = Path(__file__).parent


def store(folder: Path, target: Path) -> None:
    """Write the files of a folder to a new zip file."""
    with zipfile.ZipFile(target, "x") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock"):
            info = zipfile.ZipInfo(str(path.relative_to(folder)), (2026, 1, 1, 0, 0, 0))
            archive.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> None:
    with TemporaryDirectory() as folder:
        fed = ff.Federation(TRAIN, path=Path(folder) / "run", **options())
        fed.fit(3)
        fed.close()
        store(Path(folder), HERE / f"simulation-{config_file.FORMAT}.zip")
    with TemporaryDirectory() as folder:
        world = OnFlower(Path(folder))
        world.train(3)
        world.close()
        store(Path(folder), HERE / f"network-{config_file.FORMAT}-devices-{user_files.FORMAT}.zip")


if __name__ == "__main__":
    main()
