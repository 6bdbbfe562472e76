"""Seeded captures, and the content of an archive after an import, field by field."""

import gzip
import json
import random

import tapewire as tw
from tapewire import bus
from tapewire.book.gaps import GapLedger

MIDNIGHT_NS = 1_700_006_400 * 10**9  # 2023-11-15T00:00:00Z
_AT = b"1700006400000000000 "
BAD_ROWS = (
    b"not a capture",
    _AT + b'{"stream":"x","da',
    _AT + b'{"data":{"e":"depthUpdate","s":"AAA","U":"1","u":2,"pu":0,"b":[],"a":[]}}',
    _AT + b'{"data":{"e":"unknownEvent","s":"AAA"}}',
    _AT + b'{"data":{"e":"trade","s":"AAA","t":1,"T":1,"p":"0.123456789","q":"1","m":true}}',
    b"\xff\xfe\x00",
)


def level(rng, above=0):
    return [f"{above + rng.randrange(1, 100)}.5", f"{rng.choice((0, 0, 1, 2, 3))}.25"]


def futures_lines(lines, *, seed=1, symbols=("AAA", "BBB"), bad_every=97, gap_at=None):
    """Lines of a Binance USD-M capture over midnight, every `bad_every`-th a bad row.

    Each symbol starts with a snapshot, and no book is crossed. At line `gap_at` a diff of the
    first symbol is left out.
    """
    rng = random.Random(seed)
    ids = dict.fromkeys(symbols, 100)
    made = [
        snapshot_line(MIDNIGHT_NS - 10**9, 100, [["10.5", "1"]], [["111.5", "2"]], symbol)
        for symbol in symbols
    ]
    for i in range(lines):
        time_ns = MIDNIGHT_NS + (i - lines // 2) * 1000
        symbol = rng.choice(symbols)
        if bad_every and i % bad_every == 0:
            made.append(BAD_ROWS[i // bad_every % len(BAD_ROWS)])
            continue
        kind = rng.choice(("depth", "depth", "trade", "ticker"))
        if kind == "depth" or i == gap_at:
            symbol = symbols[0] if i == gap_at else symbol
            previous = ids[symbol]
            ids[symbol] += rng.randrange(1, 5)
            if i == gap_at:
                continue
            data = {
                "e": "depthUpdate",
                "E": time_ns // 10**6,
                "T": time_ns // 10**6,
                "s": symbol,
                "U": previous + 1,
                "u": ids[symbol],
                "pu": previous,
                "b": [level(rng) for _ in range(rng.randrange(4))],
                "a": [level(rng, above=100) for _ in range(rng.randrange(4))],
            }
        elif kind == "trade":
            data = {"e": "trade", "s": symbol, "t": i, "T": time_ns // 10**6}
            data |= {"p": level(rng)[0], "q": "1.5", "m": rng.random() < 0.5}
        else:
            data = {"e": "bookTicker", "s": symbol, "u": ids[symbol], "T": time_ns // 10**6}
            data |= {"b": "10.5", "B": "1", "a": "11.5", "A": "2"}
        made.append(capture_line(time_ns, {"stream": symbol, "data": data}))
    return made


def uncrossed(lines):
    """The same messages with asks a thousand higher, above every bid."""
    made = []
    for line in lines:
        stamp, _, text = line.partition(b" ")
        document = json.loads(text)
        data = document.get("data", document)
        for side in {"a", "asks"} & data.keys():
            if type(data[side]) is list:
                data[side] = [[str(float(price) + 1000), size] for price, size in data[side]]
        made.append(stamp + b" " + json.dumps(document).encode())
    return made


def snapshot_line(time_ns, last_update, bids, asks, symbol=None):
    document = {"lastUpdateId": last_update, "bids": bids, "asks": asks}
    return capture_line(time_ns, document | ({"symbol": symbol} if symbol else {}))


def capture_line(time_ns, document):
    return f"{time_ns} {json.dumps(document)}".encode()


def write_capture(path, lines):
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(line + b"\n" for line in lines)
    return path


def logs_of(archive, stream=None):
    """``{path below the archive: directory}`` of every log, sorted, a symbol's days in order."""
    directories = sorted(meta.parent for meta in archive.glob("v1/*/*/*/*/control.meta"))
    wanted = [directory for directory in directories if stream is None or directory.name == stream]
    return {directory.relative_to(archive).as_posix(): directory for directory in wanted}


def book_logs(archive, venue, symbol):
    """The directories of a symbol's books, in order of days."""
    layout = bus.ArchiveLayout(archive)
    return [layout.log(venue, symbol, day, "book") for day in layout.dates(venue, symbol)]


def content_of(archive):
    """Everything that an import writes: records, gaps, rejected rows, instruments."""
    content = {}
    for name, directory in logs_of(archive).items():
        with tw.open_log(directory) as log:
            content[name] = [
                (record.seq, record.timestamp_ns, record.type_id, bytes(record.payload))
                for record in log
            ]
        content[name, "gaps"] = GapLedger(directory).read()
    for path in sorted(archive.glob("imports/*/rejected.jsonl")):
        content[path.parent.name] = path.read_text()
    content["instruments"] = json.loads((archive / "instruments.json").read_bytes())
    return content


def is_loss(payload):
    """Whether a payload is a book event that marks a loss."""
    return payload[56:57] == b"\x05"


def without_losses(rows):
    """The rows of a stream in `content_of`, except book events that mark a loss."""
    return [row for row in rows if not is_loss(row[3])]
