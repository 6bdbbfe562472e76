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
MOVED = {"drop", "double", "swap"}


def sweep(name, tmp, mutants, record_property):
    found = Sweep(FEEDS[name](), tmp, seed=1).run(mutants)
    record_property(name, str(found))
    print(f"{name}: {found}")
    assert not found.wrong, "\n".join(found.wrong[:20])
    assert found.equal > found.untrusted, "most states are trusted"
    if name in CHECKSUMS:  # only levels below those that are checked, and names of instruments
        assert sum(found.hidden.values()) * 1000 < found.equal
    if name in NUMBERED:
        assert not MOVED & found.hidden.keys()


@pytest.mark.parametrize("name", FEEDS)
def test_no_state_of_a_mutant_is_trusted_and_wrong(name, tmp, record_property):
    sweep(name, tmp, SHORT, record_property)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FEEDS)
def test_no_state_of_a_thousand_mutants_is_trusted_and_wrong(name, tmp, record_property):
    sweep(name, tmp, LONG, record_property)
