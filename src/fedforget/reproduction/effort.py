"""Effort: roughly how long a cell takes, for the time left; as multiples of training LightGCN."""

from __future__ import annotations

from collections.abc import Sequence

from fedforget.device.training import LocalTraining
from fedforget.reproduction.cell import Cell, Setting, Treatment
from fedforget.reproduction.ledger import Ledger
from fedforget.reproduction.workshop import Job

#: How long a model trains (measured: LightGCN 10 seconds, NCF 215).
TRAINING = {"ncf": 20.0}
#: What any treatment costs beside its epochs, and what whole updates add to it, as shares of training.
BESIDE, WHOLE = 0.15, 0.3


def training_effort(setting: Setting) -> float:
    """Of training a federation once."""
    return TRAINING.get(setting.model, 1.0) * setting.rounds


def treatment_effort(setting: Setting, treatment: Treatment) -> float:
    """Of recovering it in one way."""
    way = treatment.resolve()
    share = 0.0 if way.method is None else way.method.training_share(LocalTraining().epochs)
    return (share + BESIDE + WHOLE * way.log.whole_updates) * training_effort(setting)


class Gauge:
    """How far some jobs are: a federation counts as trained once any of its cells is done."""

    def __init__(self, todo: Sequence[Job], ledger: Ledger) -> None:
        self.ledger = ledger
        self.cells = [Cell(job.setting, treatment) for job in todo for treatment in job.treatments]
        self.total = sum(training_effort(job.setting) for job in todo) + sum(
            treatment_effort(cell.setting, cell.treatment) for cell in self.cells
        )
        self._before = {row.cell: row for row in ledger.rows()}

    def read(self) -> tuple[int, float]:
        """How many of the cells are done now, and what share of the effort that was."""
        rows = {row.cell: row for row in self.ledger.rows()}
        done = [cell for cell in self.cells if cell in rows and rows[cell] != self._before.get(cell)]
        trained = {cell.setting for cell in done}
        effort = sum(map(training_effort, trained)) + sum(treatment_effort(c.setting, c.treatment) for c in done)
        return len(done), effort / self.total if self.total else 1.0
