"""The queue's files, parsed and built only from their documented layouts.

A second implementation, with `struct` and `zlib`, that shares no code with the native core: each
must read the files of the other. `test_format_tables.py` compares these tables with the C++
headers.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from tests.support.queue_layouts import CONSTANTS, LAYOUTS

PAD = CONSTANTS["kPadType"]
SEALED = CONSTANTS["kSegmentSealed"]
SPARSE = CONSTANTS["kSegmentSparse"]
INDEX_MAGIC = b"CHRIDX1\0"
INDEX_TRAILER_MAGIC = b"TWIX"


def _crc32c_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC32C = _crc32c_table()


ORDINARY = 0xFFFFFFFF  # the initial state of a CRC-32C


def crc32c(data, state=ORDINARY):
    """CRC-32C (Castagnoli), from any initial state of its register."""
    crc = state
    for byte in bytes(data):
        crc = (crc >> 8) ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def mixed_key(key, segment_id):
    """One number of 64 bits for each segment of each queue."""
    mask = 2**64 - 1
    x = (key + (segment_id + 1) * 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def segment_state(key, segment_id):
    """The initial state of the checks of a keyed segment, before the offset."""
    return mixed_key(key, segment_id) & 0xFFFFFFFF


def state_at(key, segment_id, offset):
    """The initial state of the check of the record header at this offset."""
    return segment_state(key, segment_id) ^ offset if key else ORDINARY


def unpack(layout, data, at=0):
    """The fields of `layout` at `at`, as a dict."""
    size, fields = LAYOUTS[layout]
    if at + size > len(data):
        raise ValueError(f"{layout} needs {size} bytes at {at}, there are {len(data) - at}")
    return {
        name: struct.unpack_from("<" + code, data, at + offset)[0]
        for name, (offset, code) in fields.items()
    }


def pack(layout, **values):
    """The bytes of `layout`; fields that are not given are zero."""
    size, fields = LAYOUTS[layout]
    data = bytearray(size)
    for name, value in values.items():
        offset, code = fields[name]
        struct.pack_into("<" + code, data, offset, value)
    return bytes(data)


def poke(data, layout, at=0, **values):
    """Store fields of the `layout` at offset `at` of a bytearray or mmap."""
    _, fields = LAYOUTS[layout]
    for name, value in values.items():
        offset, code = fields[name]
        struct.pack_into("<" + code, data, at + offset, value)


def align64(n):
    """`n` rounded up to 64."""
    return (n + 63) & ~63


def record_bytes(payload_len):
    """The bytes that a record with such a payload takes in a segment."""
    return align64(64 + payload_len)


@dataclass(frozen=True)
class Stored:
    """One record in a segment, at `offset`."""

    offset: int
    seq: int
    timestamp_ns: int
    type_id: int
    flags: int
    payload: bytes

    @property
    def is_pad(self):
        return self.type_id == PAD

    @property
    def end(self):
        return self.offset + record_bytes(len(self.payload))


def record(
    seq,
    payload=b"",
    *,
    timestamp_ns=None,
    type_id=1,
    flags=0,
    checked=True,
    state=ORDINARY,
    **header,
):
    """The bytes of one record. `checked=False`: no header check, as chronicle-rs writes it.

    `state` is that of its place in a keyed queue (`state_at`).
    """
    fields = {
        "commit_len": len(payload) + 1,
        "version": 1,
        "seq": seq,
        "timestamp_ns": 1_000_000 + seq if timestamp_ns is None else timestamp_ns,
        "type_id": type_id,
        "flags": flags,
        "payload_crc": 0 if flags & 1 else zlib.crc32(payload),
    }
    check = header.pop("header_check", None)
    fields.update(header)
    raw = bytearray(pack("RecordHeader", **fields))
    if check is None:
        check = crc32c(raw[:32], state) if checked else 0
    poke(raw, "RecordHeader", header_check=check)
    data = bytes(raw) + bytes(payload)
    return data.ljust(align64(len(data)), b"\0")


def pad(length, *, checked=True, state=ORDINARY):
    """A PAD record that takes `length` bytes in all."""
    return record(
        0,
        bytes(length - 64),
        timestamp_ns=0,
        type_id=PAD,
        checked=checked,
        payload_crc=0,
        state=state,
    )


def segment_check(header):
    """The header check of a segment header's bytes, by its version."""
    fixed = header[:12]
    fields = unpack("SegmentHeader", header)
    if fields["version"] != 2:
        fixed += struct.pack("<I", fields["flags"] & ~SEALED) + header[20:40]
    return crc32c(fixed)


