"""LOBSTER's book of levels: equal to the rows of the order book file, or untrusted."""

import gzip
import random

import pytest

from tapewire import ingest
from tapewire.book.gaps import GapLedger
from tapewire.errors import CorruptSource, InvalidOption
from tapewire.ingest import tables
from tapewire.ingest.formats.lobster_book import MARGIN
from tapewire.replay import Replay
from tests.support.archives import logs_of
from tests.support.commands import tapewire
from tests.support.lobster_files import MIDNIGHT_NS, Day, book_states, by_line, by_time, ns_of

PARTIAL = "the source has only events of orders at the best levels"
REJECTED = "a row of the source was rejected"
WRONG = "not the previous row changed by the message"


def imported(tmp, day, **options):
    return ingest.run("lobster", day.write(tmp), tmp / "archive", **options)


def book_log(tmp):
    (log,) = logs_of(tmp / "archive", "nasdaq", "ACME", "book")
    return log


@pytest.mark.parametrize("levels", [1, 5, 10])
@pytest.mark.parametrize("before", [0, 300], ids=["from empty", "from a book"])
def test_after_each_message_all_levels_are_those_of_the_row(tmp, levels, before):
    day = Day(3_000, seed=levels, levels=levels, before=before, limited=True)
    summary = imported(tmp, day)
    assert summary.clean
    assert summary.gaps == 0
    states = by_line(tmp / "archive", levels, len(day.orderbook))
    assert states == [(True, row) for row in day.orderbook]


@pytest.mark.parametrize("piece_bytes", [500, 4_001, 30_000])
def test_files_are_read_in_pieces_of_different_length(tmp, monkeypatch, piece_bytes):
    monkeypatch.setattr(tables, "PIECE_BYTES", piece_bytes)
    day = Day(1_500, seed=2, levels=4, before=100, limited=True)
    assert imported(tmp, day).clean
    states = by_line(tmp / "archive", 4, len(day.orderbook))
    assert states == [(True, row) for row in day.orderbook]


def test_events_have_the_time_of_their_message_also_if_several_have_the_same(tmp):
    day = Day(400, seed=7, levels=8)
    imported(tmp, day)
    times = {line: time_ns for time_ns, line, _, _ in book_states(tmp / "archive", 8)}
    del times[0]  # the reset
    assert len(times) > 100
    for line, time_ns in times.items():
        assert time_ns == MIDNIGHT_NS + ns_of(day.messages[line - 1])


def test_a_scale_of_more_decimals_is_exact(tmp):
    day = Day(300, levels=2)
    imported(tmp, day, price_scale=6, size_scale=2)
    with Replay(book_log(tmp)) as replay:
        replay.run()
        ((_, book),) = replay.books.items()
    last = [int(number) for number in day.orderbook[-1].split(",")]
    assert book.best_ask[:2] == (last[0] * 100, last[1] * 100)
    assert book.best_bid[:2] == (last[2] * 100, last[3] * 100)


def test_prices_that_do_not_fit_the_scale_are_bad_rows(tmp):
    day = Day(200, levels=1)
    day.orderbook[150] = "9999999998,1,9999999997,1"
    summary = imported(tmp, day, price_scale=13)
    assert summary.bad == {"does not fit 64 bits at this scale": 1}
    assert (summary.gaps, summary.untrusted) == (1, {})


def test_without_an_order_book_the_book_is_untrusted_and_the_reason_is_given(tmp):
    message, _ = Day(500, levels=1, before=100, limited=True).write(tmp)
    ran = tapewire("import", "lobster", str(message), "--to", str(tmp / "archive"))
    assert ran.code == 1
    assert f"not trusted at the end: nasdaq/ACME/book: {PARTIAL}" in ran.out
    with Replay(book_log(tmp)) as replay:
        replay.run()
        (book,) = replay.books.values()
        assert (book.trusted, book.distrust_reason) == (False, PARTIAL)
        assert [gap.cause for gap in replay.gaps] == ["partial source"]
    ran = tapewire("replay", str(book_log(tmp)), "--levels", "0")
    assert ran.code == 1
    assert PARTIAL in ran.out
    assert [gap.cause for gap in GapLedger(book_log(tmp)).read()] == [PARTIAL]


def test_a_book_of_the_orders_is_never_trusted(tmp):
    imported(tmp, Day(500, levels=1, before=100, limited=True))
    (log,) = logs_of(tmp / "archive", "nasdaq", "ACME", "book_orders")
    with Replay(log) as replay:
        assert not any(step.book.trusted for step in replay if step.seq)
        (book,) = replay.books.values()
        assert book.distrust_reason == PARTIAL


