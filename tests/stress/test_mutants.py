"""A million mutants of small queues; a usual run of the native test has a few thousand."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = 1_000_000
PROCESSES = 2


@pytest.fixture(scope="module")
def program():
    """The test program, optimised and with assertions, as `make test-native-plain` builds it."""
    build = ROOT / "build" / "native-plain"
    flags = ["-DTAPEWIRE_NATIVE_TESTS=ON", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O2"]
    for command in (
        ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *flags],
        ["cmake", "--build", build, "--target", "mutants_test"],
    ):
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
    return build / "mutants_test"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_mutants_are_read_and_repaired(program):
    running = [
        subprocess.Popen(
            [program],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=dict(
                os.environ,
                TAPEWIRE_MUTANTS=str(MUTANTS // PROCESSES),
                TAPEWIRE_MUTANT_SEED=str(seed),
            ),
        )
        for seed in range(1000, 1000 + PROCESSES)
    ]
    outputs = [child.communicate()[0] for child in running]
    for child, output in zip(running, outputs, strict=True):
        assert child.returncode == 0, output
