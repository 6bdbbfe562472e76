"""Files of single orders that lack rows: the book is untrusted from the proof of it on."""

import dataclasses
import json

import pytest

import tapewire as tw
from tapewire import ingest, replay
from tapewire.book.gaps import GapLedger
from tests.support.archives import logs_of
from tests.support.commands import tapewire
from tests.support.dbn_files import NANO, plain_mbo
from tests.support.order_feeds import (
    DAYS,
    FEEDS,
    Op,
    itch_message,
    session,
    write_dbn,
    write_itch,
    write_sse,
    write_szse,
)
from tests.support.replayed import Query

OPS = 500
GONE = slice(200, 260)


def run(tmp, name, days=2, *, to="archive", **written):
    """Import `days` sessions of the feed; the first one may be damaged."""
    feed = FEEDS[name]
    sessions = [session(OPS, seed + 1, 1 + 10_000 * seed) for seed in range(days)]
    directory = tmp / f"{to} files"
    directory.mkdir()
    files = feed.write(directory, sessions, **written)
    return ingest.run(feed.format, files, tmp / to, **feed.options)


def without(rows):
    return rows[: GONE.start] + rows[GONE.stop :]


def logs(tmp, name, to="archive"):
    feed = FEEDS[name]
    return logs_of(tmp / to, feed.venue, feed.symbol, "book")


def ledger(tmp, name, to="archive"):
    return [gap for log in logs(tmp, name, to) for gap in GapLedger(log).read()]


def steps(tmp, name, to="archive", **options):
    """Of each order's event: its id at the venue, whether the book is trusted, its best levels."""
    with replay.Replay(logs(tmp, name, to), **options) as running:
        for step in running:
            event = step.record.decode()
            if event.order is None or event.order.event_type == 5:
                continue
            number = event.native_seq if name in ("sse", "szse") else 0
            yield (event.exchange_ts_ns, number), step.book.trusted, tops(step.book)


def tops(book):
    return book.best_bid, book.best_ask


@pytest.mark.parametrize("name", FEEDS)
def test_a_complete_file_is_trusted_throughout(tmp, name):
    summary = run(tmp, name)
    assert summary.clean, summary
    assert not ledger(tmp, name)
    found = list(steps(tmp, name))
    assert len(found) >= 2 * OPS
    assert all(trusted for _, trusted, _ in found)


@pytest.mark.parametrize("name", FEEDS)
def test_a_missing_chunk_distrusts_the_book_until_the_next_session(tmp, name):
    run(tmp, name, to="good")
    summary = run(tmp, name, damage=without)
    assert summary.gaps >= 1
    assert ledger(tmp, name)
    found = list(steps(tmp, name))
    first_day = [trusted for (time, _), trusted, _ in found if time < day_2_ns(found)]
    assert first_day.index(False) >= GONE.start - 1
    assert not any(first_day[first_day.index(False) :]), "no reset within the session"
    assert all(trusted for (time, _), trusted, _ in found if time >= day_2_ns(found))
    assert not summary.untrusted
    good = {at: best for at, _, best in steps(tmp, name, "good")}
    wrong = [at for at, trusted, best in found if trusted and best != good[at]]
    if name in ("sse", "szse"):
        assert not wrong, "the numbers of the channel show the place"
    else:
        assert len(wrong) < first_day.index(False) - GONE.start + 1


def day_2_ns(found):
    """A time between the sessions."""
    return (found[0][0][0] + found[-1][0][0]) // 2


@pytest.mark.parametrize("name", ["sse", "szse"])
def test_without_the_channels_other_stocks_an_unknown_order_is_the_proof(tmp, name):
    assert run(tmp, name, step=3, to="good").clean
    summary = run(tmp, name, step=3, damage=without)
    assert [gap.kind for gap in ledger(tmp, name)][:1] == ["venue"]
    trust = [trusted for _, trusted, _ in steps(tmp, name)]
    assert False in trust
    assert summary.gaps >= 1
    assert trust[-1], "the next day begins with a reset"


