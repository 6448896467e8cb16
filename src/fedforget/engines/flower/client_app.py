"""The Flower ClientApp: what arrives at a device, handed to its users' ``Host``, and what it answers.

The node's configuration names the folder of its users' files: ``state="/path"``.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedforget.device.host import Host
from fedforget.engines.flower import messages
from fedforget.engines.flower.post import sealed_reply
from fedforget.errors import ConfigError
from fedforget.evaluation import Ranking, evaluate
from fedforget.evaluation.report import FULL, SAMPLED

app = ClientApp()


@app.train("round")
def train(message: Message, context: Context) -> Message:
    """A round of training."""
    order, public = messages.unpack_single_order(message.content), messages.unpack_public(message.content)
    epochs = messages.unpack_task(message.content, "epochs", int)
    return sealed_reply(message, messages.pack_answers({order.round: _host(context).train(order, public, epochs)}))


@app.train("replay")
def replay(message: Message, context: Context) -> Message:
    """Past rounds, gone through again."""
    order, public = messages.unpack_order(message.content), messages.unpack_public(message.content)
    how = messages.unpack_replay(message.content)
    return sealed_reply(message, messages.pack_answers(_host(context).replay(order, public, how)))


@app.train("recall")
def recall(message: Message, context: Context) -> Message:
    """What the log has for a past round."""
    order = messages.unpack_single_order(message.content)
    n_items = messages.unpack_task(message.content, "n_items", int)
    return sealed_reply(message, messages.pack_answers({order.round: _host(context).recall(order, n_items)}))


@app.evaluate("model")
def measure(message: Message, context: Context) -> Message:
    """How well the model recommends to this device's users: only the means leave it."""
    order, sent = messages.unpack_order(message.content), messages.unpack_public(message.content)
    means = dict.fromkeys([*(f"sampled_{name}" for name in SAMPLED), *(f"full_{name}" for name in FULL)], 0.0)
    count = 0
    with _host(context).looking(order, sent) as found:
        if found is not None and len(found.test):
            result = evaluate(found.score, found.train, found.test, Ranking(), found.workers)
            count = int(result.users.size)
            means = {f"sampled_{name}": value for name, value in result.sampled.items()}
            means |= {f"full_{name}": value for name, value in result.full.items()}
    return sealed_reply(message, RecordDict({"measured": MetricRecord({"users": count, **means})}))


@app.query("wipe")
def wipe(message: Message, context: Context) -> Message:
    """Users left: nothing of them stays on this device."""
    federation = messages.unpack_task(message.content, "federation", str)
    pseudonyms, salts = messages.unpack_wipes(message.content)
    host = _host(context)
    done = [name for name, salt in zip(pseudonyms, salts, strict=True) if host.wipe(federation, salt, name)]
    return sealed_reply(message, RecordDict({"wiped": ConfigRecord({"pseudonyms": done})}))


def _host(context: Context) -> Host:
    state = context.node_config.get("state")
    if not isinstance(state, str) or not state:
        raise ConfigError("This node does not know where its users' files are.", "Start it with --node-config state=…")
    return Host(Path(state))
