"""Options that decide a federation's result, the same for every command that begins one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Any

import typer

from fedforget.device.log.settings import ENCODINGS, POLICIES, SELECTIONS
from fedforget.device.sampling import KINDS
from fedforget.models import MODELS, Recommender, build_model
from fedforget.presets import Recipe, recipe
from fedforget.server.aggregate import RULES
from fedforget.server.optimiser import OPTIMISERS, build_optimiser

ModelName = Annotated[str, typer.Option("--model", help=f"One of {', '.join(MODELS)}.")]
Seed = Annotated[int, typer.Option(help="Decides every random draw.")]
TestShare = Annotated[float, typer.Option(help="The share of each user's items kept for evaluation.")]
Preset = Annotated[
    str, typer.Option(help="How to train: default, or paper for the recipe of the FRU paper. Other options change it.")
]
Fraction = Annotated[float | None, typer.Option(help="The share of clients in a round.")]
Aggregation = Annotated[str | None, typer.Option(help=f"How updates are combined: {', '.join(RULES)}.")]
ServerOptimiser = Annotated[
    str | None, typer.Option("--optimiser", help=f"How the server applies them: {', '.join(OPTIMISERS)}.")
]
Horizon = Annotated[
    int | None, typer.Option(help="Rounds over which that learning rate falls to a fifth; 0 to keep it constant.")
]
ServerRate = Annotated[float | None, typer.Option("--server-lr", help="Learning rate of the server's optimiser.")]
SnapshotEvery = Annotated[int, typer.Option(help="Keep every so-many-th snapshot.")]
SamplerKind = Annotated[str | None, typer.Option(help=f"One of {', '.join(KINDS)}.")]
PoolShare = Annotated[float | None, typer.Option("--R", help="Percent of the untouched items in a candidate pool.")]
Beta = Annotated[float | None, typer.Option(help="β, the share of the usual negatives.")]
Epochs = Annotated[int | None, typer.Option(help="L, local epochs a round.")]
Batch = Annotated[int | None, typer.Option(help="Samples in a batch.")]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate of Adam on the devices.")]
Refit = Annotated[
    bool | None,
    typer.Option("--refit/--no-refit", help="Fit user vectors to the item table before local training (lightgcn, mf)."),
]
Dim = Annotated[int | None, typer.Option(help="Embedding size.")]
InitStd = Annotated[float | None, typer.Option(help="Spread of the initial embeddings.")]
Loss = Annotated[str | None, typer.Option(help="bce or bpr.")]
Negatives = Annotated[int | None, typer.Option(help="N, the usual negatives for each positive.")]
Regularisation = Annotated[float | None, typer.Option("--reg", help="ials: strength of regularisation; else 0.6.")]
LogEncoding = Annotated[str, typer.Option(help=f"Devices log updates as {', '.join(ENCODINGS)}.")]
LogSelection = Annotated[str, typer.Option(help=f"Which rows: {', '.join(SELECTIONS)}.")]
Alpha = Annotated[float, typer.Option(help="α, the share of item rows logged, unless all are.")]
QuotaBytes = Annotated[int, typer.Option(help="Bytes of log a device may keep; 0 for no limit.")]
WhenFull = Annotated[str, typer.Option(help=f"What gives way then: {', '.join(POLICIES)}.")]


def recipe_with(
    preset: str, model: Recommender, *, optimiser: str | None = None, server_lr: float | None = None,
    horizon: int | None = None, **given: Any,
) -> Recipe:  # fmt: skip
    """The recipe of a preset, changed by the options that were given."""
    usual = recipe(preset, model)
    wanted = {key: value for key, value in given.items() if value is not None}

    def changed(part: Any, **renamed: str) -> Any:
        names = {field.name for field in fields(part)} | set(renamed)
        return replace(part, **{renamed.get(key, key): wanted[key] for key in wanted if key in names})

    step = usual.protocol.optimiser if optimiser is None else build_optimiser(optimiser)
    step = step if server_lr is None else replace(step, lr=server_lr)
    step = step if horizon is None else replace(step, horizon=horizon)
    protocol = replace(changed(usual.protocol), optimiser=step)
    return Recipe(
        usual.model,
        changed(usual.sampler, sampler="kind", r="R"),
        changed(usual.training),
        protocol,
    )


def model_with(name: str, **given: Any) -> Recommender:
    """A model with the settings that were given, and its own for the others."""
    return build_model(name, **{key: value for key, value in given.items() if value is not None})
