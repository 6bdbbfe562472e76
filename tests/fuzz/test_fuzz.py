"""libFuzzer on everything the engine reads from disk: a minute for each target, from its corpus."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "native" / "fuzz"
TARGETS = sorted(path.stem.removesuffix("_fuzz") for path in FUZZ.glob("*_fuzz.cpp"))
SECONDS = 60


def run(command, timeout):
    return subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


def hexdump(path):
    data = path.read_bytes()
    rows = [f"{at:04x}  {data[at : at + 16].hex(' ', 2)}" for at in range(0, len(data), 16)]
    return "\n".join(rows)


@pytest.fixture(scope="module")
def built():
    """The directory of the targets."""
    probe = "int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }"
    if shutil.which("clang++") is None:
        pytest.skip("needs clang++")
    linked = subprocess.run(
        ["clang++", "-fsanitize=fuzzer,address", "-x", "c++", "-o", "/dev/null", "-"],
        input=f'extern "C" {probe}',
        capture_output=True,
        text=True,
        check=False,
    )
    if linked.returncode != 0:
        pytest.skip("needs clang's runtimes (libclang-rt-dev)")
    build = ROOT / "build" / "fuzz"
    configure = ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DTAPEWIRE_FUZZ=ON"]
    done = run([*configure, "-DCMAKE_CXX_COMPILER=clang++"], 120)
    assert done.returncode == 0, done.stdout
    done = run(["cmake", "--build", build], 600)
    assert done.returncode == 0, done.stdout
    return build / "native" / "fuzz"


def test_every_target_has_a_small_corpus():
    for target in TARGETS:
        files = list((FUZZ / "corpus" / target).iterdir())
        assert 0 < len(files) < 80, target
        assert all(path.stat().st_size <= 4096 for path in files), target
    assert {path.name for path in (FUZZ / "corpus").iterdir()} == set(TARGETS)


@pytest.mark.long
@pytest.mark.timeout(900)  # the first one builds
@pytest.mark.parametrize("target", TARGETS)
def test_a_minute_of_mutants_breaks_nothing(target, built, tmp_path, record_property):
    found = tmp_path / "found"
    corpus = tmp_path / "corpus"
    found.mkdir()
    corpus.mkdir()
    done = run(
        [
            built / f"{target}_fuzz",
            corpus,
            FUZZ / "corpus" / target,
            f"-max_total_time={SECONDS}",
            f"-artifact_prefix={found}/",
            "-max_len=4096",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
        ],
        SECONDS + 120,
    )
    artifacts = sorted(found.iterdir())
    shown = "\n".join(f"{path}\n{hexdump(path)}" for path in artifacts)
    tail = "\n".join(done.stdout.splitlines()[-40:])
    assert (done.returncode, artifacts) == (0, []), f"{shown}\n{tail}"

    executions = int(re.search(r"stat::number_of_executed_units: (\d+)", done.stdout)[1])
    coverage = int(re.findall(r"cov: (\d+)", done.stdout)[-1])
    record_property("executions", executions)
    record_property("coverage_edges", coverage)
    corpus_files = len(list((FUZZ / "corpus" / target).iterdir()))
    assert executions > corpus_files, "no mutant was run"
