"""Signals against slow loops on small tables, and on tables where what they measure was put there."""

from __future__ import annotations

import numpy as np
import pytest

import fedforget as ff
from fedforget.data import checkerboard
from fedforget.evaluation.forgetting.fitting import fitted_vectors, predicted
from fedforget.evaluation.forgetting.scores import Floats
from fedforget.evaluation.forgetting.signals import (
    KINDS,
    cohesion,
    fit_signal,
    lengths,
    model_signals,
    step_signals,
)
from fedforget.evaluation.forgetting.suspects import CLASSES, LEAST, Suspects
from fedforget.models.parameters import Layout

DATA = ff.synthetic(users=30, items=48, mean_items=10, seed=4)
SUSPECTS = Suspects(DATA, np.array([1, 5, 8, 20]), 3)
RNG = np.random.default_rng(0)
ITEMS = RNG.normal(size=(48, 6)).astype(np.float32)
PUBLIC = ff.GlobalParameters(ITEMS, np.empty(0, np.float32), Layout({}))


def classes() -> list[list[int]]:
    """The items in classes of popularity, most popular first."""
    order = sorted(range(48), key=lambda item: (-int((DATA.indices == item).sum()), item))
    count = min(CLASSES, 48 // LEAST)
    return [[item for place, item in enumerate(order) if place * count // 48 == one] for one in range(count)]


def class_of(item: int) -> list[int]:
    return next(group for group in classes() if item in group)


def test_classes_have_equal_sizes_and_halves_are_halves() -> None:
    assert [len(group) for group in classes()] == [LEAST] * 6
    for item in range(48):
        assert set(np.flatnonzero(SUSPECTS.members @ SUSPECTS.members[item])) == set(class_of(item))
    first, second = SUSPECTS.halves
    assert not (first & second).any()
    assert np.array_equal(first | second, SUSPECTS.own)
    assert (abs(first.sum(1) - second.sum(1)) <= 1).all()
    assert not np.array_equal(first, Suspects(DATA, SUSPECTS.users, 4).halves[0])


def test_cohesion_is_that_of_all_pairs() -> None:
    unit = ITEMS / np.linalg.norm(ITEMS, axis=1, keepdims=True)
    popularity = np.bincount(DATA.indices, minlength=48)
    for place, user in enumerate(SUSPECTS.users):
        total = found = expected = 0.0
        for a in DATA.items_of(user):
            for b in DATA.items_of(user):
                if a != b:
                    weight = 1 / np.sqrt(popularity[a] * popularity[b])
                    middle = unit[class_of(a)].mean(0) @ unit[class_of(b)].mean(0)
                    total, found = total + weight, found + weight * unit[a] @ unit[b]
                    expected += weight * middle
        assert cohesion(ITEMS, SUSPECTS)[place] == pytest.approx((found - expected) / total, abs=1e-5)


def test_lengths_and_fit_are_those_of_slow_loops() -> None:
    logs = np.log(np.linalg.norm(ITEMS, axis=1))
    vectors = fitted_vectors(ff.LightGCN(dim=6), ITEMS, SUSPECTS.own)
    for place, user in enumerate(SUSPECTS.users):
        own = DATA.items_of(user).tolist()
        relative = [logs[item] - logs[class_of(item)].mean() for item in own]
        assert lengths(ITEMS, SUSPECTS)[place] == pytest.approx(np.mean(relative), abs=1e-5)
        scores = ITEMS @ vectors[place]
        others = [item for item in range(48) if item not in own]
        above = []
        for item in own:
            alike = [other for other in class_of(item) if other not in own] or others
            above.append((scores[item] - scores[alike].mean()) / scores[others].std())
        fit = fit_signal(ff.LightGCN(dim=6), PUBLIC, SUSPECTS)[place]
        assert fit == pytest.approx(np.mean(above), abs=1e-4)


def test_the_half_that_is_hidden_is_found_where_tastes_are_known() -> None:
    """On a checkerboard of two tastes, with item vectors that are the tastes, half of a user's items tell the rest."""
    board = checkerboard(users=40, items=48, tastes=2, share=0.6)
    suspects = Suspects(board, np.arange(10), 0)
    taste = np.arange(48) % 2
    tables: dict[str, Floats] = {}
    for name, noise in (("known", 0.1), ("unknown", 50.0)):
        items = np.stack([taste == 0, taste == 1], axis=1) + noise * RNG.normal(size=(48, 2))
        public = ff.GlobalParameters(items.astype(np.float32), np.empty(0, np.float32), Layout({}))
        tables[name] = model_signals(ff.MF(dim=2), public, suspects)
    half = KINDS.index("half")
    assert tables["known"][:, half].min() > 0.5
    assert abs(tables["unknown"][:, half].mean()) < 0.4
    likelihood = KINDS.index("likelihood")
    assert (tables["known"][:, likelihood] > tables["unknown"][:, likelihood]).mean() > 0.8


@pytest.mark.parametrize("model", [ff.NCF(dim=6, hidden=(32, 16, 8), init_std=1.0), ff.MF(dim=6), ff.IALS(dim=6)])
def test_every_model_can_be_fitted_to_known_items(model: ff.Recommender) -> None:
    public = model.init_public(48, 0)
    known = Suspects(DATA, np.arange(30), 3).halves[0]
    scores = predicted(model, public, known)
    assert scores.shape == (30, 48)
    above = np.array([row[items].mean() - row[~items].mean() for row, items in zip(scores, known, strict=True)])
    assert above.mean() > 4 * above.std() / np.sqrt(30)
    assert np.array_equal(scores, predicted(model, public, known))


@pytest.mark.parametrize("model", [ff.LightGCN(dim=6), ff.NCF(dim=6, hidden=(8, 8, 4))])
def test_the_step_of_a_user_shows_in_its_items(model: ff.Recommender) -> None:
    everybody = Suspects(DATA, np.arange(30), 0)
    vectors = fitted_vectors(ff.LightGCN(dim=6), ITEMS, everybody.own)
    still = [(ITEMS, ITEMS + RNG.normal(size=ITEMS.shape).astype(np.float32)) for _ in range(9)]
    moved = still[0][1] + 40 * everybody.own[2][:, None] * vectors[2]
    steps = [*still, (ITEMS, moved.astype(np.float32))]
    mean, largest = step_signals(model, steps, everybody).T
    assert largest.argmax() == 2
    assert mean[2] > mean.mean()
    assert step_signals(model, steps, SUSPECTS).shape == (4, 2)
    assert step_signals(model, [], SUSPECTS).tolist() == [[0, 0]] * 4
