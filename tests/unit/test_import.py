"""What `import tapewire` requires, loads and refuses."""

import subprocess
import sys


def test_an_interpreter_without_the_gil_is_refused():
    code = "import sys; sys._is_gil_enabled = lambda: False; import tapewire"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: tapewire needs the GIL" in done.stderr
    assert "PYTHON_GIL=0" in done.stderr


def test_numpy_and_what_reads_json_are_imported_when_they_are_needed():
    code = "import sys, tapewire; print(sorted({'numpy', 'json'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_opening_a_queue_does_not_load_ctypes(tmp):
    """`for_each` takes a loaded ctypes as a sign that its function may be compiled."""
    program = (
        "import sys, tapewire as tw; tw.open_publisher(sys.argv[1]).close(); "
        "list(tw.open_log(sys.argv[1])); sys.exit('_ctypes' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp / "q")], check=True)
