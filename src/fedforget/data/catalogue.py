"""The catalogue: named data sets, the formats of their files and their expected content.

Results are compared across machines by the name of a data set, so its content is checked on every load. The checksum is
that of the sorted rows, which is the same for every source: ``LC_ALL=C sort u.data | sha256sum``.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import platformdirs

from fedforget.data.files import lines_of
from fedforget.data.interactions import Interactions
from fedforget.data.sources import Archive, Source, Wheel
from fedforget.errors import DataError, DataWarning

FOLDER_VARIABLE = "FEDFORGET_DATA"


@dataclass(frozen=True)
class Form:
    """One form of a named set in the data folder: its files, their reader and their expected content.

    ``items`` and ``checksum`` are None where they are not known.
    """

    files: tuple[str, ...]
    read: Callable[..., Interactions]
    users: int
    items: int | None
    interactions: int
    checksum: str | None = None

    def mismatch(self, data: Interactions, *paths: Path) -> str:
        """How the data in these files differs from the published set; empty if it does not."""
        for what, found, wanted in (
            ("users", data.n_users, self.users),
            ("items", data.n_items, self.items),
            ("interactions", len(data), self.interactions),
        ):
            if wanted is not None and found != wanted:
                return f"it has {found:,} {what} where the published set has {wanted:,}"
        if self.checksum is not None and checksum(*paths) != self.checksum:
            return "its counts are right, but some rows differ from those of the published set"
        return ""


@dataclass(frozen=True)
class NamedSet:
    """A data set known by name. ``sources`` provide the first of its forms."""

    name: str
    about: str
    forms: tuple[Form, ...]
    sources: tuple[Source, ...] = ()
    by_hand: str = ""

    def find(self, folder: Path) -> Form | None:
        """The form of the set that a data folder contains, if any."""
        return next((form for form in self.forms if all((folder / file).is_file() for file in form.files)), None)

    def open(self, form: Form, folder: Path) -> Interactions:
        """Read and check the set; a damaged or altered copy is an error."""
        paths = [folder / file for file in form.files]
        shown = " and ".join(map(str, paths))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # a named set counts every row
                data = form.read(*paths)
        except DataError as error:
            raise DataError(f"{shown} is damaged. {error.problem}", self.remedy(folder)) from None
        if reason := form.mismatch(data, *paths):
            raise DataError(f"{shown} is not {self.name}: {reason}.", self.remedy(folder))
        return data

    def remedy(self, folder: Path) -> str:
        """How to get a valid copy if it is missing or wrong."""
        own_file = "To use a file of your own, give its path instead of the name."
        if not self.sources:
            return f"{self.by_hand.format(folder=folder)} {own_file}"
        option = "" if folder == data_folder() else f" --folder {folder}"
        return f"Download it again with: fedforget data fetch {self.name} --force{option}\n{own_file}"


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder of named sets: the one given, else that in FEDFORGET_DATA, else the user's cache."""
    chosen = folder or os.environ.get(FOLDER_VARIABLE) or platformdirs.user_cache_dir("fedforget", False)
    return Path(chosen).expanduser()


def checksum(*paths: Path) -> str:
    """The SHA-256 of the sorted rows of text files, without the header of a RecBole file."""
    rows = sorted(row for path in paths for row in lines_of(path) if ":token" not in row)
    return hashlib.sha256("".join(f"{row}\n" for row in rows).encode()).hexdigest()


_tabs = partial(Interactions.from_csv, user=0, item=1, separator="\t")
_colons = partial(Interactions.from_csv, user=0, item=1, separator="::")
# The version used in research has 5,134 item numbers, 42 of them without any user.
_steam_lines = partial(Interactions.from_lines, n_items=5_134)

_ML_100K = (943, 1_682, 100_000, "3c61dc9b90a365d2ac50bdee9df8024ddf0eea4b1a15678d9934a77e75fe0ede")
_STEAM = (3_753, 5_134, 114_713, "0e1ef1cbef1dac3d5094c33f82d8fb219f39314c28a720af47a3775b645f6c61")
_GROUPLENS = "https://files.grouplens.org/datasets/movielens"

CATALOGUE = {
    entry.name: entry
    for entry in (
        NamedSet(
            "ml-100k",
            "MovieLens 100k: ratings of films, 1998",
            (
                Form(("ml-100k/u.data",), _tabs, *_ML_100K),
                Form(("ml-100k/ml-100k.inter",), Interactions.from_recbole, *_ML_100K),
            ),
            (
                Archive(f"{_GROUPLENS}/ml-100k.zip", "0e33842e24a9c977be4e0107933c0723", "ml-100k/u.data"),
                Wheel("recbole", "recbole/dataset_example/ml-100k/ml-100k.inter"),
            ),
        ),
        NamedSet(
            "ml-1m",
            "MovieLens 1M: ratings of films, 2000",
            (Form(("ml-1m/ratings.dat",), _colons, 6_040, 3_706, 1_000_209),),
            (Archive(f"{_GROUPLENS}/ml-1m.zip", "c4d9eecfca2ab87c1945afe126590906", "ml-1m/ratings.dat"),),
        ),
        NamedSet(
            "steam-200k",
            "Steam: games bought and played, users with 5 games or more",
            tuple(
                form
                for place in ("steam-200k", "steam")
                for form in (
                    Form((f"{place}/steam-200k.csv",), Interactions.from_steam_csv, 3_753, None, 114_713),
                    Form((f"{place}/train.txt", f"{place}/test.txt"), _steam_lines, *_STEAM),
                )
            ),
            by_hand=(
                "Download steam-200k.csv from https://www.kaggle.com/datasets/tamber/steam-video-games "
                "(it requires a Kaggle login) and copy it to {folder}/steam-200k/steam-200k.csv."
            ),
        ),
    )
}
