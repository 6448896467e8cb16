"""Rendering: templates to pages. Everything that a template inserts is escaped, and unknown names are errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from fedforget.erasure_service.page.visitors import Visitor
from fedforget.version import __version__

FOLDER = Path(__file__).parent
#: Code in a docstring.
CODE = re.compile(r"`+([^`]+)`+")
environment = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _code(text: str) -> Markup:
    """A text with what stands between backquotes as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


environment.filters["code"] = _code
environment.globals["version"] = __version__


def render(request: Request, template: str, visitor: Visitor | None, code: int = 200, /, **values: Any) -> HTMLResponse:
    """A page."""
    text = environment.get_template(template).render(visitor=visitor, path=request.url.path, **values)
    return HTMLResponse(text, code)
