"""Reads a long list in a JSON document entry by entry.

`json.loads` builds all objects of a document before the first one can be checked: 64 MiB of ``{}``
take 1.7 GB. This module needs memory for one window of text and one entry, whatever the file holds.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from tapewire.protocol.json_file import DECODER, InvalidField, check_format, entries_of

__all__ = ["MAX_MEMBERS", "MAX_VALUE_CHARS", "stream_entries"]

MAX_MEMBERS = 16  # of the document: a later release may have more than this one

MAX_VALUE_CHARS = 16_384  # of an entry, or of the value of another member
_BLOCK_BYTES = 65_536
_SPACE = re.compile(r"[ \t\n\r]*")


def stream_entries(
    file: BinaryIO, format_: str, version: int, member: str, most: int
) -> Iterator[Any]:
    """Iterate over the list `member` of a document of this format and version.

    The document is an object with the members `format`, `version` and `member`, in any order. Text
    after an entry is read when the next entry is requested, so the document is known to be valid
    only after the iteration has ended.

    Example:
        >>> import io
        >>> file = io.BytesIO(b'{"format": "f", "version": 1, "names": ["a", "b"]}')
        >>> list(stream_entries(file, "f", 1, "names", most=10))
        ['a', 'b']

    Raises:
        InvalidField: The document is invalid, has more than `most` entries, or an entry has more
            than `MAX_VALUE_CHARS` characters.
        UnsupportedVersion: A later release wrote it.
    """
    window = _Window(file)
    if window.peek() != "{":
        check_format(window.value(), format_, version)
    document: dict[str, Any] = {}
    for name in _names(window):
        if name in document:
            window.refuse("duplicate member")
        if len(document) == MAX_MEMBERS:
            window.refuse(f"more than {MAX_MEMBERS} members")
        if name == member and window.peek() == "[":
            yield from _entries(window, member, most)
            document[name] = []
        else:
            document[name] = window.value()
        if "format" in document and "version" in document:
            check_format(document, format_, version)  # before members that a later release added
    if window.peek():
        window.refuse("data past the end of the document")
    entries_of(document, format_, version, member, most)


def _names(window: _Window) -> Iterator[str]:
    """Iterate over the member names of an object; the caller reads the value of each."""
    window.take("{")
    if window.peek() == "}":
        window.take("}")
        return
    while True:
        if window.peek() != '"':
            window.refuse("expected the name of a member")
        name: str = window.value()
        window.take(":")
        yield name
        if window.take(",}") == "}":
            return


def _entries(window: _Window, member: str, most: int) -> Iterator[Any]:
    window.take("[")
    if window.peek() == "]":
        window.take("]")
        return
    count = 0
    while True:
        count += 1
        if count > most:
            raise InvalidField(f"too many {member}: {member}>{most}, max={most}")
        yield window.value()
        if window.take(",]") == "]":
            return


class _Window:
    """A decoded part of a UTF-8 file, and the current position in it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        self._dropped = 0  # characters before this window

    def peek(self) -> str:
        """Return the next character that is not white space; empty at the end of the file."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None  # it also matches the empty string
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._fill()

    def take(self, expected: str) -> str:
        """Consume the next character that is not white space; it must be one of `expected`."""
        found = self.peek()
        if not found or found not in expected:
            self.refuse(f"expected {' or '.join(expected)}")
        self._at += 1
        return found

    def value(self) -> Any:
        """Consume and return a JSON value."""
        self.peek()
        if len(self._text) - self._at < MAX_VALUE_CHARS:
            self._fill()
        try:
            value, end = DECODER.raw_decode(self._text, self._at)
        except RecursionError:
            self.refuse("nested too deep")
        except json.JSONDecodeError as error:
            limit = "" if self._ended else f", or a value of more than {MAX_VALUE_CHARS} characters"
            self.refuse(f"{error.msg}{limit}")
        except ValueError as error:  # from the hooks of DECODER
            self.refuse(str(error))
        if end - self._at > MAX_VALUE_CHARS:
            self.refuse(f"a value of more than {MAX_VALUE_CHARS} characters")
        self._at = end
        return value

    def refuse(self, why: str) -> NoReturn:
        """Raise `InvalidField` with the position."""
        raise InvalidField(f"not valid JSON: {why}: character={self._dropped + self._at}")

    def _fill(self) -> None:
        """Read until the window holds the longest value allowed, or the rest of the file."""
        self._dropped += self._at
        self._text, self._at = self._text[self._at :], 0
        while not self._ended and len(self._text) <= MAX_VALUE_CHARS:
            block = self._file.read(_BLOCK_BYTES)
            self._ended = not block
            try:
                self._text += self._decoder.decode(block, final=self._ended)
            except UnicodeDecodeError as error:
                self.refuse(str(error.reason))
