"""Interactions and their sources: files in several formats, named data sets, a generator of synthetic data."""

from fedforget.data.catalogue import CATALOGUE, NamedSet, data_folder
from fedforget.data.fetch import fetch
from fedforget.data.formats import read
from fedforget.data.ids import Id
from fedforget.data.interactions import Interactions
from fedforget.data.named import NAMES, load
from fedforget.data.summary import Summary
from fedforget.data.synthetic import checkerboard, synthetic

__all__ = [
    "CATALOGUE",
    "NAMES",
    "Id",
    "Interactions",
    "NamedSet",
    "Summary",
    "checkerboard",
    "data_folder",
    "fetch",
    "load",
    "read",
    "synthetic",
]
