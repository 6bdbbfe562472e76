"""The summary of a job."""

import json

from tapewire.spark.jobs import JobFinding, Summary


def test_the_summary_fits_80_columns_except_for_paths():
    counts = {f"records_of_kind_{i}": 10**9 for i in range(8)}
    text = str(Summary("refine", "a", "b", rows=10**12, bytes=10**15, seconds=90_000, done=5,
                       skipped=6, failed=7, counts=counts))  # fmt: skip
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "5 parts done, 6 done before, 7 failed" in text


def test_many_findings_are_counted_and_not_all_shown():
    findings = [JobFinding("p", f"thing {i}") for i in range(30)]
    text = str(Summary("refine", "a", "b", findings=findings))
    assert "thing 19" in text
    assert "thing 20" not in text
    assert "and 10 more findings" in text


def test_exit_codes_distinguish_findings_and_damage():
    assert Summary("j", "a", "b").exit_code == 0
    assert Summary("j", "a", "b", findings=[JobFinding("p", "late")]).exit_code == 1
    assert Summary("j", "a", "b", findings=[JobFinding("p", "x", "f", "damage")]).exit_code == 3
    assert Summary("j", "a", "b", failed=1).exit_code == 3


def test_the_dictionary_is_json_with_everything_in_it():
    summary = Summary("j", "a", "b", rows=1, findings=[JobFinding("p", "late", "log")])
    value = json.loads(json.dumps(summary.to_dict()))
    assert value["findings"] == [{"part": "p", "what": "late", "where": "log", "kind": "finding"}]
    assert (value["clean"], value["rows"], value["job"]) == (False, 1, "j")


def test_findings_fit_a_terminal_and_paths_are_not_broken():
    where = "/a/long/way/" + "directory/" * 8
    what = "the shortest way of one hour is 300 ms longer than that of another hour of the day"
    summary = Summary(
        "quality", "a", "b", findings=[JobFinding("venue/SYM/2024-01-01", what, where)]
    )
    lines = str(summary).splitlines()
    assert any(where in line for line in lines)
    assert all(len(line) <= 80 for line in lines if where not in line)
