"""Shenzhen: orders and the trades and cancels of one channel, merged."""

import pytest

from tapewire import ingest
from tapewire.protocol.market import L3Type
from tests.support.archives import l3_book_of, records_of
from tests.support.marketdata import capture, report_count

LAST = 7_228_164  # the sample of orders ends here; that of trades continues


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    files = [capture("szse/Orders.csv"), capture("szse/Trans.csv")]
    archive = tmp_path_factory.mktemp("szse")
    return archive, ingest.run("szse", files, archive, date="2023-02-07")


def events_up_to_the_last(archive):
    for record in records_of(archive, "szse", "000155", "book"):
        event = record.decode()
        if event.loss is not None or event.native_seq <= LAST:
            yield record, event


def test_the_book_of_a_sample_without_its_auction_is_untrusted(imported):
    archive, summary = imported
    reason = "no snapshot has been received yet"
    assert summary.untrusted == {"szse/000155/book": reason}
    replayed = l3_book_of(archive, "szse", "000155", on_gap="resync")
    for record in records_of(archive, "szse", "000155", "book"):
        replayed.apply(record)
        assert not replayed.trusted
    assert replayed.distrust_reason == reason


def test_every_row_is_read_in_the_order_of_the_channel(imported):
    archive, summary = imported
    report_count("szse bad rows", sum(summary.bad.values()), 0)
    report_count("szse rows", summary.rows, 10_000)
    events = [event for _, event in events_up_to_the_last(archive) if event.loss is None]
    numbers = [event.native_seq for event in events]
    report_count("szse events up to the last order", len(numbers), 8_616)
    assert numbers == sorted(set(numbers))


def test_the_book_is_valid_at_every_cancel_and_at_the_end(imported):
    archive, _ = imported
    replayed = l3_book_of(archive, "szse", "000155", unknown="ignore")
    whole = negative = unknown = 0
    for record, event in events_up_to_the_last(archive):
        order = event.order
        if order is None:
            replayed.apply(record)
            continue
        if order.event_type == L3Type.TRADE:
            for order_id in (order.bid_order_id, order.ask_order_id):
                known = replayed.order(order_id)
                unknown += known is None
                negative += known is not None and known.remaining < order.qty
        elif order.event_type == L3Type.CANCEL:
            known = replayed.order(order.order_id)
            unknown += known is None
            whole += known is not None and known.remaining == order.qty
        replayed.apply(record)
        if order.event_type == L3Type.CANCEL:
            assert replayed.order(order.order_id) is None
    report_count("szse negative remainders", negative, 0)
    report_count("szse cancels that remove the whole remainder", whole, 831)
    report_count("szse unknown references", unknown, 70)
    report_count("szse unknown references, as the book counts", replayed.unknown_count, 70)
    report_count("szse final best bid", replayed.best_bid.price, 207_200)
    report_count("szse final best ask", replayed.best_ask.price, 207_500)
