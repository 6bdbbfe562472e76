"""Which parts of a job are left to do."""

import pytest

from tapewire.archive.job_marks import JobMarks
from tapewire.spark.jobs.parts import JobPart, PartResult, skip_done
from tapewire.spark.jobs.summary import Summary


@pytest.mark.parametrize(("remake", "left"), [(True, ["removed"]), (False, [])])
def test_a_part_with_a_removed_output_is_done_again_if_asked(tmp_path, remake, left):
    done = JobMarks(tmp_path, "bars")
    (tmp_path / "table").mkdir()
    for name, outputs in (("there", ["table"]), ("empty", []), ("removed", ["table", "gone"])):
        done.write(name, [], {}, PartResult(rows=3, outputs=outputs).to_dict())
    parts = [JobPart(name, (), None) for name in ("there", "empty", "removed")]
    summary = Summary("bars", "source", "target")
    found, _ = skip_done(done, parts, {}, summary, remake=remake)

    assert [part.name for part in found] == left
    assert summary.skipped == 3 - len(left)
