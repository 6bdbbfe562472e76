"""Opening and closing leaves no handle in the process, and rolling needs few."""

import json
import shutil

import pytest

from tests.crash.scripts import python
from tests.support import crafted
from tests.support import queue_format as qf

ROLLS = """
    import json, os, resource, sys
    import tapewire as tw

    def descriptors():
        return len(os.listdir("/proc/self/fd")) - 1  # that of the listing

    before = descriptors()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 64, hard))
    rolls, most = int(sys.argv[2]), 0
    with tw.open_publisher(sys.argv[1], segment_bytes=8192, preallocate=False) as writer:
        for n in range(rolls + 1):
            writer.append(1, bytes(5000))  # one a segment
            if n % 16 == 0:
                most = max(most, descriptors())
        said = {"rolls": writer.metrics()["rolls"], "errors": writer.metrics()["seal_errors"]}
    print(json.dumps({**said, "most": most - before, "left": descriptors() - before}))
"""


def slow_disk(milliseconds=1):
    """The command prefix that makes syncs take so long."""
    slow = f"inject=fdatasync:delay_enter={1000 * milliseconds}"
    options = ["-f", "-qq", "-o", "/dev/null", "--seccomp-bpf"]
    return ["strace", *options, "-e", "trace=fdatasync", "-e", slow]


def test_a_disk_slower_than_the_writer_does_not_cost_all_descriptors(tmp):
    """Sealed segments wait for their syncs, each with a descriptor: no more than 32 of them."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    said = json.loads(python(ROLLS, tmp / "queue", 1_000, before=slow_disk()).stdout)
    assert (said["rolls"], said["errors"]) == (1_000, 0)
    assert said["most"] <= 48
    assert said["left"] == 0


MANY_WRITERS = """
    import json, os, resource, sys
    import tapewire as tw

    def descriptors():
        return len(os.listdir("/proc/self/fd")) - 1  # that of the listing

    queue, count = sys.argv[1], 12
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    config = tw.WriterConfig(preallocate=False, segment_bytes=8192)
    writers = [tw.open_publisher(f"{queue}-{n}", config=config) for n in range(count)]
    before = most = descriptors()
    for n in range(40):
        for writer in writers:
            writer.append(1, bytes(5000))  # one a segment
        most = max(most, descriptors())
    errors = sum(writer.metrics()["seal_errors"] for writer in writers)
    for writer in writers:
        writer.close()
    print(json.dumps({"most": most - before, "errors": errors}))
"""


def test_many_writers_on_a_slow_disk_share_a_quarter_of_the_descriptors(tmp):
    """Each may hold 32 sealed segments, which for twelve exceeds the limit."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    said = json.loads(python(MANY_WRITERS, tmp / "queue", before=slow_disk(milliseconds=3)).stdout)
    assert said["errors"] == 0
    assert 256 / 8 <= said["most"] <= 256 / 4 + 2 * 12  # near the limit, and no further


BACKLOG = """
    import json, os, resource, sys
    from pathlib import Path
    import tapewire as tw
    from tests.support.crafted import break_header

    def descriptors():
        return len(os.listdir("/proc/self/fd")) - 1  # that of the listing

    def outcome(call):
        try:
            call()
        except tw.TapewireError as error:
            return type(error).__name__
        return "acknowledged"

    queue, trouble, before = Path(sys.argv[1]), sys.argv[2], descriptors()
    writer = tw.open_publisher(queue, preallocate=False, segment_bytes=8192)
    if trouble == "index":
        os.mkdir(queue / "000000007.idx")
    if trouble == "inherited":
        break_header(queue / "000000001.q")
    if trouble == "inherited and removed":
        os.unlink(queue / "000000001.q")
    most = 0
    for n in range(300):
        writer.append(1, bytes(5000))  # one a segment
        if trouble == "removed":
            os.unlink(queue / f"{writer.metrics()['segments'] - 1:09}.q")  # that it is in
        most = max(most, descriptors() - before)
    said = {"most": most, "rolls": writer.metrics()["rolls"]}
    said["flushes"] = [outcome(writer.flush_sync) for _ in range(2)]
    said["close"] = outcome(writer.close)
    said["left"] = descriptors() - before
    said["indexes"] = len([path for path in queue.glob("*.idx") if path.is_file()])
    print(json.dumps(said))
"""


@pytest.mark.parametrize(
    ("trouble", "raised"),
    [
        ("index", "acknowledged"),
        ("inherited", "CorruptMetadata"),
        ("inherited and removed", "SegmentMissing"),
        ("removed", "SegmentMissing"),
    ],
)
def test_work_that_fails_again_and_again_does_not_cost_all_descriptors(tmp, trouble, raised):
    """Files that cannot be indexed or synced are closed, and not acknowledged."""
    queue = tmp / "queue"
    crafted.write_log(queue, [bytes(5000)] * 6, killed=True)
    (queue / "index.meta").write_bytes(qf.checkpoint(0, 64))
    said = json.loads(python(BACKLOG, queue, trouble).stdout)
    assert said["rolls"] == 300
    assert said["most"] <= 48
    assert said["flushes"] == [raised] * 2
    assert said["close"] == raised
    assert said["left"] == 0
    assert said["indexes"] >= 290 or trouble == "removed"


def test_a_thousand_openings_leave_no_descriptor_mapping_or_thread(tmp, crew):
    child = crew.start("actors.opener", queue=str(tmp / "queue"), times=1000)
    before, after = child.expect("left", timeout=60)
    assert after == before
    assert after["mappings"] == []


def test_failed_openings_leave_nothing_behind_either(tmp, crew):
    child = crew.start("actors.failing_opener", queue=str(tmp / "queue"), times=100)
    before, after = child.expect("left", timeout=60)
    assert after == before
    assert after["mappings"] == []
