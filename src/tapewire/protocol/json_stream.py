"""One long list in a JSON document, read an entry at a time.

`json.loads` builds every object of a document before the first one can be checked: 64 MiB of ``{}``
take 1.7 GB. Here memory is that of one window of text and one entry, whatever the file holds.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from tapewire.protocol.json_file import DECODER, Wrong, check_format, entries_of

__all__ = ["MAX_MEMBERS", "MAX_VALUE_CHARS", "stream_entries"]

MAX_MEMBERS = 16  # of the document: a later release may have a few more than this one

MAX_VALUE_CHARS = 16_384  # of an entry, or of another member's value
_BLOCK_BYTES = 65_536
_SPACE = re.compile(r"[ \t\n\r]*")


def stream_entries(
    file: BinaryIO, format_: str, version: int, member: str, most: int
) -> Iterator[Any]:
    """Each entry of the list `member` of a document of this format and version.

    The document is an object with the members `format`, `version` and `member`, in any order. What
    follows an entry is not read before the next one is asked for: a document is valid only when the
    iteration has ended.

    Example:
        >>> import io
        >>> file = io.BytesIO(b'{"format": "f", "version": 1, "names": ["a", "b"]}')
        >>> list(stream_entries(file, "f", 1, "names", most=10))
        ['a', 'b']

    Raises:
        Wrong: It is not such a document, has more than `most` entries, or an entry has more than
            `MAX_VALUE_CHARS` characters.
        UnsupportedVersion: A later release wrote it.
    """
    window = _Window(file)
    if window.peek() != "{":
        check_format(window.value(), format_, version)
    document: dict[str, Any] = {}
    for name in _names(window):
        if name in document:
            window.refuse("a member is there twice")
        if len(document) == MAX_MEMBERS:
            window.refuse(f"more than {MAX_MEMBERS} members")
        if name == member and window.peek() == "[":
            yield from _entries(window, member, most)
            document[name] = []
        else:
            document[name] = window.value()
        if "format" in document and "version" in document:
            check_format(document, format_, version)  # before what a later release may have added
    if window.peek():
        window.refuse("data past the end of the document")
    entries_of(document, format_, version, member, most)


def _names(window: _Window) -> Iterator[str]:
    """Names of the object that begins here; whoever asks reads the value of each."""
    window.take("{")
    if window.peek() == "}":
        window.take("}")
        return
    while True:
        if window.peek() != '"':
            window.refuse("a member's name is expected")
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
            raise Wrong(f"too many {member}: {member}>{most}, max={most}")
        yield window.value()
        if window.take(",]") == "]":
            return


class _Window:
    """A part of a file of UTF-8, decoded, and the place in it that is read next."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._ended = False
        self._dropped = 0  # characters before this window

    def peek(self) -> str:
        """The next character that is not space; empty at the end of the file."""
        while True:
            found = _SPACE.match(self._text, self._at)
            assert found is not None  # it matches nothing, too
            self._at = found.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._fill()

    def take(self, expected: str) -> str:
        """The next character that is not space, which must be one of these."""
        found = self.peek()
        if not found or found not in expected:
            self.refuse(f"{' or '.join(expected)} is expected")
        self._at += 1
        return found

    def value(self) -> Any:
        """The value that begins here."""
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
        except ValueError as error:  # of the decoder's own rules
            self.refuse(str(error))
        if end - self._at > MAX_VALUE_CHARS:
            self.refuse(f"a value of more than {MAX_VALUE_CHARS} characters")
        self._at = end
        return value

    def refuse(self, why: str) -> NoReturn:
        """Raise `Wrong` with the place."""
        raise Wrong(f"not JSON of ours: {why}: character={self._dropped + self._at}")

    def _fill(self) -> None:
        """Have the largest value from here on, or all that is left."""
        self._dropped += self._at
        self._text, self._at = self._text[self._at :], 0
        while not self._ended and len(self._text) <= MAX_VALUE_CHARS:
            block = self._file.read(_BLOCK_BYTES)
            self._ended = not block
            try:
                self._text += self._decoder.decode(block, final=self._ended)
            except UnicodeDecodeError as error:
                self.refuse(str(error.reason))