@pytest.mark.parametrize("name", FEEDS)
def test_a_file_that_begins_within_a_session_is_untrusted_until_the_next(tmp, name):
    written = {"start": b""} if name == "itch" else {"clear": False} if name == "dbn" else {}
    if name == "itch":
        summary = ingest.run(
            "itch", write_itch(tmp, [session(OPS)], **written), tmp / "archive", date=DAYS[0]
        )
        assert summary.untrusted == {"nasdaq/ACME/book": "no snapshot has been received yet"}
        assert not any(trusted for _, trusted, _ in steps(tmp, name))
        return
    run(tmp, name, damage=lambda rows: rows[60:], **written)
    (gap, *_) = ledger(tmp, name)
    assert gap.cause == "the source begins without a snapshot or reset"
    assert gap.action == "resynced", "by the reset of the second session"
    found = list(steps(tmp, name))
    assert all(trusted == (time >= day_2_ns(found)) for (time, _), trusted, _ in found)


@pytest.mark.parametrize("name", FEEDS)
def test_every_interface_agrees_about_where_the_book_is_untrusted(tmp, name):
    run(tmp, name, damage=without)
    first, *more = logs(tmp, name)
    (log,) = (first, *more)[:1]
    instrument = f"{FEEDS[name].venue}:{FEEDS[name].symbol}"
    with replay.Replay(log) as running:
        trusted = {step.seq: step.book.trusted for step in running}
        ends = running.books
    assert set(trusted.values()) == {True, False}
    ends_at = max(trusted)

    depth = replay.features(log, "bid_depth1", symbols=[instrument])
    # A day begins with a reset in some feeds, and a reset has no levels: its depth is 0, not null.
    by_feature = [value is not None for value in depth["bid_depth1"].to_pylist()]
    assert by_feature == list(trusted.values())

    for seq in [*list(trusted)[::25], ends_at]:
        assert replay.book_at(log, instrument, tw.Seq(seq)).trusted == trusted[seq], seq

    done = tapewire("replay", log, "--json", "--levels", 1000)
    assert done.code == 1
    shown = [line for line in done.json if line["what"] == "book"]
    assert all(line["trusted"] == trusted[line["seq"]] for line in shown)
    assert {line["trusted"] for line in shown} == {True, False}
    summary = done.json[-1]
    assert summary["gaps"] == len(GapLedger(log).read()) > 0
    (book,) = summary["books"]
    assert book["trusted"] == next(iter(ends.values())).trusted

    for partitions in (1, 5):
        view = Query(log, "book", levels=1)
        rows = view.read(view.parts(partitions))
        assert dict(zip(*(rows[c].to_pylist() for c in ("seq", "trusted")), strict=True)) == trusted
        asked = Query(log, "features", features="bid_depth1")
        values = asked.read(asked.parts(partitions))["bid_depth1"].to_pylist()
        assert [value is not None for value in values] == list(trusted.values())
    gaps = Query(log, "gaps")
    found = [
        row
        for part in gaps.parts()
        for b in gaps.view.read(part, gaps.options)
        for row in b.to_pylist()
    ]
    recorded = GapLedger(log).read()
    assert [row["seq"] for row in found] == [gap.seq for gap in recorded]
    assert [row["kind"] for row in found] == [gap.kind for gap in recorded]


def op_of(ops, kind, after=50):
    return next(i for i, op in enumerate(ops) if i > after and op.kind == kind)


@pytest.mark.parametrize("name", FEEDS)
def test_a_fill_larger_than_its_order_is_a_gap(tmp, name):
    ops = session(OPS)
    at = op_of(ops, "take")
    ops[at] = dataclasses.replace(ops[at], qty=100_000)
    feed = FEEDS[name]
    ingest.run(feed.format, feed.write(tmp, [ops]), tmp / "archive", **feed.options)
    (gap, *_) = ledger(tmp, name)
    assert gap.cause == "negative size"
    assert not list(steps(tmp, name))[-1][1]


