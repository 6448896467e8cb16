"""Wanted: what a search for traces looks for, in every form in which files can hold it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import AnyStr, Literal, NamedTuple

from fedforget.runtime.ids import ItemId, UserId
from fedforget.runtime.randomness import user_key

#: Shorter text stands in files by chance: it is compared with whole values, and looked for beside the word "user".
SHORTEST = 6
#: The same for ids that are numbers, by their digits.
SHORTEST_NUMBER = 12
#: Hexadecimal digits of a salt.
SALT_DIGITS = 32
USER_FIELD = re.compile(r"(?i)(^|.*(?<!per)[_.\s-])(user|member|participant|person|subject|customer)(_?id)?s?$")
ITEM_FIELD = re.compile(r"(?i)(^|.*_)items?(_ids?)?$")
#: What stands before an id or a list of ids; an entry of a list before the next one; the id in an entry.
AFTER_USER = re.compile(r"""(?i)\buser(s?['"]?[\s:=#\[({]*)""")
ENTRY = re.compile(r"""['"]?[\w@.-]{1,600}+['"]?,\s*""")
WORD = re.compile(r"""['"]?((?:[\w@-]|\.(?=\w)){1,600})""")
ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")
ID, KEY, SALT = "id", "key", "salt"


class Value(NamedTuple):
    """A value in a file with the name of its field. ``many``: it is one of several, such as an entry of a list.

    ``text``: texts are told from numbers there, so that a number as text is an id.
    """

    field: str
    value: object
    many: bool = False
    text: bool = False


@dataclass(frozen=True)
class _Id:
    """An id as text. ``longer`` are known ids that contain it, as in person-1 and person-12."""

    text: str
    longer: tuple[str, ...]

    @property
    def is_number(self) -> bool:
        return re.fullmatch(r"-?\d+", self.text) is not None

    @property
    def is_rare(self) -> bool:
        """Whether it stands nowhere by chance."""
        return len(self.text) >= (SHORTEST_NUMBER if self.is_number else SHORTEST)


class Wanted:
    """Ids of users, the keys of their random draws, and salts.

    ``known`` are ids of others and of items: an id is not found within a longer one of these.
    """

    def __init__(
        self, users: Sequence[UserId], salts: Sequence[str] = (), known: Iterable[UserId | ItemId] = ()
    ) -> None:
        texts = {str(user) for user in users}
        others = [text for text in map(str, known) if text not in texts]
        self._ids = {text: _Id(text, tuple(other for other in others if text in other)) for text in texts}
        self._keys = {user_key(user) for user in users}
        texts_of = {text: KEY for key in self._keys for text in _key_texts(key)}
        texts_of |= {text: SALT for salt in salts for text in _salt_texts(salt)}
        self._texts = texts_of
        self._marks = {form: kind for text, kind in texts_of.items() for form in _encoded(text)}
        self._marks |= {key.to_bytes(8, order): KEY for key in self._keys for order in ORDERS}
        self._marks |= {bytes.fromhex(salt): SALT for salt in salts if len(salt) == SALT_DIGITS}
        self._raw = [(form, one, encoding) for one in self._ids.values() for form, encoding in _id_forms(one)]
        whole = (len(_escaped(text)) for one in self._ids.values() for text in (one.text, *one.longer))
        #: No form, nor a longer id that contains one, has more bytes.
        self.reach = max([*map(len, self._marks), *(2 * size for size in whole), 1])

    def marks_in(self, content: bytes) -> set[str]:
        """The kinds of keys and salts anywhere in some bytes."""
        return {kind for form, kind in self._marks.items() if form in content}

    def ids_in(self, content: bytes, start: int = 0, end: int | None = None) -> set[str]:
        """Whether an id begins anywhere in some bytes, or from one place to another, unless it is short."""
        end = len(content) if end is None else end
        found = any(_stands(content, form, one, encoding, start, end) for form, one, encoding in self._raw)
        return {ID} if found else set()

    def in_value(self, value: Value) -> set[str]:
        """What the value of a field has."""
        found = value.value
        if isinstance(found, bytes):
            return self.marks_in(found) | self.ids_in(found)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, int) and not isinstance(found, bool):
            return self._in_number(value, found)
        return self._in_text_value(value, found) if isinstance(found, str) else set()

    def in_text(self, text: str) -> set[str]:
        """What a text without fields has: long ids anywhere, others in quotes or after the word "user"."""
        content = _utf8(text)
        return self.marks_in(content) | (self.ids_in(content) or ({ID} if self._named_in(text) else set()))

    def in_name(self, name: str) -> set[str]:
        """What the name of a file or folder has."""
        stem = name.partition(".")[0]
        found = (
            stem in self._ids or name in self._ids or any(o.is_rare and _as_word(o, name) for o in self._ids.values())
        )
        return self.marks_in(name.encode("utf-8", "replace")) | ({ID} if found else set())

    def hidden(self, name: str) -> str:
        """A path without ids, keys and salts, to be shown and stored."""
        forms = self._texts.keys() | self._ids.keys()
        parts = name.split("/")
        return "/".join(_blanked(part, forms) if self.in_name(part) else part for part in parts)

    def _named_in(self, text: str) -> bool:
        """Whether a text has an id in quotes, or in a list of ids after the word "user"."""
        if any(f"'{id_}'" in text or f'"{id_}"' in text for id_ in self._ids):
            return True
        words = {id_.lower() for id_ in self._ids}
        others = "|".join(re.escape(id_) for id_ in self._ids if not WORD.fullmatch(id_)) or "(?!)"
        other = rf"""['"]?(?:{others})(?![\w@-]|\.\w)"""
        if re.search(AFTER_USER.pattern + other, text):
            return True
        listed = re.compile(rf"(?i){other}")
        for place in _list_places(text):
            word = WORD.match(text, place)
            if (word is not None and word[1].lower() in words) or listed.match(text, place):
                return True
        return False

    def _in_number(self, value: Value, number: int) -> set[str]:
        if number in self._keys or number % (1 << 64) in self._keys:
            return {KEY}
        one = self._ids.get(str(number))
        return {ID} if one is not None and (one.is_rare or _names_user(value)) else set()

    def _in_text_value(self, value: Value, text: str) -> set[str]:
        found = self.marks_in(_utf8(text))
        one = self._ids.get(text.strip())
        if one is not None and (one.is_rare or not one.is_number or _names_user(value) or _is_text(value)):
            return found | {ID}
        if not ITEM_FIELD.match(value.field) and any(o.is_rare and _as_word(o, text) for o in self._ids.values()):
            return found | {ID}
        return found


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _names_user(value: Value) -> bool:
    """Whether a number in this field is a user: ``user`` is one, ``users`` only in a list, else it is a count."""
    named = USER_FIELD.match(value.field)
    if named is None:
        return False
    return value.many or isinstance(value.value, str) or not value.field.lower().endswith("s")


def _is_text(value: Value) -> bool:
    return value.text and not value.many and not ITEM_FIELD.match(value.field)


def _key_texts(key: int) -> list[str]:
    signed = key - (1 << 64) if key >> 63 else key
    return [f"{key:016x}", f"{key:016X}", str(key), str(signed)]


def _salt_texts(salt: str) -> list[str]:
    texts = [salt, str(uuid.UUID(salt))] if len(salt) == SALT_DIGITS else [salt]
    return [form for text in texts for form in (text.lower(), text.upper())]


def _encoded(text: str) -> list[bytes]:
    return [text.encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be")]


def _id_forms(one: _Id) -> list[tuple[bytes, str]]:
    """The bytes that stand for an id, with the encoding that longer ids have there; none for a short one."""
    if not one.is_rare:
        return []
    forms = [(one.text.encode(name, "replace"), name) for name in ("utf-8", "utf-16-le", "utf-16-be")]
    forms += [(_escaped(one.text), "escaped")]
    if not one.text.isascii() and all(ord(letter) < 256 for letter in one.text):
        forms.append((one.text.encode("latin-1"), "latin-1"))
    return list(dict(forms).items())


def _escaped(text: str) -> bytes:
    return json.dumps(text)[1:-1].encode()


def _stands(content: bytes, form: bytes, one: _Id, encoding: str, start: int, end: int) -> bool:
    """Whether a form of an id begins in a range, other than in a longer known id or a longer number."""
    longer = [_escaped(o) if encoding == "escaped" else o.encode(encoding, "replace") for o in one.longer]
    place = content.find(form, start)
    while 0 <= place < end:
        if not _within(content, place, form, longer) and not (one.is_number and _in_number(content, place, form)):
            return True
        place = content.find(form, place + 1)
    return False


def _within(content: AnyStr, place: int, form: AnyStr, longer: Sequence[AnyStr]) -> bool:
    """Whether what stands at a place is part of one of some longer forms."""
    for other in longer:
        offset = other.find(form)
        while offset >= 0:
            if place >= offset and content.startswith(other, place - offset):
                return True
            offset = other.find(form, offset + 1)
    return False


def _in_number(content: bytes, place: int, form: bytes) -> bool:
    around = content[max(place - 1, 0) : place] + content[place + len(form) : place + len(form) + 1]
    return any(byte in b"0123456789." for byte in around)


def _as_word(one: _Id, text: str) -> bool:
    """Whether a text has an id as a word, and not as a part of a longer known id."""
    if one.text not in text:
        return False
    for found in re.finditer(re.escape(one.text), text):
        before, after = text[max(found.start() - 1, 0) : found.start()], text[found.end() : found.end() + 1]
        joined = (before.isalnum() and one.text[0].isalnum()) or (after.isalnum() and one.text[-1].isalnum())
        if not joined and not _within(text, found.start(), one.text, one.longer):
            return True
    return False


def _list_places(text: str) -> Iterator[int]:
    """Where the entries of lists after the word "user" begin; those after the first once for all lists."""
    reached = -1
    for head in AFTER_USER.finditer(text):
        for place in (head.start(1), head.end()):
            yield place
            entry = ENTRY.match(text, place)
            while entry is not None and entry.end() > reached:
                reached = entry.end()
                yield reached
                entry = ENTRY.match(text, reached)


def _blanked(part: str, forms: Iterable[str]) -> str:
    for form in sorted(forms, key=len, reverse=True):
        part = part.replace(form, "…") if form else part
    return part
