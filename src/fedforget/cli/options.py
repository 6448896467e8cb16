"""Options that decide a federation's result, the same for every command that begins one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedforget.device.log.settings import ENCODINGS, POLICIES, SELECTIONS
from fedforget.device.sampling import KINDS
from fedforget.models import MODELS, Recommender, build_model
from fedforget.server.aggregate import RULES

ModelName = Annotated[str, typer.Option("--model", help=f"One of {', '.join(MODELS)}.")]
Seed = Annotated[int, typer.Option(help="Decides every random draw.")]
TestShare = Annotated[float, typer.Option(help="The share of each user's items kept for evaluation.")]
Fraction = Annotated[float, typer.Option(help="The share of clients in a round.")]
Aggregation = Annotated[str, typer.Option(help=f"One of {', '.join(RULES)}.")]
SnapshotEvery = Annotated[int, typer.Option(help="Keep every so-many-th snapshot.")]
SamplerKind = Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")]
PoolShare = Annotated[float, typer.Option("--R", help="Percent of the untouched items in a candidate pool.")]
Beta = Annotated[float, typer.Option(help="β, the share of the usual negatives.")]
Epochs = Annotated[int, typer.Option(help="L, local epochs a round.")]
Batch = Annotated[int, typer.Option(help="Samples in a batch.")]
LearningRate = Annotated[float, typer.Option(help="Learning rate of Adam.")]
Dim = Annotated[int | None, typer.Option(help="Embedding size.")]
InitStd = Annotated[float | None, typer.Option(help="Spread of the initial embeddings.")]
Loss = Annotated[str | None, typer.Option(help="bce or bpr.")]
Negatives = Annotated[int | None, typer.Option(help="N, the usual negatives for each positive.")]
LogEncoding = Annotated[str, typer.Option(help=f"Devices log updates as {', '.join(ENCODINGS)}.")]
LogSelection = Annotated[str, typer.Option(help=f"Which rows: {', '.join(SELECTIONS)}.")]
Alpha = Annotated[float, typer.Option(help="α, the share of item rows logged, unless all are.")]
QuotaBytes = Annotated[int, typer.Option(help="Bytes of log a device may keep; 0 for no limit.")]
WhenFull = Annotated[str, typer.Option(help=f"What gives way then: {', '.join(POLICIES)}.")]


def model_with(name: str, **given: Any) -> Recommender:
    """A model with the settings that were given, and its own for the others."""
    return build_model(name, **{key: value for key, value in given.items() if value is not None})
