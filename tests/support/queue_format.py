"""The queue's files, parsed and built from their documented layouts alone.

A second implementation, by `struct` and `zlib`, that shares nothing with the native core: what one
of them writes, the other must read. `test_format_tables.py` holds these tables against the C++
headers.
"""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

# Layout: name -> (size in bytes, {field: (offset, struct code)}). Reserved bytes are not listed.
LAYOUTS = {
    "RecordHeader": (
        64,
        {
            "commit_len": (0, "I"),
            "version": (4, "B"),
            "seq": (8, "Q"),
            "timestamp_ns": (16, "Q"),
            "type_id": (24, "H"),
            "flags": (26, "H"),
            "payload_crc": (28, "I"),
            "header_check": (32, "I"),
        },
    ),
    "SegmentHeader": (
        64,
        {
            "magic": (0, "I"),
            "version": (4, "I"),
            "segment_id": (8, "I"),
            "flags": (12, "I"),
            "header_check": (16, "I"),
        },
    ),
    "ControlBlock": (
        512,
        {
            "magic": (0, "I"),
            "version": (4, "I"),
            "init_state": (8, "I"),
            "writer_epoch": (16, "Q"),
            "segment_size": (24, "Q"),
            "first_seq": (32, "Q"),
            "segment_gen": (128, "I"),
            "current_segment": (132, "I"),
            "write_offset": (256, "Q"),
            "writer_heartbeat_ns": (264, "Q"),
            "notify_seq": (384, "I"),
            "waiters_pending": (388, "I"),
        },
    ),
    "ReaderMetaSlot": (
        40,
        {
            "segment_id": (0, "Q"),
            "offset": (8, "Q"),
            "last_heartbeat_ns": (16, "Q"),
            "generation": (24, "Q"),
            "crc": (32, "I"),
            "flags": (36, "I"),
        },
    ),
    "TailCheckpoint": (
        24,
        {"segment_id": (0, "Q"), "offset": (8, "Q"), "crc": (16, "I")},
    ),
    "SeekIndexHeader": (
        80,
        {
            "magic": (0, "8s"),
            "version": (8, "H"),
            "header_len": (10, "H"),
            "flags": (12, "I"),
            "segment_id": (16, "Q"),
            "segment_size": (24, "Q"),
            "data_offset": (32, "I"),
            "entry_stride": (36, "I"),
            "min_seq": (40, "Q"),
            "max_seq": (48, "Q"),
            "min_ts_ns": (56, "Q"),
            "max_ts_ns": (64, "Q"),
            "entry_count": (72, "Q"),
        },
    ),
    "SeekIndexEntry": (
        24,
        {"seq": (0, "Q"), "timestamp_ns": (8, "Q"), "offset": (16, "Q")},
    ),
    "SeekIndexTrailer": (
        16,
        {"magic": (0, "4s"), "header_crc": (4, "I"), "entries_crc": (8, "I")},
    ),
    "StatsHeader": (
        16,
        {"magic": (0, "I"), "version": (4, "I"), "count": (8, "I")},
    ),
}

CONSTANTS = {
    "kRecordHeaderBytes": 64,
    "kRecordAlign": 64,
    "kHeaderCheckedBytes": 32,
    "kRecordVersion": 1,
    "kPadType": 0xFFFF,
    "kFlagNoChecksum": 1,
    "kSystemFlags": 0x00FF,
    "kMaxPayloadBytes": 2**32 - 2,
    "kSegmentMagic": 0x53454730,
    "kSegmentVersion": 2,
    "kSegmentSealed": 1,
    "kSegmentSparse": 2,
    "kSegmentDataOffset": 64,
    "kSegmentCheckedBytes": 12,
    "kSegmentBytesMin": 8 << 10,
    "kSegmentBytesMax": 2 << 30,
    "kSegmentBytesMultiple": 4096,
    "kSegmentBytesDefault": 128 << 20,
    "kSegmentBytesReadableMin": 128,
    "kSegmentIdMax": 999_999_999,
    "kControlMagic": 0x4348524E,
    "kControlVersion": 3,
    "kControlReady": 2,
    "kControlBytes": 512,
    "kReaderPinned": 0xFFFFFFFF,
    "kReaderMetaCheckedBytes": 32,
    "kReaderMetaBytes": 80,
    "kTailCheckpointBytes": 24,
    "kTailCheckpointCheckedBytes": 16,
    "kSeekIndexVersion": 1,
    "kSeekIndexHeaderBytes": 80,
    "kSeekIndexPartial": 1,
    "kSeekIndexRunningMax": 2,
    "kSeekIndexStrideDefault": 4096,
    "kStatsMagic": 0x54535754,
    "kStatsVersion": 1,
    "kStatsBytes": 4096,
}

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


