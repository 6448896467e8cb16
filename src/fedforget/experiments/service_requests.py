"""Erasure requests for benchmarks of the service: their bodies, many at once, and what the files say about them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget.attestation.verify import verify_run
from fedforget.experiments.http_connection import HttpConnection
from fedforget.protocol.pseudonym import pseudonym
from fedforget.simulation.federation import Federation

PATH = "/opendsr/2.0/opendsr_requests"
#: Characters of a reference in lists.
REFERENCE = 16


@dataclass(frozen=True)
class Asked:
    """A request to forget a user."""

    id: str
    user: int

    @classmethod
    def new(cls, user: int) -> Asked:
        return cls(str(uuid.uuid4()), user)

    @property
    def path(self) -> str:
        return f"{PATH}/{self.id}"

    @property
    def reference(self) -> str:
        """What stands for it in lists."""
        return hashlib.sha256(uuid.UUID(self.id).bytes).hexdigest()[:REFERENCE]

    @property
    def name(self) -> str:
        """The user's pseudonym in signed receipts, which is made of the id as text."""
        return pseudonym(str(self.user), uuid.UUID(self.id).hex)

    def body(self) -> bytes:
        identity = {
            "identity_type": "controller_customer_id",
            "identity_value": str(self.user),
            "identity_format": "raw",
        }
        values = {
            "regulation": "gdpr",
            "subject_request_id": self.id,
            "subject_request_type": "erasure",
            "submitted_time": datetime.now(UTC).isoformat(),
            "subject_identities": [identity],
        }
        return json.dumps(values).encode()


async def post_all(
    address: tuple[str, int], token: str, bodies: Sequence[bytes], connections: int, on_answer: Callable[[int], None]
) -> dict[int, int]:
    """Post all bodies at once over some connections; the status of each that was answered, by its place.

    A connection that the service has closed is not opened again. ``on_answer`` gets the number of answers so far.
    """
    answers: dict[int, int] = {}
    places = iter(range(len(bodies)))

    async def post() -> None:
        connection = HttpConnection(*address, token)
        try:
            for place in places:
                answers[place], _ = await connection.call("POST", PATH, bodies[place])
                on_answer(len(answers))
        except (OSError, EOFError, ValueError):
            pass  # the service was killed
        finally:
            await connection.close()

    await asyncio.gather(*(post() for _ in range(connections)))
    return answers


def carried_out(run: Path, asked: Sequence[Asked]) -> dict[str, Any]:
    """What the files of a run say about requests: how many were carried out never, or more than once."""
    named = Counter[str]()
    erasures: dict[str, set[str]] = {}
    for path in run.glob("receipts/signed/*.json"):
        predicate = json.loads(b64decode(json.loads(path.read_bytes())["payload"]))["predicate"]
        erasures.setdefault(predicate["request"], set()).update(each["pseudonym"] for each in predicate["persons"])
    for names in erasures.values():
        named.update(names)
    with closing(Federation.open(run)) as fed:
        members = set(fed.members)
        forgotten = sum(len(receipt.users) for receipt in fed.receipts())
    return {
        "never": sum(named[one.name] == 0 or one.user in members for one in asked),
        "twice": sum(named[one.name] > 1 for one in asked),
        "forgotten": forgotten,
        "verified": verify_run(run).passed,
    }