def end_check(header):
    """The check of the end that the header of a keyed segment records."""
    fields = unpack("SegmentHeader", header)
    return crc32c(header[40:56], segment_state(fields["key"], fields["segment_id"]))


def segment_header(
    segment_id,
    *,
    sealed=False,
    sparse=False,
    version=None,
    checked=True,
    key=0,
    segment_bytes=0,
    first_seq=0,
    end=None,
):
    """The 64 bytes at the start of a segment file. `end`: ``(offset, next seq)`` as recorded.

    `segment_bytes` is recorded where there is a `key`.
    """
    flags = (SEALED if sealed else 0) | (SPARSE if sparse else 0)
    raw = bytearray(
        pack(
            "SegmentHeader",
            magic=CONSTANTS["kSegmentMagic"],
            version=version or (3 if key else 2),
            segment_id=segment_id,
            flags=flags,
            key=key,
            segment_units=segment_bytes // 64 if key else 0,
            first_seq=first_seq if key else 0,
        )
    )
    if checked:
        poke(raw, "SegmentHeader", header_check=segment_check(bytes(raw)))
    if end is not None:
        poke(raw, "SegmentHeader", end_offset=end[0], end_seq=end[1])
        poke(raw, "SegmentHeader", end_check=end_check(bytes(raw)))
    return bytes(raw)


def placed(data, key, segment_id, offset):
    """A record's bytes with the header check for its offset."""
    raw = bytearray(data)
    poke(raw, "RecordHeader", header_check=crc32c(raw[:32], state_at(key, segment_id, offset)))
    return bytes(raw)


def segment(segment_id, records, segment_bytes, *, key=0, **options):
    """A complete segment file; `records` are bytes, stored one after the other.

    With a `key`, each record gets the check for its offset.
    """
    data = segment_header(segment_id, key=key, segment_bytes=segment_bytes, **options)
    for part in records:
        data += placed(part, key, segment_id, len(data)) if key else part
    if len(data) > segment_bytes:
        raise ValueError(f"{len(data)} bytes do not fit a segment of {segment_bytes}")
    return data.ljust(segment_bytes, b"\0")


def control_check(data):
    """The check of the constant part of a control.meta of version 4."""
    return crc32c(data[:8] + data[24:48])


def control(
    segment_bytes, *, current_segment=0, write_offset=64, first_seq=0, epoch=1, key=0, **fields
):
    """A control.meta: version 4 with a `key`, else version 3."""
    values = {
        "magic": CONSTANTS["kControlMagic"],
        "version": 4 if key else 3,
        "init_state": 2,
        "writer_epoch": epoch,
        "segment_size": segment_bytes,
        "first_seq": first_seq,
        "key": key,
        "current_segment": current_segment,
        "write_offset": write_offset,
        "write_check": write_offset ^ mixed_key(key, current_segment),
    }
    values.update(fields)
    raw = bytearray(pack("ControlBlock", **values))
    if key and "check" not in fields:
        poke(raw, "ControlBlock", check=control_check(bytes(raw)))
    return bytes(raw)


def checkpoint(segment_id, offset, *, next_seq=None, checked=True, key=0):
    """An index.meta: 40 bytes, 24 without `next_seq`, or 16 as chronicle-rs writes it.

    With a `key` it is that of a keyed queue, which always has `next_seq`.
    """
    raw = bytearray(pack("TailCheckpoint", segment_id=segment_id, offset=offset))
    if not checked:
        return bytes(raw[:16])
    poke(raw, "TailCheckpoint", crc=zlib.crc32(raw[:16]))
    if next_seq is None and not key:
        return bytes(raw[:24])
    poke(raw, "TailCheckpoint", next_seq=next_seq or 0)
    of_queue = struct.pack("<Q", key) if key else b""
    poke(raw, "TailCheckpoint", next_crc=zlib.crc32(raw[:32] + of_queue))
    return bytes(raw)


