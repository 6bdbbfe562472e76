"""Opening and closing leaves nothing behind in the process."""


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
