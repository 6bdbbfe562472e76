"""One trading session of orders, written as files of each venue that publishes single orders."""

import random
import struct
from dataclasses import dataclass

from tests.support.dbn_files import LAST, NANO, plain_header, plain_mbo

DAYS = ("2024-01-02", "2024-01-03")
DBN_T = 1_704_207_600 * NANO  # 2024-01-02T15:00:00Z


@dataclass(frozen=True)
class Op:
    """An order is added, cancelled, or taken in part by an order that leaves no remainder."""

    kind: str  # add, cancel, take
    order: int
    side: str = "B"
    price: int = 0  # in cents
    qty: int = 0
    taker: int = 0


def session(count, seed=1, first=1):
    """Operations that never leave the book crossed; each order has one number from `first` on."""
    rng = random.Random(seed)
    live, made, number = {}, [], first
    while len(made) < count:
        dice = rng.random()
        if dice < 0.55 or len(live) < 10:
            side = rng.choice("BS")
            price = 1000 - rng.randrange(1, 40) if side == "B" else 1000 + rng.randrange(1, 40)
            qty = 100 * rng.randrange(2, 9)
            made.append(Op("add", number, side, price, qty))
            live[number] = [side, price, qty]
            number += 1
            continue
        if dice < 0.85:
            order = rng.choice(sorted(live))
            side, price, qty = live.pop(order)
            made.append(Op("cancel", order, side, price, qty))
            continue
        side = rng.choice([side for side in "BS" if any(o[0] == side for o in live.values())])
        sign = -1 if side == "B" else 1
        order = min((o for o in live if live[o][0] == side), key=lambda o: (sign * live[o][1], o))
        live[order][2] -= 100
        made.append(Op("take", order, side, live[order][1], 100, number))
        number += 1
        if not live[order][2]:
            del live[order]
    return made


def _clock(i):
    """Seconds and milliseconds since midnight: the first ones are in the opening call."""
    return (33_600 if i < 10 else 34_200) + i // 10, i % 10 * 100


def _szse_rows(ops, step):
    """Rows of orders and trades, numbered together from `step` in steps of `step`."""
    ids, rows, number = {}, [], 0
    for i, op in enumerate(ops):
        seconds, millis = _clock(i)
        time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis:03}"
        tail = f"000001,{time},{op.price / 100:.2f},{op.qty}"
        code = {"B": 49, "S": 50}
        if op.kind != "cancel":
            number += step
            ids[op.taker or op.order] = number
            side = op.side if op.kind == "add" else "BS"[op.side == "B"]
            rows.append(("orders", f"{tail},50,{code[side]},2011,{number}"))
        if op.kind != "add":
            number += step
            mine, taker = ids.get(op.order, 0), ids.get(op.taker, 0)
            pair = (mine, taker) if op.side == "B" else (taker, mine)
            letter = 52 if op.kind == "cancel" else 70
            rows.append(("trades", f"{tail},{pair[0]},{pair[1]},{letter},2011,{number}"))
    return rows


SZSE_HEADERS = {
    "orders": "code,time,price,volume,order_kind,function_code,channel,order_index",
    "trades": "code,time,price,volume,bid_order,ask_order,function_code,channel,trade_index",
}


def write_szse(directory, days, step=1, damage=None):
    paths = []
    for day, ops in zip(DAYS, days, strict=False):
        rows = _szse_rows(ops, step)
        if damage is not None and day == DAYS[0]:
            rows = damage(rows)
        for kind, header in SZSE_HEADERS.items():
            path = directory / f"{kind}_{day.replace('-', '')}.csv"
            path.write_text("\n".join([header, *(row for of, row in rows if of == kind)]))
            paths.append(path)
    return paths