def reader_slot(segment_id, offset, generation, *, heartbeat_ns=1, flags=0):
    """One slot of a reader's meta file."""
    raw = bytearray(
        pack(
            "ReaderMetaSlot",
            segment_id=segment_id,
            offset=offset,
            last_heartbeat_ns=heartbeat_ns,
            generation=generation,
            flags=flags,
        )
    )
    poke(raw, "ReaderMetaSlot", crc=zlib.crc32(raw[:32]))
    return bytes(raw)


def reader_meta(*slots):
    """A readers/NAME.meta of up to two slots, each in the half given by its generation."""
    data = bytearray(80)
    for slot in slots:
        half = unpack("ReaderMetaSlot", slot)["generation"] % 2
        data[half * 40 : half * 40 + 40] = slot
    return bytes(data)


def seek_index(
    segment_id, segment_bytes, records, *, stride=4096, partial=False, foreign=False, key=0
):
    """A seek index over `Stored` records. `foreign`: plain times and no trailer."""
    records = [r for r in records if not r.is_pad]
    entries, highest = [], 0
    for n, r in enumerate(records):
        highest = max(highest, r.timestamp_ns)
        if n % stride == 0:
            time = r.timestamp_ns if foreign else highest
            entries.append(pack("SeekIndexEntry", seq=r.seq, timestamp_ns=time, offset=r.offset))
    numbers = [r.seq for r in records] or [0]
    times = [r.timestamp_ns for r in records] or [0]
    header = pack(
        "SeekIndexHeader",
        magic=INDEX_MAGIC,
        version=1,
        header_len=80,
        flags=(1 if partial else 0) | (0 if foreign else 2),
        segment_id=segment_id,
        segment_size=segment_bytes,
        data_offset=64,
        entry_stride=stride,
        min_seq=min(numbers),
        max_seq=max(numbers),
        min_ts_ns=min(times),
        max_ts_ns=max(times),
        entry_count=len(entries),
    )
    body = b"".join(entries)
    if foreign:
        return header + body
    return header + body + seek_index_trailer(header, body, key)


def seek_index_trailer(header, body, key=0):
    """The 16 bytes with checksums that Tapewire puts after the entries."""
    state = state_at(key, unpack("SeekIndexHeader", header)["segment_id"], 0)
    return pack(
        "SeekIndexTrailer",
        magic=INDEX_TRAILER_MAGIC,
        header_crc=crc32c(header, state),
        entries_crc=crc32c(body, state),
    )


def parse_records(data, at=64, *, key=0, segment_id=0):
    """The committed records of a segment, PADs included; ValueError if one is invalid."""
    out = []
    while at + 64 <= len(data):
        header = unpack("RecordHeader", data, at)
        if header["commit_len"] == 0:
            break
        length = header["commit_len"] - 1
        if at + record_bytes(length) > len(data):
            raise ValueError(
                f"commit_len={header['commit_len']} at {at} reaches beyond the segment"
            )
        if header["version"] != 1:
            raise ValueError(f"version={header['version']} at {at}")
        check = crc32c(data[at : at + 32], state_at(key, segment_id, at))
        if header["header_check"] != check and (key or header["header_check"] != 0):
            raise ValueError(f"header check at {at}")
        if any(data[at + 5 : at + 8]) or any(data[at + 36 : at + 64]):
            raise ValueError(f"reserved bytes at {at} are not zero")
        payload = bytes(data[at + 64 : at + 64 + length])
        end = at + record_bytes(length)
        stored = Stored(
            at,
            header["seq"],
            header["timestamp_ns"],
            header["type_id"],
            header["flags"],
            payload,
        )
        if not stored.is_pad:
            if not stored.flags & 1 and header["payload_crc"] != zlib.crc32(payload):
                raise ValueError(f"payload CRC at {at}")
            if any(data[at + 64 + length : end]):
                raise ValueError(f"padding after the payload at {at} is not zero")
        out.append(stored)
        at = end
    return out


