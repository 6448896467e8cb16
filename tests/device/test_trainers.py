"""The three trainers do the same arithmetic: proved against the plain loop, and against a float64 loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import fedforget as ff
from fedforget.device.compiled_trainer import CompiledTrainer
from fedforget.device.objective import objective
from fedforget.device.plain_trainer import PlainTrainer
from fedforget.device.plan import Plan, draw_plan
from fedforget.device.stacked_trainer import StackedTrainer
from fedforget.models.parameters import Array, GlobalParameters
from fedforget.protocol.sampler import SAMPLERS
from fedforget.protocol.training import LocalTraining
from fedforget.runtime.workers import Workers
from tests.samplers import make_sampler

MODELS = [
    ff.MF(dim=8),
    ff.LightGCN(dim=8),
    ff.NCF(dim=8, hidden=(16, 12, 8)),
    ff.MF(dim=5, loss="bpr"),
    ff.LightGCN(dim=5, loss="bpr"),
    ff.NCF(dim=6, hidden=(10, 7, 5), loss="bpr"),
]
BCE = MODELS[:3]


def name(model: ff.Recommender) -> str:
    return f"{model.name}-{model.loss}"


def cohort(model: ff.Recommender, n: int = 9) -> tuple[Plan, GlobalParameters, Array]:
    """Users with very different numbers of items, so that some finish long before others."""
    data = ff.synthetic(users=40, items=120, mean_items=18, seed=3)
    places = np.argsort(data.counts)[:: -(-40 // n)].copy()
    public = model.init_public(data.n_items, seed=5)
    private = model.init_private(data.user_keys, seed=5)[places]
    ptr, own = data.rows(places)
    plan = draw_plan(
        make_sampler(), negatives=model.negatives, pairwise=model.loss == "bpr", items=public.items, users=private,
        own_ptr=ptr, own_items=own, user_keys=data.user_keys[places], seed=5, rounds=2, workers=Workers(1),
    )  # fmt: skip
    return plan, public, private


def close(a: object, b: object, tolerance: float) -> None:
    for part in ("rows", "dense", "private", "losses"):
        np.testing.assert_allclose(getattr(a, part), getattr(b, part), rtol=0, atol=tolerance, err_msg=part)


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_fast_trainers_equal_the_plain_loop(model: ff.Recommender) -> None:
    plan, public, private = cohort(model)
    training = LocalTraining(batch=16, lr=0.01)
    expected = PlainTrainer(model, training)(plan, public, private, 4)
    assert np.abs(expected.rows).max() > 0.01
    assert np.abs(expected.private - private).max() > 0.01
    close(StackedTrainer(model, training, Workers(2))(plan, public, private, 4), expected, 2e-5)
    if CompiledTrainer.supports(model):
        close(CompiledTrainer(model, training, Workers(2))(plan, public, private, 4), expected, 2e-5)


@pytest.mark.parametrize("model", [model for model in MODELS if CompiledTrainer.supports(model)], ids=name)
def test_one_step_of_the_kernel_follows_the_gradient_of_finite_differences(model: ff.Recommender) -> None:
    """Adam's first step is -lr · sign(g) wherever |g| is far above epsilon: compare signs with central differences."""
    plan, public, private = cohort(model, n=3)
    plan = replace(plan, batch_keys=plan.batch_keys.copy())
    trained = CompiledTrainer(model, LocalTraining(batch=10**6, lr=0.001), Workers(1))(plan, public, private, 1)

    def loss(client: int, items: Array, user: Array, dense: Array) -> float:
        left, right = (torch.from_numpy(side.astype(np.int64))[None] for side in plan.client_samples(client))
        own = (torch.arange(items.shape[0]) < int(plan.positives[client])).double()[None]
        parts = [torch.from_numpy(part.astype(np.float64))[None] for part in (user, items, dense)]
        return float(objective(model, model.local(*parts, own), left, right).mean())

    for client in range(len(plan)):
        used = plan.client_items(client)
        place = slice(plan.item_ptr[client], plan.item_ptr[client + 1])
        start = [public.items[used].astype(np.float64), private[client].astype(np.float64), public.dense.astype(float)]
        moved = [trained.rows[place], trained.private[client] - private[client], trained.dense[client]]
        checked = 0
        for part, movement in enumerate(moved):
            for entry in np.random.default_rng(client).permutation(movement.size)[:40]:
                shifted = []
                for shift in (1e-5, -1e-5):
                    values = [values.copy() for values in start]
                    values[part].reshape(-1)[entry] += shift
                    shifted.append(loss(client, *values))
                gradient = (shifted[0] - shifted[1]) / 2e-5
                if abs(gradient) > 1e-5:
                    assert movement.reshape(-1)[entry] == pytest.approx(-0.001 * np.sign(gradient), rel=0.01)
                    checked += 1
        assert checked > 20


