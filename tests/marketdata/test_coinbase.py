"""The capture of Coinbase → archive → native books: never crossed after any update."""

import tapewire as tw
from tapewire import bus
from tapewire.book import L2Book
from tests.support.captures import book_logs
from tests.support.marketdata import report_count


def test_no_book_is_crossed_after_any_update(imported):
    one = imported("coinbase", "coinbase/COINBASE.ws.28.0")
    assert one.summary.clean, one.summary
    symbols = bus.ArchiveLayout(one.archive).symbols("coinbase")
    assert len(symbols) == 10
    updates = uncrossed = 0
    for symbol in symbols:
        (directory,) = book_logs(one.archive, "coinbase", symbol)
        book = L2Book(8, 8)
        with tw.open_log(directory) as log:
            for record in log:
                event = record.decode()
                book.apply(event)
                if event.event_type == 2:
                    updates += 1
                    uncrossed += book.trusted and not book.crossed
    report_count("coinbase updates", updates, 9719)
    report_count("coinbase never crossed", uncrossed, 9719)