def test_orders_after_midnight_utc_are_untrusted_in_their_own_log_too(tmp):
    day = Day(20, levels=1)
    day.messages[10:] = [f"7{message[1:]}" for message in day.messages[10:]]  # 19:26 and later
    ingest.run("lobster", day.write(tmp), tmp / "archive", zone="America/Los_Angeles")
    logs = logs_of(tmp / "archive", "nasdaq", "ACME", "book_orders")
    assert len(logs) == 2
    for log in logs:
        with Replay(log) as replay:
            replay.run()
            (book,) = replay.books.values()
            assert not book.trusted


def drop_message(day):
    del day.messages[500]


def drop_row(day):
    del day.orderbook[500]


def double_message(day):
    day.messages.insert(500, day.messages[500])


def double_row(day):
    day.orderbook.insert(500, day.orderbook[500])


def cut_messages(day):
    del day.messages[900:]


def cut_rows(day):
    del day.orderbook[900:]


@pytest.mark.parametrize(
    ("damage", "from_line"),
    [
        (drop_message, 500),
        (drop_row, 500),
        (double_message, 500),
        (double_row, 500),
        (cut_messages, 900),
        (cut_rows, 900),
    ],
)
@pytest.mark.parametrize("levels", [1, 5])
def test_where_the_files_no_longer_match_the_book_is_untrusted_to_the_end(
    tmp, damage, from_line, levels
):
    day = Day(6_000, seed=11, levels=levels, before=200, limited=True)
    truth = day.truth()
    damage(day)
    summary = imported(tmp, day)
    assert summary.bad
    assert summary.gaps == 1
    assert summary.untrusted["nasdaq/ACME/book"].startswith(REJECTED)
    states = by_time(tmp / "archive", levels, truth)
    trusted = [time_ns for time_ns in truth if states[time_ns][0]]
    assert [truth[time_ns] for time_ns in trusted] == [states[time_ns][1] for time_ns in trusted]
    lines = [trusted for trusted, _ in by_line(tmp / "archive", levels, len(truth))]
    assert all(lines[: from_line - MARGIN - 20])
    assert not any(lines[from_line:])


def two_changes(day):
    """Where two messages in turn change the book."""
    rows = day.orderbook
    return next(i for i in range(500, 600) if rows[i - 1] != rows[i] != rows[i + 1])


def swap_messages(day):
    at = two_changes(day)
    day.messages[at : at + 2] = reversed(day.messages[at : at + 2])


def swap_rows(day):
    at = two_changes(day)
    day.orderbook[at : at + 2] = reversed(day.orderbook[at : at + 2])


def alter_row(day):
    price, size, rest = day.orderbook[500].split(",", 2)
    day.orderbook[500] = f"{price},{int(size) + 1},{rest}"


def cross_row(day):
    _, size, bid, rest = day.orderbook[500].split(",", 3)
    day.orderbook[500] = f"{bid},{size},{bid},{rest}"


def garble_message(day):
    day.messages[500] = "34200.5,1,7"


def garble_row(day):
    day.orderbook[500] = "1,2,3"


def turn_time_back(day):
    time, rest = day.messages[500].split(",", 1)
    day.messages[500] = f"{float(time) - 0.5:.9f},{rest}"


@pytest.mark.parametrize(
    ("damage", "margin", "why"),
    [
        (swap_messages, MARGIN + 1, WRONG),
        (swap_rows, MARGIN + 1, WRONG),
        (alter_row, MARGIN + 1, WRONG),
        (cross_row, MARGIN + 1, WRONG),
        (turn_time_back, MARGIN, "the time of its message is before that of the previous one"),
        (garble_message, 0, "wrong number of fields"),
        (garble_row, 0, "wrong number of fields"),
    ],
)
@pytest.mark.parametrize("levels", [1, 5])
def test_after_damage_the_book_continues_with_a_snapshot(tmp, damage, margin, why, levels):
    day = Day(6_000, seed=12, levels=levels, before=200, limited=True)
    truth, rows = day.truth(), list(day.orderbook)
    damage(day)
    summary = imported(tmp, day)
    assert why in summary.bad
    assert (summary.gaps, summary.untrusted) == (1, {})
    (gap,) = GapLedger(book_log(tmp)).read()
    assert gap.action == "resynced"
    states = by_time(tmp / "archive", levels, truth)
    trusted = [time_ns for time_ns in truth if states[time_ns][0]]
    assert [truth[time_ns] for time_ns in trusted] == [states[time_ns][1] for time_ns in trusted]
    states = by_line(tmp / "archive", levels, len(rows))
    assert all(trusted for trusted, _ in states[: 480 - margin])
    assert states[600 + margin :] == [(True, row) for row in rows[600 + margin :]]


