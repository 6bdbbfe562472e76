"""LOBSTER: a row of the order book for each message, so that each checks the other."""

from tests.mutation.altered import csv_row
from tests.mutation.levels import whole
from tests.mutation.mutants import rows_of
from tests.mutation.sweep import Feed, Followed, Point
from tests.support.lobster_files import Day

LEVELS = 3
MESSAGE = "time,type,order_id,size,price,direction"
ORDERBOOK = ",".join(f"{name}{i}" for i in range(LEVELS) for name in ("ap", "as", "bp", "bs"))
_SIGNS = {1: 1, 2: -1, 3: -1, 4: -1, 5: 0, 6: 0, 7: 0}  # how a type changes the size of its level


class Lobster(Feed):
    """The messages of a stock and the best three levels after each."""

    format = "lobster"

    def __init__(self):
        self._message = csv_row(MESSAGE.split(","))
        self._orderbook = csv_row(ORDERBOOK.split(","))

    def capture(self, rng):
        day = Day(260, seed=rng.randrange(1 << 30), levels=LEVELS)
        pairs = zip(day.messages, day.orderbook, strict=True)
        lines = [line.encode() for pair in pairs for line in pair]
        return rows_of(lines, [0, 1] * (len(lines) // 2))

    def alter(self, rng, data):
        return (self._message if data.count(b",") == 5 else self._orderbook)(rng, data)

    def write(self, directory, rows):
        paths = []
        for file, kind in enumerate(("message", "orderbook")):
            name = f"ACME_2012-06-21_34200000_57600000_{kind}_{LEVELS}.csv"
            paths.append(directory / name)
            lines = [row.data + b"\n" for row in rows if row.file == file]
            paths[-1].write_bytes(b"".join(lines))
        return paths

    def key(self, event):
        return event.native_seq

    def follow(self, rows):
        followed, before = Followed(), None
        files = [[row for row in rows if row.file == file] for file in (0, 1)]
        if len(files[0]) != len(files[1]):
            followed.faults.append("the files have different numbers of rows")
        for line, (message, orderbook) in enumerate(zip(*files, strict=False), 1):
            state, why = None, ""
            try:
                state = _state(orderbook.data)
                change = _change(message.data)
                if before is not None:
                    why = _contradiction(before, change, state)
            except ValueError as error:
                why = repr(error)
            if why:
                followed.faults.append(f"line {line}: {why}")
            before = state
            if state is not None:
                followed.points.append(Point("ACME", line, (orderbook.origin,), state, why))
        return followed


def _state(data):
    """Bids and asks of a row."""
    fields = [whole(text, 0) for text in data.decode().split(",")]
    if len(fields) != 4 * LEVELS:
        raise ValueError("not the fields of a row")
    asks = [(fields[i], fields[i + 1]) for i in range(0, len(fields), 4)]
    bids = [(fields[i], fields[i + 1]) for i in range(2, len(fields), 4)]
    return tuple(tuple(level for level in side if level[1]) for side in (bids, asks))


def _change(data):
    """``(side, price, change of size)`` of a message."""
    time, kind, order, size, price, direction = data.decode().split(",")
    whole(time, 9), whole(order, 0)
    if int(kind) not in _SIGNS or (direction not in ("1", "-1") and int(kind) <= 5):
        raise ValueError("not a direction or a type")
    return (0 if direction == "1" else 1), whole(price, 0), whole(size, 0) * _SIGNS[int(kind)]


def _contradiction(before, change, after):
    """Why the second row cannot follow the first one by this message; empty if it can."""
    side, price, size = change
    for at, (old, new) in enumerate(zip(before, after, strict=True)):
        levels = dict(old)
        if at == side and size:
            levels[price] = levels.get(price, 0) + size
        if any(value < 0 for value in levels.values()):
            worst = old[-1][0] if len(old) == LEVELS else None
            if worst is None or price in dict(old):
                return "more than the level has"
            del levels[price]  # a level that is not visible
        known = sorted((p for p in levels if levels[p]), reverse=at == 0)[:LEVELS]
        expected = [(p, levels[p]) for p in known]
        hidden = len(old) == LEVELS and len(expected) < LEVELS
        if list(new[: len(expected)]) != expected or (len(new) > len(expected) and not hidden):
            return "the rows do not follow each other by the message"
    return ""