@pytest.mark.parametrize("model", BCE, ids=name)
@pytest.mark.parametrize("kind", list(SAMPLERS))
def test_several_rounds_equal_the_plain_loop_with_every_sampler(model: ff.Recommender, kind: str) -> None:
    data = ff.synthetic(users=30, items=80, mean_items=15, seed=1)
    settings = {
        "seed": 4,
        "sampler": make_sampler(kind, R=30),
        "training": LocalTraining(epochs=3, batch=16),
        "server": ff.ServerConfig(fraction=0.3),
    }
    results = []
    for trainer in ("plain", "auto", "stacked"):
        fed = ff.Federation(data, model, compute=ff.Compute(trainer=trainer), **settings)  # type: ignore[arg-type]
        results.append(fed.fit(rounds=4).public)
    plain, *fast = results
    for public in fast:
        np.testing.assert_allclose(public.items, plain.items, rtol=0, atol=2e-5)
        np.testing.assert_allclose(public.dense, plain.dense, rtol=0, atol=2e-5)
    assert np.abs(plain.items - model.init_public(80, seed=4).items).max() > 1e-3


@pytest.mark.parametrize("model", MODELS, ids=name)
def test_result_does_not_depend_on_workers_or_on_who_else_trains(model: ff.Recommender) -> None:
    plan, public, private = cohort(model)
    training = LocalTraining(batch=16)
    trainer = CompiledTrainer if CompiledTrainer.supports(model) else StackedTrainer
    one = trainer(model, training, Workers(1))(plan, public, private, 2)
    three = trainer(model, training, Workers(3))(plan, public, private, 2)
    for part in ("rows", "dense", "private", "losses"):
        np.testing.assert_array_equal(getattr(one, part), getattr(three, part))
    alone = Plan(
        np.array([0, plan.item_ptr[1]]), plan.client_items(0), plan.positives[:1], np.array([0, plan.sample_ptr[1]]),
        *plan.client_samples(0), plan.batch_keys[:1],
    )  # fmt: skip
    single = trainer(model, training, Workers(1))(alone, public, private[:1], 2)
    np.testing.assert_allclose(single.rows, one.rows[: plan.item_ptr[1]], rtol=0, atol=1e-6)
    np.testing.assert_allclose(single.private[0], one.private[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("group", [1, 2, 5, 100])
def test_stacked_result_does_not_depend_on_grouping(group: int) -> None:
    model = ff.NCF(dim=8, hidden=(16, 12, 8))
    plan, public, private = cohort(model)
    training = LocalTraining(batch=16)
    expected = PlainTrainer(model, training)(plan, public, private, 2)
    close(StackedTrainer(model, training, Workers(1), group=group)(plan, public, private, 2), expected, 1e-5)


@pytest.mark.parametrize("model", BCE, ids=name)
def test_training_changes_nothing_it_was_handed(model: ff.Recommender) -> None:
    plan, public, private = cohort(model)
    before = public.digest, private.copy()
    CompiledTrainer(model, LocalTraining(), Workers(1))(plan, public, private, 1)
    assert public.digest == before[0]
    np.testing.assert_array_equal(private, before[1])


def test_a_subclass_of_a_built_in_model_does_not_get_its_kernel() -> None:
    class Louder(ff.MF):
        def logits(self, local: ff.LocalModel, index: torch.Tensor) -> torch.Tensor:
            return 2 * super().logits(local, index)

    assert CompiledTrainer.supports(ff.MF())
    assert not CompiledTrainer.supports(Louder())
    plan, public, private = cohort(ff.MF(dim=8))
    training = LocalTraining(batch=16)
    louder = ff.Compute().build(Louder(dim=8), training, Workers(1))
    assert isinstance(louder, StackedTrainer)
    expected = PlainTrainer(Louder(dim=8), training)(plan, public, private, 2)
    close(louder(plan, public, private, 2), expected, 1e-5)


def test_no_kernel_no_compiled_trainer() -> None:
    with pytest.raises(ff.ConfigError, match="no compiled kernel"):
        ff.Compute(trainer="compiled").build(ff.NCF(loss="bpr"), LocalTraining(), Workers(1))
    with pytest.raises(ff.ConfigError, match="Did you mean 'plain'"):
        ff.Compute(trainer="plian").build(ff.MF(), LocalTraining(), Workers(1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("model", MODELS, ids=name)
def test_cuda_equals_the_plain_loop(model: ff.Recommender) -> None:
    plan, public, private = cohort(model)
    training = LocalTraining(batch=16)
    expected = PlainTrainer(model, training)(plan, public, private, 2)
    close(StackedTrainer(model, training, Workers(1), "cuda")(plan, public, private, 2), expected, 1e-4)