def crc32c(data):
    """CRC-32C (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc = (crc >> 8) ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


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
    """The bytes of `layout`; what is not given is zero."""
    size, fields = LAYOUTS[layout]
    data = bytearray(size)
    for name, value in values.items():
        offset, code = fields[name]
        struct.pack_into("<" + code, data, offset, value)
    return bytes(data)


def poke(data, layout, at=0, **values):
    """Store fields of the `layout` that lies at `at` of a bytearray or mmap."""
    _, fields = LAYOUTS[layout]
    for name, value in values.items():
        offset, code = fields[name]
        struct.pack_into("<" + code, data, at + offset, value)


def align64(n):
    """`n` rounded up to 64."""
    return (n + 63) & ~63


def record_bytes(payload_len):
    """What a record of so many payload bytes takes in a segment."""
    return align64(64 + payload_len)


@dataclass(frozen=True)
class Stored:
    """One record as it lies in a segment; `offset` is its place there."""

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


def record(seq, payload=b"", *, timestamp_ns=None, type_id=1, flags=0, checked=True, **header):
    """The bytes of one record. `checked=False`: no header check, as chronicle-rs writes it."""
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
        check = crc32c(raw[:32]) if checked else 0
    poke(raw, "RecordHeader", header_check=check)
    data = bytes(raw) + bytes(payload)
    return data.ljust(align64(len(data)), b"\0")


def pad(length, *, checked=True):
    """A PAD record that takes `length` bytes in all."""
    return record(
        0, bytes(length - 64), timestamp_ns=0, type_id=PAD, checked=checked, payload_crc=0
    )


def segment_header(segment_id, *, sealed=False, sparse=False, version=2, checked=True):
    """The 64 bytes at the start of a segment file."""
    flags = (SEALED if sealed else 0) | (SPARSE if sparse else 0)
    raw = bytearray(
        pack(
            "SegmentHeader",
            magic=CONSTANTS["kSegmentMagic"],
            version=version,
            segment_id=segment_id,
            flags=flags,
        )
    )
    if checked:
        poke(raw, "SegmentHeader", header_check=crc32c(raw[:12]))
    return bytes(raw)


def segment(segment_id, records, segment_bytes, **options):
    """A whole segment file; `records` are bytes, laid one behind the other."""
    data = segment_header(segment_id, **options) + b"".join(records)
    if len(data) > segment_bytes:
        raise ValueError(f"{len(data)} bytes do not fit a segment of {segment_bytes}")
    return data.ljust(segment_bytes, b"\0")


def control(segment_bytes, *, current_segment=0, write_offset=64, first_seq=0, epoch=1, **fields):
    """A control.meta."""
    values = {
        "magic": CONSTANTS["kControlMagic"],
        "version": 3,
        "init_state": 2,
        "writer_epoch": epoch,
        "segment_size": segment_bytes,
        "first_seq": first_seq,
        "current_segment": current_segment,
        "write_offset": write_offset,
    }
    values.update(fields)
    return pack("ControlBlock", **values)


def checkpoint(segment_id, offset, *, checked=True):
    """An index.meta: 24 bytes, or 16 without a checksum as chronicle-rs writes it."""
    raw = bytearray(pack("TailCheckpoint", segment_id=segment_id, offset=offset))
    if not checked:
        return bytes(raw[:16])
    poke(raw, "TailCheckpoint", crc=zlib.crc32(raw[:16]))
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
    """A readers/NAME.meta of up to two slots, each in the half that its generation says."""
    data = bytearray(80)
    for slot in slots:
        half = unpack("ReaderMetaSlot", slot)["generation"] % 2
        data[half * 40 : half * 40 + 40] = slot
    return bytes(data)


def seek_index(segment_id, segment_bytes, records, *, stride=4096, partial=False, foreign=False):
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
    return header + body + seek_index_trailer(header, body)


def seek_index_trailer(header, body):
    """The 16 bytes with checksums that Tapewire puts behind the entries."""
    return pack(
        "SeekIndexTrailer",
        magic=INDEX_TRAILER_MAGIC,
        header_crc=crc32c(header),
        entries_crc=crc32c(body),
    )


def parse_records(data, at=64):
    """The committed records of a segment, PADs included; ValueError where one is not right."""
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
        if header["header_check"] not in (0, crc32c(data[at : at + 32])):
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
                raise ValueError(f"padding behind the payload at {at} is not zero")
        out.append(stored)
        at = end
    return out


def parse_segment(path):
    """``(header fields, records)`` of a segment file, PADs included."""
    data = Path(path).read_bytes()
    header = unpack("SegmentHeader", data)
    if header["magic"] != CONSTANTS["kSegmentMagic"] or header["version"] != 2:
        raise ValueError(f"not a segment: {header}")
    if header["header_check"] not in (0, crc32c(data[:12])):
        raise ValueError("segment header check")
    if any(data[20:64]):
        raise ValueError("reserved bytes of the segment header are not zero")
    return header, parse_records(data)


def parse_index(data):
    """``(header fields, entries as dicts)``; raises ValueError when it is not right."""
    header = unpack("SeekIndexHeader", data)
    if (header["magic"], header["version"], header["header_len"]) != (INDEX_MAGIC, 1, 80):
        raise ValueError(f"not a seek index: {header}")
    end = 80 + 24 * header["entry_count"]
    entries = [unpack("SeekIndexEntry", data, at) for at in range(80, end, 24)]
    if header["flags"] & 2:
        if data[end : end + 16] != seek_index_trailer(data[:80], data[80:end]):
            raise ValueError("seek index trailer")
        end += 16
    if len(data) != end:
        raise ValueError(f"seek index has {len(data)} bytes, {end} are described")
    return header, entries


def parse_reader_meta(data):
    """The slot that counts, as a dict, or None."""
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
    fields = unpack("TailCheckpoint", data)
    if len(data) != 24 or fields["crc"] != zlib.crc32(data[:16]):
        return None
    return fields["segment_id"], fields["offset"]


def segment_path(queue, segment_id):
    """Path of a segment file."""
    return Path(queue) / f"{segment_id:09}.q"


def index_path(queue, segment_id):
    """Path of a seek index."""
    return Path(queue) / f"{segment_id:09}.idx"


def segment_ids(queue):
    """Numbers of the segments that a folder holds, ascending."""
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
    """Build a queue folder out of lists of record bytes, one list for each segment.

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
