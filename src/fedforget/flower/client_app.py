"""The Flower ClientApp: passes messages to the device's ``Host`` and sends its results back.

The node's configuration names the folder of its users' files: ``state="/path"``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedforget.device.host import Host
from fedforget.errors import ConfigError
from fedforget.flower import messages
from fedforget.flower.transport import sealed_reply

if TYPE_CHECKING:
    from fedforget.device.secure_sums import MaskedResults

app = ClientApp()


@app.train("run")
def run(message: Message, context: Context) -> Message:
    """Carry out a task that sends updates."""
    order, task = messages.unpack_order(message.content), messages.unpack_task(message.content)
    public = messages.unpack_public(message.content) if task.needs_parameters else None
    host = _host(context)
    if order.cohorts:
        content = _masked(host.run_masked(task, order, public))
        content["notice"] = messages.pack_notice(host.notice(order))
        return sealed_reply(message, content)
    results = host.run(task, order, public)
    return sealed_reply(message, messages.pack_results(results, host.notice(order)))


@app.evaluate("model")
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the model on this device's users; only sums leave the device."""
    order, public = messages.unpack_order(message.content), messages.unpack_public(message.content)
    host = _host(context)
    if order.cohorts:
        content = _masked(host.evaluate_masked(order, public))
        content["notice"] = messages.pack_notice(host.notice(order))
        return sealed_reply(message, content)
    users, sums = host.evaluate(order, public)
    notice = messages.pack_notice(host.notice(order))
    return sealed_reply(message, RecordDict({"evaluation": MetricRecord({"users": users, **sums}), "notice": notice}))


@app.query("keys")
def keys(message: Message, context: Context) -> Message:
    """Send the users' public keys for secure sums."""
    from fedforget.flower import secure_messages

    federation, users = secure_messages.unpack_key_request(message.content)
    return sealed_reply(message, secure_messages.pack_keys(_host(context).public_keys(federation, users)))


@app.query("reveal")
def reveal(message: Message, context: Context) -> Message:
    """Reveal what removes the masks from secure sums."""
    from fedforget.flower import secure_messages

    revealed = _host(context).reveal(*secure_messages.unpack_reveals(message.content))
    return sealed_reply(message, secure_messages.pack_revealed(revealed))


@app.query("wipe")
def wipe(message: Message, context: Context) -> Message:
    """Remove forgotten users from this device."""
    federation, number, salts = messages.unpack_wipes(message.content)
    wiped = _host(context).wipe_all(federation, number, salts)
    return sealed_reply(message, RecordDict({"wiped": ConfigRecord({"pseudonyms": wiped})}))


def _masked(results: MaskedResults) -> RecordDict:
    from fedforget.flower import secure_messages

    return secure_messages.pack_contributions(results.contributions, results.failures, results.seconds)


def _host(context: Context) -> Host:
    state = context.node_config.get("state")
    if not isinstance(state, str) or not state:
        raise ConfigError(
            "This node's configuration does not name the folder of its users' files.",
            "Start the node with --node-config 'state=\"/path\"'.",
        )
    return Host(Path(state))
