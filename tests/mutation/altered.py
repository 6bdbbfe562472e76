"""Alters one field of a row: a digit, a side, a field removed, a row truncated."""

import json
import re
import struct

WORDS = {
    "buy": "sell",
    "sell": "buy",
    "bid": "ask",
    "ask": "bid",
    "true": "false",
    "false": "true",
    "snapshot": "update",
    "update": "snapshot",
    "B": "S",
    "S": "B",
}
_PAIR = re.compile(r"([\w\[\].]+)=(\S*)")


def another(rng, text):
    """The text with another digit; without digits, another word or letter."""
    places = [i for i, letter in enumerate(text) if letter.isdigit()]
    if not places:
        if text in WORDS:
            return WORDS[text]
        places = range(len(text))
        if not text:
            return "1"
        at = rng.choice(places)
        return text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]
    at = rng.choice(places)
    digits = [digit for digit in "0123456789" if digit != text[at]]
    return text[:at] + rng.choice(digits) + text[at + 1 :]


def _truncated(rng, data):
    return data[: rng.randrange(1, len(data))], "truncate"


def csv_row(names):
    """Alters a row of these columns."""

    def alter(rng, data):
        how = rng.random()
        if how < 0.1:
            return _truncated(rng, data)
        fields = data.decode().split(",")
        at = rng.randrange(len(fields))
        if how < 0.2:
            del fields[at]
            return ",".join(fields).encode(), f"remove {names[at]}"
        fields[at] = "" if how < 0.25 else another(rng, fields[at])
        return ",".join(fields).encode(), f"alter {names[at]}"

    return alter


def pairs(rng, data):
    """Alters a line of key=value pairs."""
    how = rng.random()
    if how < 0.1:
        return _truncated(rng, data)
    text = data.decode()
    found = rng.choice(list(_PAIR.finditer(text)))
    what = re.sub(r"\d+", "", found[1])
    if how < 0.2:
        return (text[: found.start()] + text[found.end() :]).encode(), f"remove {what}"
    changed = another(rng, found[2])
    return (text[: found.start(2)] + changed + text[found.end(2) :]).encode(), f"alter {what}"


def json_line(separator):
    """Alters a line ``<time><separator><json>``."""

    def alter(rng, data):
        how = rng.random()
        if how < 0.1:
            return _truncated(rng, data)
        stamp, _, text = data.decode().partition(separator)
        document = json.loads(text)
        places = {}
        for path in _paths(document):
            places.setdefault(_name(path), []).append(path)
        name = rng.choice(["local time", *sorted(places)])
        if name == "local time":
            return (another(rng, stamp) + separator + text).encode(), "alter local time"
        path = rng.choice(places[name])
        removed = how < 0.2
        _change(rng, document, path, removed)
        made = json.dumps(document, separators=(",", ":"))
        return (stamp + separator + made).encode(), f"{'remove' if removed else 'alter'} {name}"

    return alter


def _paths(value, at=()):
    """The paths of all scalars."""
    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        yield at
    for key, inner in items:
        yield from _paths(inner, (*at, key))


def _name(path):
    """The name of a field; the same for all levels of a side."""
    return ".".join(
        "[]" if isinstance(key, int) and i < len(path) - 1 else str(key)
        for i, key in enumerate(path)
    )


def _change(rng, document, path, removed):
    at = document
    for key in path[:-1]:
        at = at[key]
    if removed:
        del at[path[-1]]
        return
    value = at[path[-1]]
    if isinstance(value, bool):
        at[path[-1]] = not value
    elif isinstance(value, int):
        at[path[-1]] = int(another(rng, str(value)))
    else:
        at[path[-1]] = another(rng, value)


def packed(fields_of):
    """Alters a binary message; `fields_of(data)` lists its fields: name, format, offset, letters.

    A letter becomes another one of `letters`; of a number, one decimal digit is changed.
    """

    def alter(rng, data):
        how = rng.random()
        if how < 0.05:
            return _truncated(rng, data)
        name, form, offset, letters = rng.choice(fields_of(data))
        size = struct.calcsize(form)
        if how < 0.1:
            return data[:offset] + data[offset + size :], f"remove {name}"
        if letters:
            others = [letter for letter in letters if letter != data[offset]]
            value = bytes([rng.choice(others)])
        else:
            (number,) = struct.unpack(form, data[offset : offset + size])
            most = 1 << (8 * size - form[-1].islower())
            value = struct.pack(form, int(another(rng, str(number))) % most)
        return data[:offset] + value + data[offset + size :], f"alter {name}"

    return alter
