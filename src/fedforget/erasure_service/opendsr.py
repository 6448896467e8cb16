"""The OpenDSR 2.0 API: the standard's requests, answers and errors."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from fedforget.attestation.canonical_json import canonical
from fedforget.erasure_service.subject_requests import State, SubjectRequest

VERSION: Literal["2.0"] = "2.0"
PREFIX = f"/opendsr/{VERSION}"
#: The identities and types of requests that are supported.
IDENTITY, FORMAT, ERASURE = "controller_customer_id", "raw", "erasure"
Regulation = Literal["gdpr", "ccpa", "lgpd", "uk_gdpr", "pipeda", "appi", "other"]
REGULATIONS: tuple[str, ...] = get_args(Regulation)
#: Most identities, items and callbacks of a request, and characters of an id.
MOST_IDENTITIES, MOST_ITEMS, MOST_CALLBACKS, LONGEST_ID = 10, 1000, 5, 512

#: No regulation asks for erasure before.
EARLIEST = datetime(2016, 1, 1, tzinfo=UTC)
RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

Id = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_ID, pattern=r"^[^\x00-\x1f\x7f]+$")]
#: Items are named as they are in the data: by whole numbers or by text.
Item = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)] | Id
#: A key with this in it may be meant to name items.
MEANS_ITEMS = re.compile(r"(?i)item|extension|fed[^a-z]*forget")


class Asked(BaseModel):
    """A part of a request. Unknown keys are ignored, as in the standard, unless they may be meant to name items.

    Without the items the whole person would be forgotten, which cannot be undone.
    """

    @model_validator(mode="before")
    @classmethod
    def _has_no_misspelt_items(cls, values: object) -> object:
        for key, value in values.items() if isinstance(values, dict) else ():
            inner = value if isinstance(value, dict) else ()
            if key not in cls.model_fields and any(MEANS_ITEMS.search(str(name)) for name in (key, *inner)):
                raise ValueError(f"has the unknown key {str(key)[:64]!r}; items stand in extensions.fedforget.items")
        return values


class Identity(Asked):
    """Who asks to be forgotten."""

    identity_type: Annotated[str, StringConstraints(max_length=64)]
    identity_value: Id
    identity_format: Annotated[str, StringConstraints(max_length=32)] = FORMAT


class FedforgetExtension(BaseModel):
    """With ``items`` only these items of the person are forgotten, who stays a member."""

    model_config = ConfigDict(extra="forbid")
    items: Annotated[list[Item], Field(min_length=1, max_length=MOST_ITEMS)]


class Extensions(Asked):
    """Extensions of the standard; others are ignored."""

    fedforget: FedforgetExtension | None = None


class CreateRequest(Asked):
    """A request to forget a person."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "regulation": "gdpr",
                "subject_request_id": "a7551968-d5d6-44b2-9831-815ac9017798",
                "subject_request_type": ERASURE,
                "submitted_time": "2026-11-01T15:00:00Z",
                "subject_identities": [{"identity_type": IDENTITY, "identity_value": "17", "identity_format": FORMAT}],
            }
        }
    )
    regulation: Regulation
    subject_request_id: UUID
    subject_request_type: Literal["erasure"]
    submitted_time: AwareDatetime
    subject_identities: Annotated[list[Identity], Field(min_length=1, max_length=MOST_IDENTITIES)]
    api_version: Literal["2.0"] = VERSION
    status_callback_urls: Annotated[
        list[Annotated[str, StringConstraints(max_length=2000)]], Field(max_length=MOST_CALLBACKS)
    ] = []
    extensions: Extensions = Extensions()

    @field_validator("subject_request_id")
    @classmethod
    def _is_random(cls, value: UUID) -> UUID:
        if value.version != 4:
            raise ValueError("is not a UUID of version 4")
        return value

    @field_validator("submitted_time", mode="before")
    @classmethod
    def _is_rfc3339(cls, value: object) -> object:
        if not isinstance(value, str) or not RFC3339.fullmatch(value):
            raise ValueError("is not a time with an offset as in RFC 3339, such as 2026-11-01T15:00:00Z")
        return value

    @field_validator("submitted_time")
    @classmethod
    def _is_recent(cls, value: datetime) -> datetime:
        if value < EARLIEST:
            raise ValueError(f"is before {EARLIEST.year}")
        return value

    @field_validator("subject_identities")
    @classmethod
    def _has_supported(cls, values: list[Identity]) -> list[Identity]:
        if not any(one.identity_type == IDENTITY and one.identity_format == FORMAT for one in values):
            raise ValueError(f"has no identity of type {IDENTITY} and format {FORMAT}")
        return values

    @property
    def users(self) -> list[str]:
        """The user ids among the identities."""
        supported = [one for one in self.subject_identities if one.identity_type == IDENTITY]
        return list(dict.fromkeys(one.identity_value for one in supported if one.identity_format == FORMAT))

    @property
    def items(self) -> list[int | str]:
        """The items to forget; none for the whole person."""
        return [] if self.extensions.fedforget is None else list(dict.fromkeys(self.extensions.fedforget.items))

    def canonical(self) -> bytes:
        """The same for all ways to write the request: order of keys, white space, offset of the time."""
        return canonical({**self.model_dump(mode="json"), "submitted_time": self.submitted_time.timestamp()})


