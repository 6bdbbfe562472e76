"""Runs under callgrind: every operation for N records and for 2 N, in the order of OPERATIONS.

A separate script without the rest of the benchmarks: each import takes seconds under valgrind.
Usage: python benchmarks/counted.py LIBRARY DIRECTORY, where LIBRARY is native/counted.cpp compiled.
"""

import ctypes
import sys

RECORDS = 4096
SEGMENT_BYTES = 16 << 20
PAYLOAD = bytes(range(64))
TYPE_ID = 0x1001

# Reading comes after appending, which writes the records to read.
OPERATIONS = (
    "native append",
    "native next",
    "native append_batch",
    "native read_batch",
    "native l2 level",
    "native l3 event",
    "python append",
    "python next",
    "empty append",
    "empty next",
)


def main(library, directory):
    import tapewire as tw
    from tapewire import _native

    work_type = ctypes.CFUNCTYPE(None, ctypes.c_long)
    lib = ctypes.PyDLL(library)
    lib.measure.argtypes = [work_type, ctypes.c_long]
    lib.open_queue.argtypes = [ctypes.c_char_p, ctypes.c_uint64]

    lib.open_queue(f"{directory}/native".encode(), SEGMENT_BYTES)
    lib.open_books()
    # The complete segment is prepared beforehand, so that no call prepares a part of it.
    options = {"segment_bytes": SEGMENT_BYTES, "require_prealloc": True}
    writer = tw.open_publisher(f"{directory}/python", **options)
    reader = tw.open_log(f"{directory}/python")

    def append_by(call, payload=PAYLOAD):
        def work(records):
            for _ in range(records):
                call(TYPE_ID, payload)

        return work_type(work)

    def next_by(call):
        def work(records):
            for _ in range(records):
                call()

        return work_type(work)

    # Empty native methods: the cost of any call from Python.
    empty = _native.Yardstick()
    works = {
        "python append": append_by(writer.append),
        "python next": next_by(reader.next),
        "empty append": append_by(empty.append),
        "empty next": next_by(empty.next),
    }
    for operation in OPERATIONS:
        work = works.get(operation) or work_type((operation.replace(" ", "_"), lib))
        for records in (RECORDS, 2 * RECORDS):
            lib.measure(work, records)
    assert writer.next_seq == reader.last_seq + 1 == 3 * RECORDS
    lib.close_queue()
    reader.close()
    writer.close()
    print(_native.select_checksum("automatic"))


if __name__ == "__main__":
    main(*sys.argv[1:])
