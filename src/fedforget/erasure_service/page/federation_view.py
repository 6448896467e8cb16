"""FederationView: the health of the federation as a page shows it, from what the worker reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fedforget.erasure_service.page.charts import Chart, accuracy_chart
from fedforget.erasure_service.page.times import span
from fedforget.erasure_service.status import RoundSummary, RunStatus

#: Rounds that are listed one by one.
LISTED = 10


@dataclass(frozen=True)
class FederationView:
    """The federation. ``asked`` and ``answered`` count devices in the newest ``recent`` rounds."""

    federation: str
    place: str
    model: str
    method: str
    rounds: int
    members: int
    items: int
    nodes: int | None
    recent: int
    asked: int
    answered: int
    share: str
    failures: Sequence[tuple[str, int]]
    listed: Sequence[RoundSummary]
    damage: int
    chart: Chart | None


def federation_view(status: RunStatus) -> FederationView | None:
    """The federation; None if the run could not be read yet."""
    if not status.federation:
        return None
    failures: Counter[str] = Counter()
    for one in status.recent:
        failures.update(one.failures)
    asked, answered = sum(one.asked for one in status.recent), sum(one.answered for one in status.recent)
    return FederationView(
        federation=status.federation,
        place="simulated in one process" if status.engine == "simulation" else "devices on a network",
        model=status.model,
        method=str(status.method.get("name", "")),
        rounds=status.rounds,
        members=status.members,
        items=status.items,
        nodes=status.nodes,
        recent=len(status.recent),
        asked=asked,
        answered=answered,
        share=f"{100 * answered / asked:.1f} %" if asked else "",
        failures=failures.most_common(),
        listed=list(reversed(status.recent[-LISTED:])),
        damage=status.fallbacks,
        chart=accuracy_chart(status.accuracy),
    )


def duration(seconds: float) -> str:
    """How long something takes, in words."""
    return "less than a second" if seconds < 1 else f"about {span(seconds)}"
