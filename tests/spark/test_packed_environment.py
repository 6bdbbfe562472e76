"""A packed wheel of this tree on workers whose own Python has neither it nor its dependencies."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import tapewire as tw
from tests.spark.cluster import Cluster, drive
from tests.support.processes import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # compiles the native core

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


def bare_python():
    """The base interpreter of this virtual environment, without its packages."""
    python = Path(sys.base_prefix) / "bin" / VERSION
    has = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tapewire') is None)"
    if (
        not python.exists()
        or subprocess.run([python, "-I", "-c", has], check=False).returncode == 0
    ):
        pytest.skip(f"needs a {VERSION} without tapewire below the virtual environment")
    return python


def run(*command, **options):
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A new virtual environment with a wheel of this tree and the packages that it needs."""
    directory = tmp_path_factory.mktemp("packed")
    tools = str(Path(sys.executable).parent)
    environ = os.environ | {"PATH": tools + os.pathsep + os.environ["PATH"]}
    build = (
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        ROOT,
        "-w",
        directory / "wheel",
    )
    run(sys.executable, "-m", "pip", *build, env=environ)
    (wheel,) = (directory / "wheel").glob("tapewire-*.whl")
    venv.create(directory / "venv", with_pip=True, symlinks=True)
    python = directory / "venv" / "bin" / VERSION
    # From the same index and with the same versions as the rest of the environment.
    constraints = ("-c", ROOT / "constraints.txt")
    run(python, "-m", "pip", "install", "--quiet", *constraints, f"{wheel}[spark]")
    yield python
    shutil.rmtree(directory)


def test_workers_without_tapewire_read_with_a_packed_environment(driver, tmp):
    bare = bare_python()
    archive = tmp / "environment.tar"
    said = run(driver, "-m", "tapewire.spark", "pack", archive, cwd=tmp)
    assert said.startswith(f"{archive}: ")
    with tw.open_publisher(tmp / "log", segment_bytes=1 << 18) as writer:
        for i in range(10_000):
            writer.append(1, b"%d" % i)
    code = """
    import tapewire
    def whence(_):
        import sys, tapewire, numpy
        yield [sys.executable, tapewire.__file__, numpy.__file__]
    spark.stop()
    spark = tws.session("packed", master, conf=conf, environment=args[1])
    df = spark.read.format("tapewire").option("partitions", 4).load(args[0])
    total = df.selectExpr("count(*)", "sum(seq)").first()
    places = spark.sparkContext.parallelize(range(4), 4).mapPartitions(whence).collect()
    answer({"total": list(total), "places": places, "driver": tapewire.__file__})
    """
    directory = tmp / "cluster"
    directory.mkdir()
    surroundings = {"PATH": f"{bare.parent}:/usr/bin:/bin"}
    with Cluster(directory, env=surroundings) as cluster:
        result = drive(
            code,
            cluster.master,
            tmp / "log",
            archive,
            python=driver,
            env={"PYTHONPATH": None},
        )
    assert result["total"] == [10_000, sum(range(10_000))]
    assert Path(result["driver"]).is_relative_to(driver.parents[1])
    for executable, package, numpy in result["places"]:
        assert Path(executable).resolve() == bare.resolve()
        assert Path(package).is_relative_to(directory), package
        assert Path(numpy).is_relative_to(directory), numpy