@pytest.mark.parametrize("name", ["itch", "sse", "szse"])
def test_a_book_crossed_in_continuous_trading_is_a_gap(tmp, name):
    """Only an order of a missing message can explain it; no message names that order."""
    ops = [Op("add", n, "B", 900 + n, 100) for n in range(1, 15)]
    ops += [Op("add", 20, "S", 905, 500), Op("add", 21, "S", 990, 500)]
    feed = FEEDS[name]
    ingest.run(feed.format, feed.write(tmp, [ops]), tmp / "archive", **feed.options)
    (gap,) = ledger(tmp, name)
    assert gap.cause == "the book is crossed outside an auction"
    assert not list(steps(tmp, name))[-1][1]


@pytest.mark.parametrize("name", ["sse", "szse"])
def test_a_book_may_be_crossed_in_an_auction(tmp, name):
    ops = [Op("add", n, "BS"[n % 2], 1000, 100) for n in range(1, 9)]
    feed = FEEDS[name]
    files = feed.write(tmp, [ops])
    assert ingest.run(feed.format, files, tmp / "archive", **feed.options).gaps == 0
    assert all(trusted for _, trusted, _ in steps(tmp, name))


def test_itch_times_that_go_back_are_a_gap(tmp):
    late = itch_message(b"S", 1, b"Q", second=1)

    summary = ingest.run(
        "itch",
        write_itch(tmp, [session(OPS)], damage=lambda rows: [*rows[:200], late, *rows[200:]]),
        tmp / "archive",
        date=DAYS[0],
    )
    (gap,) = ledger(tmp, "itch")
    assert (gap.cause, summary.gaps) == ("sequence numbers or times of the feed go back", 1)
    trust = [trusted for _, trusted, _ in steps(tmp, "itch")]
    assert trust == [True] * 200 + [False] * (OPS - 200)


def test_dbn_sequence_numbers_that_go_back_are_a_gap(tmp):
    """Missing ones are normal: a channel has the events of other instruments too."""

    def swap(rows):
        rows[200], rows[300] = rows[300], rows[200]
        return rows

    run(tmp, "dbn", days=1, damage=swap)
    assert "sequence numbers or times of the feed go back" in {g.cause for g in ledger(tmp, "dbn")}
    trust = [trusted for _, trusted, _ in steps(tmp, "dbn")]
    assert all(trust[:200])
    assert not any(trust[201:])


def test_a_dbn_snapshot_restores_trust(tmp):
    def snapshot(rows):
        flags = {"flags": 0xA8, "sequence": 9}
        at = {"event": 1_704_207_700 * NANO, "recv": 1_704_207_700 * NANO}
        again = [
            plain_mbo(b"R", 0, b"N", 0, 0, **flags, **at),
            plain_mbo(b"A", 77_000, b"B", 9 * NANO, 5, **flags, **at),
        ]
        return [*without(rows), *again]

    summary = run(tmp, "dbn", days=1, damage=snapshot)
    assert summary.gaps
    assert not summary.untrusted
    assert list(steps(tmp, "dbn"))[-1][1]
    assert all(gap.action == "resynced" for gap in ledger(tmp, "dbn"))


def rejected_lines(summary):
    with open(summary.rejected) as file:
        return [json.loads(line)["line"] for line in file]


