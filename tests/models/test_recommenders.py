"""The contract of every recommender, and each one against its equations written out the long way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedforget.device.objective import objective
from fedforget.errors import ConfigError
from fedforget.models import IALS, MF, MODELS, NCF, LightGCN, LocalModel, Recommender

CLIENTS, ROWS = 3, 7
TRAINED = [MF(dim=4), LightGCN(dim=4), NCF(dim=4, hidden=(6, 5, 3))]
SMALL = [*TRAINED, IALS(dim=4, reg=0.1)]
every_model = pytest.mark.parametrize("model", SMALL, ids=lambda model: model.name)
every_trained_model = pytest.mark.parametrize("model", TRAINED, ids=lambda model: model.name)


def parameters(model: Recommender, seed: int = 0, clients: int = CLIENTS) -> list[torch.Tensor]:
    """Random stacked (private, items, dense) in float64, large enough that nonlinearities matter."""
    draw = torch.Generator().manual_seed(seed)
    shapes = [(model.private_layout.size,), (ROWS, model.dim), (model.dense_layout.size,)]
    return [torch.randn(clients, *shape, generator=draw, dtype=torch.float64) for shape in shapes]


def own_flags(clients: int = CLIENTS) -> torch.Tensor:
    """Client c owns the first c + 1 rows of its table."""
    return (torch.arange(ROWS) < torch.arange(1, clients + 1)[:, None]).double()


def positions(clients: int = CLIENTS) -> torch.Tensor:
    return torch.tensor([[0, 3, 3, 6, 1], [2, 0, 5, 4, 6], [6, 5, 4, 1, 2]])[:clients]


def local_model(model: Recommender, seed: int = 0) -> LocalModel:
    return model.local(*parameters(model, seed), own_flags())


def test_the_suite_covers_every_built_in_model():
    assert {type(model) for model in SMALL} == {MODELS.find(name) for name in MODELS}


@every_model
def test_logits_have_a_client_axis_and_one_score_for_each_position(model):
    local = local_model(model)
    assert model.logits(local, positions()).shape == (CLIENTS, 5)
    assert model.logits(local, positions()[:, :1]).shape == (CLIENTS, 1)
    assert model.logits(local, positions()[:, :0]).shape == (CLIENTS, 0)


@every_model
def test_an_item_has_the_same_score_wherever_it_is_asked_for(model):
    local = local_model(model)
    table = model.logits(local, torch.arange(ROWS).expand(CLIENTS, -1))
    assert torch.allclose(model.logits(local, positions()), table.gather(1, positions()), rtol=1e-12)
    assert table.std() > 0.01


@every_model
def test_a_client_does_not_see_the_others_in_the_stack(model):
    together = model.logits(local_model(model), positions())
    for client in range(CLIENTS):
        one = slice(client, client + 1)
        alone = model.local(*(part[one] for part in parameters(model)), own_flags()[one])
        assert torch.allclose(model.logits(alone, positions()[one]), together[one], rtol=1e-12)

        spoilt = parameters(model)
        for part in spoilt:
            part[torch.arange(CLIENTS) != client] = torch.nan
        logits = model.logits(model.local(*spoilt, own_flags()), positions())
        assert torch.allclose(logits[one], together[one], rtol=1e-12)


@every_trained_model
@pytest.mark.parametrize("loss", MF.losses)
def test_gradients_of_the_objective_are_its_finite_differences(model, loss):
    model = replace(model, loss=loss)
    parts = [part.requires_grad_() for part in parameters(model, seed=5) if part.numel()]
    left = torch.tensor([[0, 0, 3, 2], [1, 0, 1, 6], [2, 1, 0, 5]])
    right = torch.tensor([[5, 6, 4, 3], [6, 5, 4, 3], [6, 5, 4, 3]])

    def losses(*parts: torch.Tensor) -> torch.Tensor:
        dense = parts[2] if len(parts) == 3 else torch.empty(CLIENTS, 0, dtype=torch.float64)
        return objective(model, model.local(parts[0], parts[1], dense, own_flags()), left, right)

    assert losses(*parts).shape == (CLIENTS, 4)
    assert torch.autograd.gradcheck(losses, parts, eps=1e-6, atol=1e-7, rtol=1e-5)


@every_trained_model
def test_the_objectives_are_cross_entropy_with_own_and_bpr(model):
    local = local_model(model)
    left, right = positions(), positions().flip(1)
    score, other = model.logits(local, left), model.logits(local, right)
    chance = torch.sigmoid(score)
    own = own_flags().gather(1, left)
    assert 0 < own.sum() < own.numel()
    expected = -(own * chance.log() + (1 - own) * (1 - chance).log())
    assert torch.allclose(objective(model, local, left, torch.full_like(left, -1)), expected)
    paired = objective(replace(model, loss="bpr"), local, left, right)
    assert torch.allclose(paired, -torch.sigmoid(score - other).log())


@every_model
def test_public_parameters_start_from_the_seed_with_the_spread_asked_for(model):
    model = replace(model, init_std=0.3)
    public = model.init_public(3000, seed=1)
    assert public.items.shape == (3000, 4)
    assert public.items.dtype == public.dense.dtype == np.float32
    assert abs(public.items.mean()) < 0.02
    assert abs(public.items.std() - 0.3) < 0.01
    assert np.isfinite(public.dense).all()
    assert model.init_public(3000, seed=1).digest == public.digest
    other = model.init_public(3000, seed=2)
    assert not np.isin(other.items, public.items).mean() > 0.01
    assert public.dense.size == 0 or not np.array_equal(other.dense, public.dense)


@every_trained_model
def test_private_parameters_start_from_seed_and_user_key_alone(model):
    model = replace(model, init_std=0.3)
    keys = np.arange(5, 3005, dtype=np.uint64)
    private = model.init_private(keys, seed=1)
    assert private.shape == (3000, model.private_layout.size)
    assert abs(private.mean()) < 0.02
    assert abs(private.std() - 0.3) < 0.01
    assert np.unique(private, axis=0).shape == private.shape
    some = np.array([700, 3, 3, 2999])
    assert np.array_equal(model.init_private(keys[some], seed=1), private[some])
    assert not np.isin(model.init_private(keys, seed=2), private).mean() > 0.01


@every_model
def test_scores_are_the_logits_one_by_one(model):
    public = model.init_public(20, seed=0)
    private = model.init_private(np.array([9], np.uint64), seed=0)[0]
    own_items = np.array([2, 5, 11], np.int32)
    scores = model.score(private, public, own_items)
    own = torch.zeros(1, 20)
    own[0, own_items.tolist()] = 1
    local = model.local(*(torch.tensor(part)[None] for part in (private, public.items, public.dense)), own)
    one_by_one = [float(model.logits(local, torch.tensor([[item]]))) for item in range(20)]
    assert scores.shape == (20,)
    assert scores.dtype == np.float32
    assert np.allclose(scores, one_by_one, atol=1e-7)
    assert np.ptp(scores) > 1e-4


@every_trained_model
def test_a_device_scores_on_its_compact_table_as_on_the_whole_one(model):
    public = model.init_public(20, seed=0)
    private = model.init_private(np.array([9], np.uint64), seed=0)[0]
    used = np.array([11, 2, 5, 19, 0])
    own = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0]])
    parts = (private, public.items[used], public.dense)
    local = model.local(*(torch.tensor(part)[None] for part in parts), own)
    compact = model.logits(local, torch.arange(5)[None])[0]
    assert np.allclose(compact, model.score(private, public, np.array([2, 5, 11], np.int32))[used], atol=1e-7)


@every_trained_model
def test_settings_round_trip_through_the_name(model):
    changed = replace(model, dim=3, init_std=0.25, negatives=7, loss="bpr")
    for original in (model, changed, type(model)()):
        settings = original.settings()
        assert MODELS.build(settings) == original
        assert all(isinstance(value, int | float | str | list) for value in settings.values())


@every_trained_model
@pytest.mark.parametrize(
    ("setting", "value"),
    [("dim", 0), ("dim", -3), ("negatives", 0), ("init_std", 0.0), ("init_std", float("nan")), ("loss", "hinge")],
)
def test_settings_that_make_no_sense_are_refused_by_name_and_value(model, setting, value):
    with pytest.raises(ConfigError, match=f"{setting}.*{value}"):
        replace(model, **{setting: value})


@pytest.mark.parametrize("hidden", [(), (8,), (8, 8), (8, 8, 8, 8), (8, 0, 8)])
def test_a_perceptron_has_three_layers_of_some_size(hidden):
    with pytest.raises(ConfigError, match="hidden is") as refused:
        NCF(hidden=hidden)
    assert str(hidden) in str(refused.value)


def test_an_unknown_model_or_setting_is_named_and_the_closest_one_suggested():
    with pytest.raises(ConfigError, match=r"'lightgnc'(.|\n)*mean 'lightgcn'"):
        MODELS.build("lightgnc")
    with pytest.raises(ConfigError, match=r"'mf'(.|\n)*depth"):
        MODELS.build("mf", depth=3)


def test_private_tensors_must_start_with_the_user_vector():
    class Crooked(MF):
        def private_shapes(self):
            return {"bias": (1,), "user": (self.dim,)}

    with pytest.raises(ConfigError, match=r"Crooked.*bias(.|\n)*'user' with shape \(64,\)"):
        Crooked().init_private(np.array([1], np.uint64), seed=0)


def test_mf_is_the_dot_product():
    private, items, dense = parameters(SMALL[0])
    logits = SMALL[0].logits(SMALL[0].local(private, items, dense, own_flags()), positions())
    expected = torch.einsum("cd,crd->cr", private, items).gather(1, positions())
    assert torch.allclose(logits, expected, rtol=1e-12)


@given(st.integers(0, 2**32), st.lists(st.booleans(), min_size=ROWS, max_size=ROWS))
def test_lightgcn_is_a_propagation_with_the_normalised_adjacency_of_the_ego_graph(seed, own):
    """E* = (E + D^-1/2 A D^-1/2 E) / 2 over the graph of one user and its items, with the degrees in that graph."""
    model = LightGCN(dim=4)
    private, items, dense = parameters(model, seed, clients=1)
    flags = torch.tensor([own], dtype=torch.float64)
    found = model.logits(model.local(private, items, dense, flags), torch.arange(ROWS)[None])[0]

    nodes = np.concatenate([private.numpy(), items[0].numpy()])
    adjacency = np.zeros((1 + ROWS, 1 + ROWS))
    adjacency[0, 1:] = adjacency[1:, 0] = own
    degrees = adjacency.sum(0)
    root = np.diag([1 / np.sqrt(degree) if degree else 0.0 for degree in degrees])
    final = (nodes + root @ adjacency @ root @ nodes) / 2
    assert np.allclose(found.numpy(), final[1:] @ final[0], rtol=1e-10, atol=1e-12)


def test_ncf_is_linear_layers_on_user_and_item_side_by_side():
    model = NCF(dim=4, hidden=(6, 5, 3))
    private, items, dense = parameters(model)
    found = model.logits(model.local(private, items, dense, own_flags()), torch.arange(ROWS).expand(CLIENTS, -1))
    for client in range(CLIENTS):
        named = model.dense_layout.views(dense[client])
        sizes = [(8, 6), (6, 5), (5, 3), (3, 1)]
        layers = [torch.nn.Linear(*size, dtype=torch.float64) for size in sizes]
        weights = [
            torch.cat([named["mlp.0.user"], named["mlp.0.item"]]),
            named["mlp.1.weight"],
            named["mlp.2.weight"],
            named["out.weight"][:, None],
        ]
        biases = [named["mlp.0.bias"], named["mlp.1.bias"], named["mlp.2.bias"], named["out.bias"]]
        with torch.no_grad():
            for layer, weight, bias in zip(layers, weights, biases, strict=True):
                layer.weight.copy_(weight.T)
                layer.bias.copy_(bias)
            x = torch.cat([private[client].expand(ROWS, -1), items[client]], dim=1)
            for layer in layers[:-1]:
                x = torch.relu(layer(x))
            assert torch.allclose(layers[-1](x)[:, 0], found[client], rtol=1e-10)


def test_ncf_starts_as_torch_linear_layers_do():
    model = NCF(dim=16, hidden=(64, 48, 32))
    named = model.init_public(5, seed=4).named()
    inputs = {"mlp.0": 32, "mlp.1": 64, "mlp.2": 48, "out": 32}
    for layer, fan_in in inputs.items():
        drawn = np.concatenate([value.ravel() for name, value in named.items() if name.startswith(layer)])
        with torch.random.fork_rng():
            torch.manual_seed(0)
            reference = torch.nn.Linear(fan_in, 1000)
        bound = float(reference.weight.detach().abs().max())
        assert 0.8 * bound < np.abs(drawn).max() <= 1 / np.sqrt(fan_in)
        assert bound <= 1 / np.sqrt(fan_in)
        assert abs(drawn.mean()) < 5 * bound / np.sqrt(3 * drawn.size)
    assert abs(named["mlp.1.weight"].std() - 1 / np.sqrt(3 * 64)) < 0.003


# Fed-iALS


def fitted_the_long_way(model: IALS, items: np.ndarray, own: list[int]) -> np.ndarray:
    """The minimum of the weighted squared error, solved in float64 from one equation an item."""
    alpha = model.alpha * np.sqrt(len(items) / len(own))
    confidence = np.where(np.isin(np.arange(len(items)), own), 1 + alpha, 1.0)
    wanted = np.isin(np.arange(len(items)), own).astype(float)
    root = np.sqrt(confidence)[:, None]
    equations = np.concatenate([root * items, np.sqrt(model.user_reg(len(items))) * np.eye(model.dim)])
    return np.linalg.lstsq(equations, np.concatenate([root[:, 0] * wanted, np.zeros(model.dim)]), rcond=None)[0]


@given(st.integers(0, 2**32), st.sets(st.integers(0, 29), min_size=1, max_size=20), st.floats(0.01, 5))
def test_ials_scores_with_the_vector_that_minimises_the_weighted_squared_error(seed, own, reg):
    model = IALS(dim=5, reg=reg)
    public = model.init_public(30, seed)
    user = fitted_the_long_way(model, public.items.astype(np.float64), sorted(own))
    scores = model.score(np.empty(0, np.float32), public, np.array(sorted(own), np.int32))
    np.testing.assert_allclose(scores, public.items @ user, rtol=1e-3, atol=1e-5)


def test_ials_moves_the_item_table_along_the_gradient_of_the_loss_of_all_users():
    """direction(), fed with what every user contributes, against finite differences of the loss written out."""
    model = IALS(dim=3, reg=0.7)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(8, 3))
    histories = [[0, 1, 2], [1, 5], [3, 4, 5, 7]]
    users = [fitted_the_long_way(model, table, own) for own in histories]

    def loss(items: np.ndarray) -> float:
        total = model.item_reg(8, 3) * (items**2).sum()
        for own, user in zip(histories, users, strict=True):
            alpha = model.alpha * np.sqrt(len(items) / len(own))
            wanted = np.isin(np.arange(len(items)), own).astype(float)
            total += ((1 + alpha * wanted) * (wanted - items @ user) ** 2).sum()
        return total / len(users)

    rows, gram = np.zeros((8, 3), np.float32), np.zeros((3, 3))
    for own, user in zip(histories, users, strict=True):
        alpha = model.alpha * np.sqrt(8 / len(own))
        rows[own] += np.outer(1 + alpha - alpha * (table[own] @ user), user).astype(np.float32) / len(users)
        gram += np.outer(user, user) / len(users)
    public = replace(model.init_public(8, 0), items=table.astype(np.float32))
    lower = gram[np.tril_indices(3)].astype(np.float32)
    direction, dense = model.direction(public, rows, lower, users=len(users))
    assert dense.size == 0
    for item, place in np.ndindex(8, 3):
        shift = np.zeros((8, 3))
        shift[item, place] = 1e-5
        gradient = (loss(table + shift) - loss(table - shift)) / 2e-5
        assert direction[item, place] == pytest.approx(-gradient / 2, rel=1e-3, abs=1e-5)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0.1, 2))
def test_ials_regularises_in_proportion_to_what_chance_gives(users, items, strength):
    """A nuclear norm is penalised by the geometric mean of the two: it is to be reg (√users + √items)."""
    model = IALS(reg=strength)
    together = np.sqrt(model.user_reg(items) * model.item_reg(items, users))
    assert together == pytest.approx(strength * (np.sqrt(users) + np.sqrt(items)))


def test_ials_keeps_nothing_private_and_refuses_what_it_has_no_use_for():
    model = IALS(dim=4)
    assert model.init_private(np.arange(5, dtype=np.uint64), seed=0).shape == (5, 0)
    assert MODELS.build(model.settings()) == model
    for setting, value in (("negatives", 1), ("loss", "bce"), ("alpha", 0.0), ("reg", float("nan")), ("dim", 0)):
        with pytest.raises(ConfigError, match=f"{setting}.*{value}"):
            replace(model, **{setting: value})