def parse_segment(path):
    """``(header fields, records)`` of a segment file, PADs included."""
    data = Path(path).read_bytes()
    header = unpack("SegmentHeader", data)
    if header["magic"] != CONSTANTS["kSegmentMagic"] or header["version"] not in (2, 3):
        raise ValueError(f"not a segment: {header}")
    if header["header_check"] != segment_check(data) and (
        header["version"] == 3 or header["header_check"] != 0
    ):
        raise ValueError("segment header check")
    if any(data[60:64]) or (header["version"] == 2 and any(data[20:64])):
        raise ValueError("reserved bytes of the segment header are not zero")
    records = parse_records(data, key=header["key"], segment_id=header["segment_id"])
    if header["end_offset"]:
        if header["end_check"] != end_check(data):
            raise ValueError("check of the recorded end")
        if header["end_offset"] != (records[-1].end if records else 64):
            raise ValueError(f"the segment does not end at {header['end_offset']}")
    return header, records


def parse_index(data, key=0):
    """``(header fields, entries as dicts)``; raises ValueError if it is invalid."""
    header = unpack("SeekIndexHeader", data)
    if (header["magic"], header["version"], header["header_len"]) != (INDEX_MAGIC, 1, 80):
        raise ValueError(f"not a seek index: {header}")
    end = 80 + 24 * header["entry_count"]
    entries = [unpack("SeekIndexEntry", data, at) for at in range(80, end, 24)]
    if header["flags"] & 2:
        if data[end : end + 16] != seek_index_trailer(data[:80], data[80:end], key):
            raise ValueError("seek index trailer")
        end += 16
    if len(data) != end:
        raise ValueError(f"seek index has {len(data)} bytes, {end} are described")
    return header, entries


def parse_reader_meta(data):
    """The valid slot as a dict, or None."""
    best = None
    for half in (0, 1):
        slot = unpack("ReaderMetaSlot", data, half * 40)
        right = slot["generation"] and slot["generation"] % 2 == half
        if not right or slot["crc"] != zlib.crc32(data[half * 40 : half * 40 + 32]):
            continue
        if best is None or slot["generation"] > best["generation"]:
            best = slot
    return best


def parse_checkpoint(data):
    """``(segment, offset)``, or None when it is damaged."""
    if len(data) == 16:
        return struct.unpack("<QQ", data)
    if len(data) not in (24, 40) or struct.unpack_from("<I", data, 16)[0] != zlib.crc32(data[:16]):
        return None
    return struct.unpack_from("<QQ", data)


def segment_path(queue, segment_id):
    """Path of a segment file."""
    return Path(queue) / f"{segment_id:09}.q"


def index_path(queue, segment_id):
    """Path of a seek index."""
    return Path(queue) / f"{segment_id:09}.idx"


def segment_ids(queue):
    """Numbers of the segments in a directory, ascending."""
    return sorted(int(p.stem) for p in Path(queue).glob("?????????.q"))


def stored_records(queue):
    """``[(segment, Stored), …]`` of a whole queue in file order, without PADs."""
    return [
        (segment_id, r)
        for segment_id in segment_ids(queue)
        for r in parse_segment(segment_path(queue, segment_id))[1]
        if not r.is_pad
    ]


def write_queue(queue, segments, *, segment_bytes=8192, sparse=False, first_seq=0, sealed=None):
    """Build a queue from lists of record bytes, one list per segment.

    All but the last are sealed, unless `sealed` lists a truth for each.
    """
    queue = Path(queue)
    queue.mkdir()
    top, offset = 0, 64
    for segment_id, records in enumerate(segments):
        is_sealed = segment_id + 1 < len(segments) if sealed is None else sealed[segment_id]
        segment_path(queue, segment_id).write_bytes(
            segment(segment_id, records, segment_bytes, sealed=is_sealed, sparse=sparse)
        )
        if records:
            top, offset = segment_id, 64 + sum(map(len, records))
    (queue / "control.meta").write_bytes(
        control(segment_bytes, current_segment=top, write_offset=offset, first_seq=first_seq)
    )
    return queue


def key_of(queue):
    """The key of a queue; 0 if it has none."""
    return unpack("ControlBlock", (Path(queue) / "control.meta").read_bytes())["key"]


def restart_machine(queue):
    """Make the queue look as if the machine was restarted, which empties the page cache."""
    path = Path(queue) / "control.meta"
    data = bytearray(path.read_bytes())
    poke(data, "ControlBlock", boot_id=bytes(16))
    path.write_bytes(data)
