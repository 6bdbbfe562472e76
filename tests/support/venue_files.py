"""Seeded files of venues, with bad rows among the valid ones."""

import gzip
import random
import struct

from tests.support.dbn_files import random_mbo
from tests.support.lobster_files import Day

T_US = 1_700_006_399_000_000  # 2023-11-14T23:59:59Z: the day changes within the file


def tardis(directory, rows, seed=1):
    rng = random.Random(seed)
    lines = ["exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"]
    for i in range(rows):
        time_us = T_US + 2_000_000 * i // rows
        symbol = rng.choice(("AAA", "B/B"))
        price, amount = rng.randrange(1, 500) / 4, rng.choice((0, 1, 2.5))
        first = "true" if i < 50 else "false"
        side = rng.choice(("bid", "ask")) if i % 997 else "sideways"
        lines.append(f"x,{symbol},{time_us},{time_us},{first},{side},{price},{amount}")
    path = directory / "incremental.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return [path], {}


def szse(directory, rows, seed=1):
    rng = random.Random(seed)
    orders = ["code,time,price,volume,order_kind,function_code,channel,order_index"]
    trades = ["code,time,price,volume,bid_order,ask_order,function_code,channel,trade_index"]
    live = []
    for number in range(1, rows + 1):
        second = 34_200 + number * 7_000 // rows
        clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.010"
        code = rng.choice(("000001", "000002"))
        if live and rng.random() < 0.4:
            code, order = live.pop(rng.randrange(len(live)))
            trades.append(f"{code},{clock},0,100,{order},0,52,2011,{number}")
        else:
            price = rng.choice(("10.529999999999999", "10.5", "-1", "ten"))
            orders.append(f"{code},{clock},{price},100,50,49,2011,{number}")
            live.append((code, number))
    paths = [directory / "orders.csv", directory / "trades.csv"]
    for path, lines in zip(paths, (orders, trades), strict=True):
        path.write_text("\n".join(lines))
    return paths, {"date": "2023-11-14"}


def sse(directory, rows, seed=1):
    rng = random.Random(seed)
    lines = []
    for number in range(1, rows + 1):
        time = 9_300_000 + number * 30 // rows * 10_000
        common = f"//SecurityID={rng.choice(('600519', '600000'))} ChannelNo=6 BizIndex={number}"
        kind = rng.randrange(100)
        if kind < 60:
            lines.append(
                f"{common} MsgType=192 OrderNo={number} Price={rng.randrange(1000, 2000)}0 "
                f"OrderQty=100000 OrdType=65 Side={rng.choice((66, 83))} TransactTime={time}"
            )
        elif kind < 90:
            lines.append(
                f"{common} MsgType=191 BidApplSeqNum={rng.randrange(number)} OfferApplSeqNum=1 "
                f"LastPx=15000 LastQty=100000 ExecType=83 TransactTime={time}"
            )
        else:
            lines.append(f"{common} MsgType=111 DataTimeStamp={time // 100} NumTrades={number}")
        if number % 499 == 0:
            lines.append("//no pairs here")
    path = directory / "sse_20231114.log"
    path.write_text("\r\n".join(lines))
    return [path], {}


def itch(directory, rows, seed=1):
    rng = random.Random(seed)
    made = bytearray()
    for number in range(1, rows + 1):
        locate = rng.choice((1, 2))
        time = (36_000 * 10**9 + number * 1000).to_bytes(6, "big")
        kind, order = b"A", struct.pack(">Q", number)
        body = struct.pack(
            ">sI8sI", rng.choice((b"B", b"S")), 100, b"STOCK%d  " % locate, rng.randrange(1, 10**6)
        )
        if number > 10 and rng.random() < 0.5:
            kind, order = b"X", struct.pack(">Q", rng.randrange(1, number))
            body = struct.pack(">I", rng.randrange(1, 120))
        if number % 499 == 0:
            body += b"!"
        message = kind + struct.pack(">HH", locate, 0) + time + order + body
        made += struct.pack(">H", len(message)) + message
    path = directory / "day.itch"
    path.write_bytes(made)
    return [path], {"date": "2023-11-14"}


def lobster(directory, rows, seed=1):
    paths = []
    for i, ticker in enumerate(("ACME", "B.B")):
        day = Day(rows // 2, 2 * seed + i, levels=1)
        day.messages[7::499] = ["34200.5,8,1,1,1,1"] * len(day.messages[7::499])
        paths += day.write(directory, ticker)
    return paths, {}


def dbn(directory, rows, seed=1):
    path = directory / "day.mbo.dbn"
    path.write_bytes(random_mbo(rows, seed))
    return [path], {}


MAKERS = {
    "tardis": tardis,
    "szse": szse,
    "sse": sse,
    "itch": itch,
    "lobster": lobster,
    "dbn": dbn,
}