def _sse_rows(ops, step):
    rows, number = [], 0
    for i, op in enumerate(ops):
        seconds, millis = _clock(i)
        time = int(f"{seconds // 3600}{seconds // 60 % 60:02}{seconds % 60:02}{millis // 10:02}")
        number += step
        common = f"//SecurityID=600519 ChannelNo=6 BizIndex={number}"
        if op.kind == "take":
            pair = (op.order, op.taker) if op.side == "B" else (op.taker, op.order)
            aggressor = ord("S" if op.side == "B" else "B")
            rows.append(
                f"{common} MsgType=191 BidApplSeqNum={pair[0]} OfferApplSeqNum={pair[1]} "
                f"LastPx={op.price * 10} LastQty={op.qty * 1000} ExecType={aggressor} "
                f"TransactTime={time}"
            )
        else:
            kind = ord("A" if op.kind == "add" else "D")
            rows.append(
                f"{common} MsgType=192 OrderNo={op.order} Price={op.price * 10} "
                f"OrderQty={op.qty * 1000} OrdType={kind} Side={ord(op.side)} TransactTime={time}"
            )
    return rows


def write_sse(directory, days, step=1, damage=None):
    paths = []
    for day, ops in zip(DAYS, days, strict=False):
        rows = _sse_rows(ops, step)
        if damage is not None and day == DAYS[0]:
            rows = damage(rows)
        path = directory / f"sse_{day.replace('-', '')}.log"
        path.write_text("\n".join(rows))
        paths.append(path)
    return paths


def itch_message(kind, number, body, second=36_000):
    """A message of stock 1 with its length; the time is `number` microseconds after `second`."""
    time = (second * NANO + number * 1000).to_bytes(6, "big")
    message = kind + struct.pack(">HH", 1, 0) + time + body
    return struct.pack(">H", len(message)) + message


def _itch_rows(ops, second):
    rows = []
    for number, op in enumerate(ops, 3):
        order = struct.pack(">Q", op.order)
        if op.kind == "add":
            rest = struct.pack(">sI8sI", op.side.encode(), op.qty, b"ACME    ", op.price * 100)
            rows.append(itch_message(b"A", number, order + rest, second))
        elif op.kind == "cancel":
            rows.append(itch_message(b"D", number, order, second))
        else:
            fill = struct.pack(">IQ", op.qty, number)
            rows.append(itch_message(b"E", number, order + fill, second))
    return rows


ITCH_START = itch_message(b"S", 1, b"O")
ITCH_TRADING = itch_message(b"H", 2, b"ACME    T     ")


def write_itch(directory, days, damage=None, start=ITCH_START):
    """Both sessions are on one date: it is an option of the import."""
    paths = []
    for i, ops in enumerate(days):
        rows = _itch_rows(ops, 36_000 * (i + 1))
        if damage is not None and i == 0:
            rows = damage(rows)
        path = directory / f"{i}.itch"
        path.write_bytes(start + ITCH_TRADING + b"".join(rows))
        paths.append(path)
    return paths


def _dbn_rows(ops, at):
    rows = []
    for number, op in enumerate(ops, 1):
        time = {"event": at + number * 1000, "recv": at + number * 1000, "sequence": number}
        letter = b"A" if op.kind == "add" else b"C"
        side = b"B" if op.side == "B" else b"A"
        price = op.price * NANO // 100
        rows.append(plain_mbo(letter, op.order, side, price, op.qty, flags=LAST, **time))
    return rows


def write_dbn(directory, days, damage=None, clear=True):
    """Each day is a part of one file, and begins with a clear."""
    made = [plain_header()]
    for i, ops in enumerate(days):
        at = DBN_T + i * 86_400 * NANO
        rows = _dbn_rows(ops, at)
        if damage is not None and i == 0:
            rows = damage(rows)
        if clear or i:
            made.append(plain_mbo(b"R", 0, b"N", 0, 0, event=at, recv=at, sequence=0))
        made += rows
    path = directory / "orders.dbn"
    path.write_bytes(b"".join(made))
    return [path]


@dataclass(frozen=True)
class OrderFeed:
    """A format: its files, and where its book is in an archive."""

    format: str
    write: object
    venue: str
    symbol: str
    options: dict


FEEDS = {
    "szse": OrderFeed("szse", write_szse, "szse", "000001", {}),
    "sse": OrderFeed("sse", write_sse, "sse", "600519", {}),
    "itch": OrderFeed("itch", write_itch, "nasdaq", "ACME", {"date": DAYS[0]}),
    "dbn": OrderFeed("dbn", write_dbn, "xnas.itch", "7", {}),
}
