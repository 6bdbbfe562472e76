"""Mutants of a good capture: rows are dropped, doubled, swapped or altered."""

import dataclasses
from dataclasses import dataclass

KINDS = ("drop", "double", "swap", "alter", "alter", "alter")
RUNS = (1, 1, 1, 2, 4, 9)  # rows that are dropped, doubled or swapped together


@dataclass(frozen=True)
class Row:
    """A row of a capture.

    Attributes:
        data: Its bytes, without what separates it from the next one.
        origin: Its index in the original capture.
        file: The index of its file.
        cut: Whether bytes are missing, which moves the rows after it in a file of binary messages.
    """

    data: bytes
    origin: int
    file: int = 0
    cut: bool = False


@dataclass(frozen=True)
class Mutant:
    """A capture that differs from the original in one place.

    Attributes:
        kind: "drop", "double", "swap", or "alter" with the field.
        at: The first row of the original that is concerned.
    """

    rows: list[Row]
    kind: str
    at: int


def rows_of(datas, files=None):
    """The rows of an original capture."""
    files = files or [0] * len(datas)
    return [Row(data, i, file) for i, (data, file) in enumerate(zip(datas, files, strict=True))]


def mutate(rows, rng, alter):
    """A random mutant; `alter(rng, data)` returns an altered row, and what was altered in it."""
    kind = rng.choice(KINDS)
    if kind == "alter":
        at = rng.randrange(len(rows))
        data, what = alter(rng, rows[at].data)
        row = dataclasses.replace(rows[at], data=data, cut=len(data) < len(rows[at].data))
        return Mutant([*rows[:at], row, *rows[at + 1 :]], what, at)
    n = rng.choice(RUNS)
    at = rng.randrange(len(rows) - 2 * n)
    run, after, rest = rows[at : at + n], rows[at + n : at + 2 * n], rows[at + 2 * n :]
    if kind == "drop":
        middle = after
    elif kind == "double":
        middle = rng.choice(([*run, *run, *after], [*run, *after, *run]))
    else:
        middle = [*after, *run]
    return Mutant([*rows[:at], *middle, *rest], kind, at)
