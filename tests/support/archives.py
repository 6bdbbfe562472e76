"""The content of an archive after an import: its logs, and books that read them."""

import tapewire as tw
from tapewire import book, bus
from tapewire.protocol.instruments import Instruments


def logs_of(archive, venue, symbol, stream):
    """The logs of one stream, day by day."""
    layout = bus.ArchiveLayout(archive)
    logs = [layout.log(venue, symbol, day, stream) for day in layout.dates(venue, symbol)]
    return [log for log in logs if log.exists()]


def records_of(archive, venue, symbol, stream):
    """Every record of one stream, in order; each is valid until the next."""
    for log in logs_of(archive, venue, symbol, stream):
        with tw.open_log(log) as reader:
            while (record := reader.next()) is not None:
                yield record


def batches_of(archive, venue, symbol, stream, size=16_384):
    """The same in batches."""
    for log in logs_of(archive, venue, symbol, stream):
        with tw.open_log(log) as reader:
            while len(batch := reader.read_batch(size)):
                yield batch


def count_of(archive, venue, symbol, stream):
    return sum(len(batch) for batch in batches_of(archive, venue, symbol, stream))


def l3_book_of(archive, venue, symbol, **options):
    """An empty book with the scales and rules that the archive has for it."""
    instrument = Instruments.load(archive).get(venue, symbol)
    assert instrument is not None
    assert instrument.book_mode == "l3"
    return book.L3Book(
        instrument.rules,
        price_scale=instrument.price_scale,
        size_scale=instrument.size_scale,
        **options,
    )
