"""A simple computation of bars: one trade at a time, in Python's integers and fractions."""

from fractions import Fraction

DAY_NS = 86_400 * 10**9


def plain_bars(trades, kind, size, price_scale, size_scale):
    """Dicts of the bars of ``(time_ns, price, size, is_buy)``, which are in order."""
    bars, open_bar, day, reached = [], None, None, Fraction(0)

    def close(complete):
        nonlocal open_bar, reached
        if open_bar is not None:
            bars.append(open_bar | {"complete": complete})
        open_bar, reached = None, Fraction(0)

    for time, price, amount, is_buy in trades:
        if time // DAY_NS != day:
            close(kind == "time")
            day = time // DAY_NS
        start = time - time % size if kind == "time" else time
        if kind == "time" and open_bar is not None and open_bar["start_ns"] != start:
            close(True)
        if open_bar is None:
            open_bar = {
                "start_ns": start,
                "end_ns": start + size if kind == "time" else time,
                **{"open": price, "high": price, "low": price, "close": price},
                **{"volume": 0, "buy_volume": 0, "notional": 0, "trades": 0},
            }
        if kind != "time":
            open_bar["end_ns"] = time
        open_bar["high"] = max(open_bar["high"], price)
        open_bar["low"] = min(open_bar["low"], price)
        open_bar["close"] = price
        open_bar["volume"] += amount
        open_bar["buy_volume"] += amount if is_buy else 0
        open_bar["notional"] += price * amount
        open_bar["trades"] += 1
        reached += {
            "time": 0,
            "tick": 1,
            "volume": Fraction(amount, 10**size_scale),
            "dollar": Fraction(abs(price) * amount, 10 ** (price_scale + size_scale)),
        }[kind]
        if kind != "time" and reached >= Fraction(str(size)):
            close(True)
    close(kind == "time")
    return bars
