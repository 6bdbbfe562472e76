"""No mutant of a capture gives a book that is trusted and wrong, of any format.

`hidden` states differ from the original, but the mutant's rows are those of a possible capture up
to there: nothing in them reveals the mutation. What can be hidden depends on the feed.
"""

import pytest

from tests.mutation.feeds import FEEDS
from tests.mutation.sweep import Sweep

SHORT, LONG = 40, 1000
# A missing, doubled or moved row is found by its number or a checksum, whatever it says.
NUMBERED = ("binance-spot", "binance-usdm", "sse", "szse")
CHECKSUMS = ("bitget", "okx")
MOVED = ("drop", "double", "swap")
# Contradictions that no importer looks for, by what the sweep says of them; docs/howto/books.md
# names them as not detected. Their states are counted, and printed.
UNDETECTED = {
    # The snapshot that waited for such a diff is written at the time of the diff.
    "binance-usdm": ("no row of it",),
    "dbn-mbo": (
        "another side than the order's",
        "another price than the order's",
        "not the length of its type",  # a record that claims a type that is skipped
        "bytes are missing",  # found at the next record, since this one has a valid head
    ),
    # Numbers of earlier executions, and of orders that are gone; lost bytes as above.
    "itch": ("a match number twice", "the order of another stock", "bytes are missing"),
    # The order of the aggressor, which is not in the book.
    "sse": ("another price than the order's", "another side than the order's"),
}


def sweep(name, tmp, mutants, record_property):
    found = Sweep(FEEDS[name](), tmp, seed=1).run(mutants)
    record_property(name, str(found))
    print(f"{name}: {found}")
    known = UNDETECTED.get(name, ())
    wrong = [text for text in found.wrong if not any(why in text for why in known)]
    print(f"{name}: undetected={len(found.wrong) - len(wrong)}")
    assert not wrong, "\n".join(wrong[:20])
    assert found.equal > found.untrusted, "most states are trusted"
    if name in CHECKSUMS:  # only levels below those that are checked, and names of instruments
        assert sum(found.hidden.values()) * 1000 < found.equal
    if name in NUMBERED:
        # Only the diff with the id of a snapshot, to which no number refers, and a copy of a
        # snapshot before its diffs, which a venue may send as well.
        assert sum(found.hidden[kind] for kind in MOVED) * 5_000 < found.equal


@pytest.mark.parametrize("name", FEEDS)
def test_no_state_of_a_mutant_is_trusted_and_wrong(name, tmp, record_property):
    sweep(name, tmp, SHORT, record_property)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FEEDS)
def test_no_state_of_a_thousand_mutants_is_trusted_and_wrong(name, tmp, record_property):
    sweep(name, tmp, LONG, record_property)
