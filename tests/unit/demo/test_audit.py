"""The audit finds records that are missing, duplicated or unexplained."""

import shutil

import pytest

from tapewire import replay
from tapewire.demo.audit import Disagreement, audit
from tapewire.demo.books import snapshots_of
from tapewire.demo.messages import Counted
from tapewire.demo.paths import INSTRUMENT, DemoPaths
from tapewire.demo.run import audit_session
from tapewire.protocol import replace
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.orders import Fill
from tests.unit.demo.queue_rows import SMALL, timed_rows, write
from tests.unit.demo.small_bus import play


@pytest.fixture(scope="module")
def session(module_tmp):
    return play(module_tmp / "bus")


@pytest.fixture
def copy(session, tmp):
    paths, _ = session
    shutil.copytree(paths.root, tmp / "bus", ignore=shutil.ignore_patterns("*.lock", "readers"))
    return DemoPaths(tmp / "bus", SMALL)


NOT_JOINED = (0, "no joiner")


def rewrite(path, change):
    """Replace the queue by one with the rows `change(rows)`."""
    recorded = timed_rows(path)
    shutil.rmtree(path)
    write(path, change(recorded), sparse=path.name in ("fills", "orders_in"))


def fills_among(recorded):
    return [row for row in recorded if row[1] == Fill.type_id]


def test_a_session_without_faults_agrees(session):
    paths, history = session
    books = audit_session(paths.root, history)
    assert books.fills > 5
    assert set(books.strategies) == {"alpha", "beta"}
    assert len(books.checks) == 17
    assert books.snapshots > 2


def test_a_lost_fill_is_found(copy):
    rewrite(
        copy.strategy("alpha").orders_in,
        lambda recorded: [r for r in recorded if r != fills_among(recorded)[-1]],
    )
    with pytest.raises(Disagreement, match="alpha received each of its acknowledgements and fills"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_a_fill_that_was_counted_again_is_found(copy):
    def repeat_last(recorded):
        last = [row for row in recorded if row[1] == Counted.type_id][-1]
        return [*recorded, last]

    rewrite(copy.strategy("beta").orders_out, repeat_last)
    with pytest.raises(Disagreement, match="beta counted each of its fills"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_an_order_that_was_sent_again_is_found(copy):
    rewrite(copy.orders, lambda recorded: [*recorded, recorded[-1]])
    with pytest.raises(Disagreement, match="accepted every order that the router sent"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_a_fill_that_the_engine_did_not_make_is_found(copy):
    def change_price(recorded):
        seq, kind, payload, *time = fills_among(recorded)[0]
        changed = bytes(replace(Fill.decode(payload), price=1))
        return [(seq, kind, changed, *time) if row[0] == seq else row for row in recorded]

    rewrite(copy.fills, change_price)
    with pytest.raises(Disagreement, match="acknowledgements and fills equal those that follow"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_a_gap_in_the_market_data_is_found(copy):
    rewrite(copy.raw, lambda recorded: recorded[:10] + recorded[11:])
    with pytest.raises(Disagreement, match=r"the market data equal those that follow.*at 10:"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_an_incorrect_position_is_found(copy):
    def change_position(recorded):
        seq, kind, payload, *time = [row for row in recorded if row[1] == Counted.type_id][-1]
        counted = Counted.decode(payload)
        changed = bytes(replace(counted, position=counted.position + 1))
        return [(seq, kind, changed, *time) if row[0] == seq else row for row in recorded]

    rewrite(copy.strategy("alpha").orders_out, change_position)
    with pytest.raises(Disagreement, match="position and cash"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_another_book_is_found(session):
    paths, _ = session
    with pytest.raises(Disagreement, match="the book of the late joiner"):
        audit(paths, reported={"late joiner": "no such book"}, joined=NOT_JOINED)


def test_market_data_of_another_time_are_found(copy):
    def later(recorded):
        *before, (seq, kind, payload, time_ns) = recorded
        return [*before, (seq, kind, payload, time_ns + 1)]

    rewrite(copy.raw, later)
    with pytest.raises(Disagreement, match="the market data equal those that follow"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_a_joiner_that_started_with_another_book_is_found(session):
    paths, history = session
    seq = history.last("joiner", "joined").facts["seq"]
    with pytest.raises(Disagreement, match="late joiner's book after catching up"):
        audit(paths, reported={}, joined=(seq, "no such book"))


def test_a_snapshot_of_another_book_is_found(copy, tmp):
    *_, (seq, kind, payload, time_ns) = recorded = timed_rows(copy.raw)[:2]
    more = int.from_bytes(payload[-8:], "little") + 1  # the size of the diff's last level
    other = tmp / "other" / "queue"
    write(other, [recorded[0], (seq, kind, payload[:-8] + more.to_bytes(8, "little"), time_ns)])
    Instruments([INSTRUMENT]).save(tmp / "other")
    replay.Snapshotter(other).run(follow=False)
    *_, foreign = snapshots_of(other)
    shutil.copy(foreign.path, snapshots_of(copy.raw)[0].path.with_name(foreign.path.name))
    with pytest.raises(Disagreement, match="every snapshot equals the book of a replay"):
        audit(copy, reported={}, joined=NOT_JOINED)


def test_an_unreadable_snapshot_is_found(copy):
    snapshots_of(copy.raw)[0].path.write_bytes(b"no snapshot")
    with pytest.raises(Disagreement, match="a snapshot cannot be read"):
        audit(copy, reported={}, joined=NOT_JOINED)