@pytest.mark.parametrize("at", [1, 250, OPS - 1])
@pytest.mark.parametrize("name", FEEDS)
def test_a_rejected_row_distrusts_the_book_from_its_place_on(tmp, name, at):
    def spoil(rows):
        row = rows[at]
        if name == "itch":
            rows[at] = row[:1] + bytes([row[1] + 1]) + row[2:] + b"!"
        elif name == "dbn":
            rows[at] = row.replace(b"\x00A", b"\x00?").replace(b"\x00C", b"\x00?")
            rows[at] = plain_mbo(b"?", event=1_704_207_600 * NANO, recv=1_704_207_600 * NANO)
        elif name == "szse":
            kind, text = row
            fields = text.split(",")
            rows[at] = (kind, ",".join([*fields[:2], "ten", *fields[3:]]))
        else:
            rows[at] = row.replace("Price=", "Price=x").replace("LastPx=", "LastPx=x")
        return rows

    summary = run(tmp, name, days=1, damage=spoil)
    assert sum(summary.bad.values()) == 1
    found = list(steps(tmp, name))
    trust = [trusted for _, trusted, _ in found]
    first = trust.index(False) if False in trust else len(trust)
    assert not any(trust[first:])
    assert first <= at, "no later than its place"
    assert first >= at - 8, "and hardly earlier: up to the last row of the same file"
    assert list(summary.untrusted) == [f"{FEEDS[name].venue}/{FEEDS[name].symbol}/book"]
    assert any(gap.kind == "parse" for gap in ledger(tmp, name)) or name in ("sse", "szse")


def test_a_rejected_row_of_another_stock_changes_nothing(tmp):
    rows = [
        "000002,09:31:00.000,ten,100,50,49,2011,99999",
        "000001,09:20:00.000,10.00,100,50,49,2011,1",
    ]
    (tmp / "files").mkdir()
    paths = write_szse(tmp / "files", [session(OPS)])
    paths[0].write_text(paths[0].read_text() + "\n" + rows[0])
    ingest.run("szse", paths, tmp / "archive")
    assert all(trusted for _, trusted, _ in steps(tmp, "szse"))


def test_a_row_rejected_on_the_second_day_outlasts_the_reset_of_that_day(tmp):
    """Files of two days are read at the same time: the row must not count for the first one."""
    paths = write_sse(tmp, [session(OPS), session(OPS, 2, 10_000)])
    second = paths[1].read_text().split("\n")
    second[100] = second[100].replace("Price=", "Price=x").replace("LastPx=", "LastPx=x")
    paths[1].write_text("\n".join(second))
    summary = ingest.run("sse", paths, tmp / "archive")
    assert list(summary.untrusted) == ["sse/600519/book"]
    trust = [trusted for _, trusted, _ in steps(tmp, "sse")]
    assert all(trust[:OPS])
    assert trust[OPS : OPS + 100] == [True] * 100
    assert not any(trust[OPS + 100 :])


def test_a_gap_before_a_stocks_first_event_counts_for_it_too(tmp):
    """In a complete channel, orders of the stock may be among the missing ones."""
    lines = write_sse(tmp, [session(OPS)])[0].read_text().split("\n")
    other = [line.replace("600519", "600000") for line in lines[:250]]
    path = tmp / "sse_20240102.log"
    path.write_text("\n".join([*other[:150], *other[200:], *lines[250:]]))
    ingest.run("sse", [path], tmp / "archive")
    assert not any(trusted for _, trusted, _ in steps(tmp, "sse"))


def test_dbn_without_a_clear_says_until_when(tmp):
    write_dbn(tmp, [session(OPS)], clear=False)
    summary = ingest.run("dbn", [tmp / "orders.dbn"], tmp / "archive")
    assert summary.untrusted == {"xnas.itch/7/book": "no snapshot has been received yet"}
    assert [gap.action for gap in ledger(tmp, "dbn")] == ["untrusted"]


def test_shanghai_events_that_contradict_their_order_are_gaps(tmp):
    """The id of another order that exists: the exchange repeats the price and the side."""
    ops = session(OPS)
    at = op_of(ops, "cancel")
    ops[at] = dataclasses.replace(ops[at], price=ops[at].price - 1)
    ingest.run("sse", write_sse(tmp, [ops]), tmp / "archive")
    trust = [trusted for _, trusted, _ in steps(tmp, "sse")]
    assert trust == [True] * at + [False] * (OPS - at)


