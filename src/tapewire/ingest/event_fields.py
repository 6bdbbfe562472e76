"""Where the fields of an encoded book event are, for code that decodes only some of them."""

from __future__ import annotations

from typing import Any

from tapewire.protocol._native import struct_dtype
from tapewire.protocol.market import HEADER_DTYPE

__all__ = ["BOOK_MODE", "EVENT_TYPE", "EXCHANGE_NS", "INGEST_NS", "NATIVE_SEQ", "UPDATE_LAST"]


def _offset(dtype: Any, name: str) -> int:
    return int(dtype.fields[name][1])


EVENT_TYPE = _offset(HEADER_DTYPE, "event_type")
BOOK_MODE = _offset(HEADER_DTYPE, "book_mode")
INGEST_NS = _offset(HEADER_DTYPE, "ingest_ts_ns")
EXCHANGE_NS = _offset(HEADER_DTYPE, "exchange_ts_ns")
NATIVE_SEQ = _offset(HEADER_DTYPE, "native_seq")
# Of a diff of levels; the last id of the diff before it follows.
UPDATE_LAST = HEADER_DTYPE.itemsize + _offset(struct_dtype("L2Diff"), "update_id_last")
