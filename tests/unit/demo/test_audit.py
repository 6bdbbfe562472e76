"""The audit finds whatever was lost, repeated or made up."""

import shutil

import pytest

from tapewire import replay
from tapewire.demo.audit import Disagreement, audit
from tapewire.demo.books import snapshots_of
from tapewire.demo.messages import Counted
from tapewire.demo.places import INSTRUMENT, Places
from tapewire.demo.run import audited
from tapewire.protocol import replace
from tapewire.protocol.instruments import Instruments
from tapewire.protocol.orders import Fill
from tests.unit.demo.small_bus import play
from tests.unit.demo.tapes import SMALL, timed_rows, write


@pytest.fixture(scope="module")
def session(module_tmp):
    return play(module_tmp / "bus")


@pytest.fixture
def copy(session, tmp):
    places, _ = session
    shutil.copytree(places.root, tmp / "bus", ignore=shutil.ignore_patterns("*.lock", "readers"))
    return Places(tmp / "bus", SMALL)


NOBODY = (0, "nobody joined")


def rewrite(path, change):
    """The queue anew, with `change(rows)` in it."""
    tape = timed_rows(path)
    shutil.rmtree(path)
    write(path, change(tape), sparse=path.name in ("fills", "orders_in"))


def fills_among(tape):
    return [row for row in tape if row[1] == Fill.type_id]


def test_a_session_without_faults_agrees(session):
    places, story = session
    books = audited(places.root, story)
    assert books.fills > 5
    assert set(books.strategies) == {"alpha", "beta"}
    assert len(books.checks) == 17
    assert books.snapshots > 2


def test_a_lost_fill_is_found(copy):
    rewrite(
        copy.strategy("alpha").orders_in,
        lambda tape: [r for r in tape if r != fills_among(tape)[-1]],
    )
    with pytest.raises(Disagreement, match="alpha was given every acknowledgement and fill"):
        audit(copy, told={}, joined=NOBODY)


def test_a_fill_that_was_counted_twice_is_found(copy):
    def twice(tape):
        last = [row for row in tape if row[1] == Counted.type_id][-1]
        return [*tape, last]

    rewrite(copy.strategy("beta").orders_out, twice)
    with pytest.raises(Disagreement, match="beta counted every fill"):
        audit(copy, told={}, joined=NOBODY)


def test_an_order_that_was_routed_twice_is_found(copy):
    rewrite(copy.orders, lambda tape: [*tape, tape[-1]])
    with pytest.raises(Disagreement, match="accepted every order that the router sent"):
        audit(copy, told={}, joined=NOBODY)


def test_a_fill_that_the_engine_did_not_make_is_found(copy):
    def dearer(tape):
        seq, kind, payload, *time = fills_among(tape)[0]
        false = bytes(replace(Fill.decode(payload), price=1))
        return [(seq, kind, false, *time) if row[0] == seq else row for row in tape]

    rewrite(copy.fills, dearer)
    with pytest.raises(Disagreement, match="acknowledgements and fills are what follows"):
        audit(copy, told={}, joined=NOBODY)


def test_a_gap_in_the_market_data_is_found(copy):
    rewrite(copy.raw, lambda tape: tape[:10] + tape[11:])
    with pytest.raises(Disagreement, match=r"the market data is what follows.*at 10:"):
        audit(copy, told={}, joined=NOBODY)


def test_a_wrong_position_is_found(copy):
    def more(tape):
        seq, kind, payload, *time = [row for row in tape if row[1] == Counted.type_id][-1]
        counted = Counted.decode(payload)
        false = bytes(replace(counted, position=counted.position + 1))
        return [(seq, kind, false, *time) if row[0] == seq else row for row in tape]

    rewrite(copy.strategy("alpha").orders_out, more)
    with pytest.raises(Disagreement, match="position and cash"):
        audit(copy, told={}, joined=NOBODY)


def test_another_book_is_found(session):
    places, _ = session
    with pytest.raises(Disagreement, match="the book of the late joiner"):
        audit(places, told={"late joiner": "no such book"}, joined=NOBODY)


def test_market_data_of_another_time_are_found(copy):
    def later(tape):
        *before, (seq, kind, payload, time_ns) = tape
        return [*before, (seq, kind, payload, time_ns + 1)]

    rewrite(copy.raw, later)
    with pytest.raises(Disagreement, match="the market data is what follows"):
        audit(copy, told={}, joined=NOBODY)


def test_a_joiner_that_began_with_another_book_is_found(session):
    places, story = session
    seq = story.last("joiner", "joined").facts["seq"]
    with pytest.raises(Disagreement, match="late joiner's when it has caught up"):
        audit(places, told={}, joined=(seq, "no such book"))


def test_a_snapshot_of_another_book_is_found(copy, tmp):
    *_, (seq, kind, payload, time_ns) = tape = timed_rows(copy.raw)[:2]
    more = int.from_bytes(payload[-8:], "little") + 1  # the size of the diff's last level
    other = tmp / "other" / "queue"
    write(other, [tape[0], (seq, kind, payload[:-8] + more.to_bytes(8, "little"), time_ns)])
    Instruments([INSTRUMENT]).save(tmp / "other")
    replay.Snapshotter(other).run(follow=False)
    *_, wrong = snapshots_of(other)
    shutil.copy(wrong.path, snapshots_of(copy.raw)[0].path.with_name(wrong.path.name))
    with pytest.raises(Disagreement, match="every snapshot is the book of a replay"):
        audit(copy, told={}, joined=NOBODY)


def test_a_snapshot_that_cannot_be_read_is_found(copy):
    snapshots_of(copy.raw)[0].path.write_bytes(b"no snapshot")
    with pytest.raises(Disagreement, match="a snapshot cannot be read"):
        audit(copy, told={}, joined=NOBODY)
