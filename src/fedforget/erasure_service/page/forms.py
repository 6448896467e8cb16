"""Forms: what a browser posts, as text by name of the field."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import Request
from starlette.exceptions import HTTPException

TYPE = "application/x-www-form-urlencoded"
MOST_FIELDS = 20


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a posted form."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != TYPE:
        raise HTTPException(415, f"A form is posted as {TYPE}.")
    try:
        body = (await request.body()).decode()
        pairs = parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError as error:
        raise HTTPException(400, "The form cannot be read.") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise HTTPException(400, "The form has a field twice.")
    return fields
