"""XXH64 and XXH3-128 agree with the reference implementation."""

import random

import pytest
import xxhash

from tapewire.protocol import _native, market

DATA = random.Random(6).randbytes(20_000)
# Every path: lengths beyond two blocks, and those around the limits of buffers and blocks.
LENGTHS = [*range(2_400), 4_095, 4_096, 4_097, 10_000, 20_000]


def test_xxh64_at_every_length():
    wrong = [n for n in LENGTHS if _native.xxh64(DATA[:n]) != xxhash.xxh64_intdigest(DATA[:n])]
    assert wrong == []


@pytest.mark.parametrize("piece", [17, 64, 256, 1_000, 20_000])
def test_xxh3_at_every_length_in_pieces_of(piece):
    wrong = []
    for n in LENGTHS if piece > 256 else LENGTHS[::7]:
        pieces = (DATA[at : min(at + piece, n)] for at in range(0, n, piece))
        if _native.xxh3_128(*pieces) != xxhash.xxh3_128_hexdigest(DATA[:n]):
            wrong.append(n)
    assert wrong == []


def test_the_hash_of_a_symbol_is_that_of_its_full_name():
    want = xxhash.xxh64_intdigest(b"binance:BTCUSDT")
    assert market.symbol_hash("binance", "BTCUSDT") == want