def test_two_events_with_one_number_are_a_gap(tmp):
    """Which one is valid is unknown; equal ones are one event."""
    (path,) = write_sse(tmp, [session(OPS)])
    lines = path.read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if i > 50 and "MsgType=192" in line)
    path.write_text("\n".join([*lines, lines[60], lines[at].replace("OrderNo=", "OrderNo=9")]))
    summary = ingest.run("sse", [path], tmp / "archive")
    assert summary.skipped == {"duplicate number": 2}
    trust = [trusted for _, trusted, _ in steps(tmp, "sse")]
    assert trust == [True] * at + [False] * (OPS - at)


def test_a_stock_in_two_channels_of_a_day_is_untrusted(tmp):
    (path,) = write_sse(tmp, [session(OPS)])
    lines = path.read_text().split("\n")
    lines[100] = lines[100].replace("ChannelNo=6", "ChannelNo=2")
    path.write_text("\n".join(lines))
    ingest.run("sse", [path], tmp / "archive")
    assert not any(trusted for _, trusted, _ in steps(tmp, "sse"))


def test_an_itch_stock_with_two_codes_is_a_bad_row(tmp):
    def other_code(rows):
        at = next(i for i, row in enumerate(rows) if i > 100 and row[2:3] == b"A")
        rows[at] = rows[at][:3] + b"\x00\x07" + rows[at][5:]
        return rows

    (path,) = write_itch(tmp, [session(OPS)], damage=other_code)
    summary = ingest.run("itch", [path], tmp / "archive", date=DAYS[0])
    assert summary.bad == {"not the name of the stock": 1}
    assert list(summary.untrusted) == ["nasdaq/ACME/book"]


def test_dbn_times_of_receipt_that_go_back_are_a_gap(tmp):
    def late(rows):
        rows[200] = rows[200][:40] + rows[150][40:48] + rows[200][48:]
        return rows

    run(tmp, "dbn", days=1, damage=late)
    trust = [trusted for _, trusted, _ in steps(tmp, "dbn")]
    assert trust == [True] * 200 + [False] * (OPS - 200)


def test_a_dbn_record_of_an_unknown_type_may_have_been_an_order(tmp):
    def unknown(rows):
        rows[200] = rows[200][:1] + b"\xa1" + rows[200][2:]
        return rows

    summary = run(tmp, "dbn", days=1, damage=unknown)
    assert summary.skipped == {"of type 0xA1": 1}
    trust = [trusted for _, trusted, _ in steps(tmp, "dbn")]
    assert trust == [True] * 200 + [False] * (OPS - 201)


def test_an_execution_of_itch_that_is_repeated_is_a_gap(tmp):
    """Its match number is unique in a day."""

    def twice(rows):
        at = op_of(session(OPS), "take", 200)
        return [*rows[: at + 1], rows[at], *rows[at + 1 :]]

    write_itch(tmp, [session(OPS)], damage=twice)
    ingest.run("itch", [tmp / "0.itch"], tmp / "archive", date=DAYS[0])
    (gap, *_) = ledger(tmp, "itch")
    assert gap.cause == "sequence numbers or times of the feed go back"
    good = [trusted for _, trusted, _ in steps(tmp, "itch")].index(False)
    assert good == op_of(session(OPS), "take", 200) + 1


def test_an_itch_message_of_another_stocks_order_is_a_bad_row(tmp):
    def other_stock(rows):
        at = op_of(session(OPS), "cancel", 200)
        named = itch_message(b"R", 3, b"OTHER   ".ljust(28)).replace(b"R\x00\x01", b"R\x00\x02", 1)
        return [named, *rows[:at], rows[at][:3] + b"\x00\x02" + rows[at][5:], *rows[at + 1 :]]

    write_itch(tmp, [session(OPS)], damage=other_stock)
    summary = ingest.run("itch", [tmp / "0.itch"], tmp / "archive", date=DAYS[0])
    assert summary.bad == {"not the name of the stock": 1}
    assert list(summary.untrusted) == ["nasdaq/ACME/book"]
