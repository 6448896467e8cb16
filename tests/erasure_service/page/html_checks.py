"""What must hold for every page, checked on its HTML."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Parsed(HTMLParser):
    """The elements of a page: (tag, attributes) in order; those that were left open or closed wrongly; and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.wrong: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, *tags: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag in tags]

    def field(self, name: str) -> str:
        """The value of the first input with a name."""
        return next(one["value"] for one in self.all("input") if one.get("name") == name)


def check(text: str) -> Parsed:
    """Nothing inline, no external resource, every field labelled, ids unique, references and structure whole."""
    page = Parsed(text)
    assert not page.wrong, f"elements are not closed in order: {page.wrong}"
    for tag, attributes in page.elements:
        assert tag != "style", "an inline style sheet"
        assert "style" not in attributes, f"an inline style: {attributes}"
        assert not [name for name in attributes if name.startswith("on")], f"an inline script: {attributes}"
        for name in ("src", "href", "action"):
            target = attributes.get(name, "/")
            assert target.startswith(("/", "#")), f"an external address: {target}"
            assert not target.startswith("//"), f"an external address: {target}"
    assert all("src" in one for one in page.all("script")), "an inline script"
    ids = Counter(one["id"] for _, one in page.elements if "id" in one)
    assert not [id_ for id_, count in ids.items() if count > 1], f"ids appear twice: {ids.most_common(3)}"
    labelled = {one["for"] for one in page.all("label")}
    for one in page.all("input", "select", "textarea"):
        if one.get("type") != "hidden" and one.get("aria-hidden") != "true":
            assert one.get("id") in labelled, f"a field without a label: {one}"
    for one in (attributes for _, attributes in page.elements):
        for name in ("aria-labelledby", "aria-describedby", "for", "data-copy"):
            assert set(one.get(name, "").split()) <= ids.keys(), f"{name} refers to nothing: {one}"
        if one.get("href", "").startswith("#"):
            assert one["href"][1:] in ids, f"a link to nothing: {one['href']}"
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == len(page.all("main")) == 1
    assert page.all("title")
    return page
