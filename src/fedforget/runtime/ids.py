"""Types of ids, for modules that must not load numerical packages."""

from __future__ import annotations

#: A user's id, as in the data.
UserId = int | str
ItemId = int | str
