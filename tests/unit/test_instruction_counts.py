"""The hot calls take at most 5 % more instructions than the baseline in instructions.json."""

import json

import pytest

from benchmarks import instructions


@pytest.fixture(scope="module")
def counts():
    try:
        return instructions.count()
    except instructions.NotCompared as reason:
        pytest.skip(f"instruction counts not compared: {reason}")


@pytest.mark.parametrize("kind", ["native", "python"])
def test_no_hot_call_takes_5_percent_more_instructions_than_the_baseline(
    counts, kind, record_property
):
    measured = counts[kind]
    for operation, count in measured.per_record.items():
        record_property(f"instructions: {operation}", f"{count:.1f}")
    try:
        before = instructions.baseline(measured.built_by)
    except instructions.NotCompared as reason:
        pytest.skip(f"instruction counts not compared: {reason}")
    assert instructions.grown(measured.per_record, before) == []


def test_growth_is_reported_with_name_numbers_and_how_to_update():
    (line,) = instructions.grown(
        {"native append": 148.1, "native next": 148.0},
        {"native append": 141.0, "native next": 141.0},
    )
    assert line.startswith("native append: 148.1 instructions a record, 141.0 before (+5.0%")
    assert instructions.RENEW in line


def test_an_operation_that_is_not_in_the_baseline_fails():
    (line,) = instructions.grown({"native append": 1.0, "native new": 1.0}, {"native append": 1.0})
    assert "native new" in line
    assert instructions.RENEW in line


def test_an_unknown_compiler_is_reported_to_have_no_baseline(tmp):
    known = tmp / "known.json"
    known.write_text(json.dumps({"gcc-12": {"native append": 141.0}}))
    assert instructions.baseline("gcc-12", known) == {"native append": 141.0}
    with pytest.raises(instructions.NotCompared, match=r"no baseline for this compiler \(gcc-99\)"):
        instructions.baseline("gcc-99", known)


@pytest.mark.parametrize(
    ("noted", "compiler"),
    [
        (b"..GCC: (Debian 12.2.0-14+deb12u1) 12.2.0..", "gcc-12"),
        (b"..GCC: (Debian 12.2.0-14) 12.2.0\0Debian clang version 14.0.6..", "clang-14"),
    ],
)
def test_a_binary_contains_its_compiler(tmp, noted, compiler):
    (tmp / "binary").write_bytes(noted)
    assert instructions.compiler_of(tmp / "binary") == compiler