def test_of_two_damaged_places_each_has_its_loss(tmp):
    day = Day(4_000, seed=13, levels=3, before=200, limited=True)
    rows = list(day.orderbook)
    for at in (300, 302, 600):
        day.messages[at] = "x"
    day.orderbook[301] = day.orderbook[700] = "x"
    summary = imported(tmp, day)
    assert summary.gaps == 3
    states = by_line(tmp / "archive", 3, len(rows))
    untrusted = [i for i, (trusted, _) in enumerate(states) if not trusted]
    # A loss is at the time of the last change.
    assert {299, 300, 301, 302, 599, 600, 699, 700} <= set(untrusted) < set(range(250, 701))


def test_the_first_row_may_be_damaged(tmp):
    day = Day(500, seed=14, levels=2, before=100, limited=True)
    rows = list(day.orderbook)
    day.orderbook[0] = "x,1,1,1,1,1,1,1"
    summary = imported(tmp, day)
    assert (summary.gaps, summary.untrusted) == (1, {})
    states = by_line(tmp / "archive", 2, len(rows))
    assert states[1:] == [(True, row) for row in rows[1:]]
    assert not next(iter(book_states(tmp / "archive", 2)))[2]


@pytest.mark.parametrize("which", [0, 1], ids=["messages", "order book"])
def test_of_a_damaged_file_the_part_before_the_damage_is_imported(tmp, which):
    day = Day(3_000, seed=15, levels=2, before=100, limited=True)
    paths = day.write(tmp)
    packed = paths[which].with_suffix(".csv.gz")
    content = gzip.compress(paths[which].read_bytes())
    packed.write_bytes(content[: len(content) * 3 // 4])
    paths[which] = packed
    with pytest.raises(CorruptSource):
        ingest.run("lobster", paths, tmp / "archive")
    states = by_line(tmp / "archive", 2, len(day.orderbook))
    shown = [state for state in states if state[0]]
    assert len(shown) > 500
    assert shown == [(True, row) for row in day.orderbook[: len(shown)]]
    assert not states[-1][0]


def test_two_days_in_one_import_are_two_sessions(tmp):
    files = []
    days = {}
    for date, seed in (("2012-06-21", 1), ("2012-06-22", 2)):
        days[date] = Day(1_500, seed=seed, levels=2, before=100, limited=True)
        days[date].messages[400] = "x"
        files += days[date].write(tmp, date=date)
    summary = ingest.run("lobster", files, tmp / "archive")
    assert (summary.gaps, summary.untrusted) == (2, {})
    for log, day in zip(
        logs_of(tmp / "archive", "nasdaq", "ACME", "book"), days.values(), strict=True
    ):
        assert len(GapLedger(log).read()) == 1
        with Replay(log) as replay:
            trusted = [step.book.trusted for step in replay if step.book is not None]
        assert trusted.count(False) == 2, "the reset and the loss"
        assert day.messages[400] == "x"


def test_an_archive_with_single_orders_of_the_stock_is_refused(tmp):
    from tapewire.protocol.instruments import Instrument, Instruments

    (tmp / "archive").mkdir()
    Instruments([Instrument.of("nasdaq", "ACME", 4, 0, book_mode="l3")]).save(tmp / "archive")
    with pytest.raises(InvalidOption, match="book_mode=l2, nasdaq:ACME has l3"):
        imported(tmp, Day(10))
    assert not logs_of(tmp / "archive", "nasdaq", "ACME", "book")


@pytest.mark.parametrize("levels", [1, 3])
def test_random_damage_never_gives_a_trusted_book_that_is_wrong(tmp, levels):
    rng = random.Random(levels)
    for number in range(8):
        day = Day(3_000, seed=number, levels=levels, before=150, limited=True)
        truth = day.truth()
        lines = rng.choice((day.messages, day.orderbook))
        at, length = rng.randrange(len(lines) - 10), rng.choice((1, 1, 2, 7))
        match rng.randrange(4):
            case 0:
                del lines[at : at + length]
            case 1:
                lines[at:at] = lines[at : at + length]
            case 2:
                lines[at : at + 2] = reversed(lines[at : at + 2])
            case 3:
                lines[at] = lines[at].replace(str(rng.randrange(10)), str(rng.randrange(10)), 1)
        archive = tmp / f"archive{number}"
        ingest.run("lobster", day.write(tmp), archive)
        states = by_time(archive, levels, truth)
        for time_ns, row in truth.items():
            trusted, got = states[time_ns]
            assert not trusted or got == row, (number, time_ns)