class Created(BaseModel):
    """A request is accepted."""

    controller_id: str
    expected_completion_time: str
    received_time: str
    encoded_request: str
    subject_request_id: str


class Status(BaseModel):
    """The state of a request. ``results_url`` is the signed confirmation of a completed one."""

    controller_id: str
    subject_request_id: str
    request_status: State
    api_version: str = VERSION
    received_time: str
    expected_completion_time: str
    completed_time: str | None = None
    results_url: str | None = None
    results_count: int | None = None


class Cancelled(BaseModel):
    """A request is cancelled."""

    controller_id: str
    subject_request_id: str
    received_time: str
    encoded_request: str = ""
    api_version: str = VERSION


class SupportedIdentity(BaseModel):
    """An identity that requests may use."""

    identity_type: str
    identity_format: str


class Discovery(BaseModel):
    """What this processor supports."""

    api_version: str
    supported_identities: list[SupportedIdentity]
    supported_subject_request_types: list[str]
    supported_extensions: list[str]
    processor_certificate: str


class ErrorItem(BaseModel):
    """One error in a request."""

    domain: str
    reason: str
    message: str


class ErrorDetail(BaseModel):
    """What is wrong."""

    code: int
    message: str
    errors: list[ErrorItem]


class ErrorBody(BaseModel):
    """An error, in the standard's form."""

    error: ErrorDetail


def error_body(code: int, message: str, errors: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    """An error; ``errors`` are reasons with messages."""
    given = [(message, message)] if errors is None else errors
    items = [{"domain": "OpenDSR", "reason": reason, "message": text} for reason, text in given]
    return {"error": {"code": code, "message": message, "errors": items}}


def rfc3339(seconds: float) -> str:
    """A time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def created(request: SubjectRequest, id_: str, body: bytes) -> Created:
    """The answer to a new request."""
    return Created(
        controller_id=request.holder,
        expected_completion_time=rfc3339(request.expected),
        received_time=rfc3339(request.received),
        encoded_request=b64encode(body).decode(),
        subject_request_id=id_,
    )


def status_of(request: SubjectRequest, id_: str, base: str) -> Status:
    """The state of a request, for an answer or a callback."""
    done = request.state == State.COMPLETED
    return Status(
        controller_id=request.holder,
        subject_request_id=id_,
        request_status=request.told,
        received_time=rfc3339(request.received),
        expected_completion_time=rfc3339(request.expected),
        completed_time=None if not done or request.finished is None else rfc3339(request.finished),
        results_url=f"{base}{PREFIX}/opendsr_requests/{id_}/confirmation" if done else None,
        results_count=len(request.pseudonyms) if done else None,
    )
