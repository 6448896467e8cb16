"""The one erasure that carries out several requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedforget.erasure_service.subject_requests import SubjectRequest, ids_like
from fedforget.runtime.ids import ItemId, UserId
from fedforget.server.request import ErasureRequest, PartialErasure


def combined(requests: Sequence[SubjectRequest], method: Mapping[str, Any]) -> ErasureRequest:
    """An erasure for all of some requests: users by all ids that they may have; what is unknown is ignored."""
    whole = [user for request in requests if not request.items for user in users_of(request)]
    items: dict[UserId, list[ItemId]] = {}
    for request in requests:
        if request.items:
            for user in users_of(request):
                items.setdefault(user, []).extend(request.items)
    asked = {user: tuple(dict.fromkeys(found)) for user, found in items.items()}
    partial = [PartialErasure(user, len(found), None, found) for user, found in asked.items()]
    return ErasureRequest.new(list(dict.fromkeys(whole)), dict(method), partial=partial)


def users_of(request: SubjectRequest) -> list[UserId]:
    """All ids that the user of a request may have in the run."""
    return [user for text in request.users for user in ids_like(text)]
