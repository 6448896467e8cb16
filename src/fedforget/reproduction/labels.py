"""Labels: how places, ways and metrics are spoken of on the page, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from fedforget.experiments.ways import WAYS
from fedforget.reproduction.summary import Group, Place, Spread

DATASETS = {"ml-100k": "MovieLens-100k", "steam-200k": "Steam-200k", "ml-1m": "MovieLens-1M"}
MODELS = {"ncf": "Fed-NCF", "lightgcn": "Fed-LightGCN", "mf": "MF"}
METRICS = {"sampled_hr": "HR", "sampled_ndcg": "NDCG", "full_hr": "full HR", "full_ndcg": "full NDCG"}
PROTOCOLS = ("sampled", "full")
MINUS, NOTHING = "−", "–"


def ordered(places: Iterable[Place]) -> list[Place]:
    """Places as the paper has them: by data set, then model, then share of malicious users."""
    return sorted(
        set(places),
        key=lambda place: (_rank(DATASETS, place.dataset), _rank(MODELS, place.model), place.malicious, place.rounds),
    )


def _rank(known: dict[str, str], name: str) -> tuple[int, str]:
    return list(known).index(name) if name in known else len(known), name


def pair_of(place: Place) -> str:
    """A place's data set and model."""
    return f"{DATASETS.get(place.dataset, place.dataset)}, {MODELS.get(place.model, place.model)}"


def place_of(place: Place) -> str:
    """A place in full."""
    return f"{pair_of(place)}, {place.malicious:.0%}" if place.malicious else pair_of(place)


def way_of(name: str) -> str:
    """A way to recover."""
    return WAYS[name].label


def places_of(places: Sequence[Place], among: Sequence[Place]) -> str:
    """Some places among others: a data set or model of which all are there is named once."""
    named = []
    for dataset, here in groupby(ordered(places), lambda place: place.dataset):
        group = list(here)
        if len(group) == sum(place.dataset == dataset for place in among):
            named.append(DATASETS.get(dataset, dataset))
            continue
        for model, those in groupby(group, lambda place: place.model):
            one = list(those)
            whole = len(one) == sum((place.dataset, place.model) == (dataset, model) for place in among)
            named += [pair_of(one[0])] if whole else [place_of(place) for place in one]
    return "; ".join(named)


def share_of(share: float) -> str:
    """A share of the item table in percent, small ones with one digit more."""
    return f"{share:.1%}" if share >= 0.1 else f"{share:.2%}"


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign, and a minus that is as wide as a plus."""
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", MINUS)


def spread_of(spread: Spread | None, scale: float = 100.0, digits: int = 1, unit: str = "") -> str:
    """A mean and, over several seeds, its standard deviation; a dash where there is none."""
    if spread is None:
        return NOTHING
    mean = f"{scale * spread.mean:.{digits}f}"
    return mean + unit if spread.deviation is None else f"{mean} ± {scale * spread.deviation:.{digits}f}{unit}"


def printed_of(value: float) -> str:
    """A figure of the paper, of its two digits one: a five goes up, as in print, where a float may lie just below."""
    return f"{value + 1e-9:.1f}"


def group_of(group: Group) -> str:
    """A way with what is varied of it, or the sampler where nothing is recovered from."""
    if group.place.malicious == 0:
        return f"{group.sampler}, β = {group.beta:g}"
    treatment = group.treatment
    parts = [way_of(treatment.way)]
    if treatment.alpha is not None:
        parts.append(f"α = {treatment.alpha:g}")
    if treatment.selection is not None:
        parts.append(treatment.selection)
    if treatment.speedup is not None:
        parts.append(f"λ = {treatment.speedup:g}")
    return ", ".join(parts)
