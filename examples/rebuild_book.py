"""From a capture to an order book: import it, replay the book, print its levels.

    python examples/rebuild_book.py /tmp/archive capture.gz    # from Binance's USD-M futures
    python examples/rebuild_book.py /tmp/archive               # a short simulated capture

The archive remains; another run does not import the capture again.
"""

import argparse
import json
from pathlib import Path

import tapewire as tw
from tapewire import ingest
from tapewire.book import L2Book
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.market import unscaled

NOON_NS = 1_700_049_600 * 10**9


def simulated_capture(path):
    """Write a snapshot and a few diffs as a capture has them: one `<time> <json>` per line."""
    bids = [[f"{30_000 - i * 0.1:.1f}", f"{1 + i / 10:.3f}"] for i in range(20)]
    asks = [[f"{30_000.1 + i * 0.1:.1f}", f"{2 + i / 10:.3f}"] for i in range(20)]
    lines = [{"lastUpdateId": 100, "symbol": "BTCUSDT", "bids": bids, "asks": asks}]
    for number in range(101, 111):
        diff = {"e": "depthUpdate", "s": "BTCUSDT", "T": NOON_NS // 10**6, "E": NOON_NS // 10**6}
        diff |= {"U": number, "u": number, "pu": number - 1}  # each names the previous one
        diff |= {"b": [[bids[number % 7][0], f"{number / 10:.3f}"]], "a": [[asks[0][0], "0"]]}
        lines.append({"stream": "btcusdt@depth", "data": diff})
    text = "".join(f"{NOON_NS + i} {json.dumps(line)}\n" for i, line in enumerate(lines))
    path.write_text(text)
    return path


def show(book, levels):
    """Print the book, asks above bids."""
    print(f"{'price':>14}  {'size':>14}")
    for name, side in (("ask", book.asks(levels)[::-1]), ("bid", book.bids(levels))):
        for price, size in side[["price", "size"]].tolist():
            shown = unscaled(price, book.price_scale), unscaled(size, book.size_scale)
            print(f"{shown[0]:>14}  {shown[1]:>14}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("archive", type=Path, help="archive; created if it does not exist")
    parser.add_argument("captures", nargs="*", type=Path)
    parser.add_argument("--levels", type=int, default=5)
    arguments = parser.parse_args()

    arguments.archive.mkdir(parents=True, exist_ok=True)
    captures = arguments.captures or [simulated_capture(arguments.archive / "simulated.txt")]
    summary = ingest.run("binance-usdm", captures, arguments.archive)
    print("imported before" if summary.already else f"{summary.records} records imported")

    instruments = Instruments.load(arguments.archive)
    books = {}  # by symbol: a symbol's book continues in the log of the next day
    for log in sorted(name for name in summary.logs if name.endswith("/book")):
        symbol = log.split("/")[-3]
        with tw.open_log(arguments.archive / log) as reader:
            it = instruments.find(symbol)
            book = books.setdefault(symbol, L2Book(it.price_scale, it.size_scale))
            while len(batch := reader.read_batch(1_000)):
                book.apply_batch(batch)
    for symbol, book in books.items():
        state = "trusted" if book.trusted else f"not trusted: {book.distrust_reason}"
        print(f"\n{symbol}: {state}, hash {book.hash()}")
        show(book, arguments.levels)


if __name__ == "__main__":
    main()
