"""The SIGBUS handler of mapped files together with those of faulthandler, ctypes and others."""

import signal

import pytest

from tests.crash.scripts import python

BEGIN = """
    import contextlib, ctypes, faulthandler, mmap, os, signal, sys, time
    import tapewire as tw

    queue = os.path.join(sys.argv[1], "queue")
    segment = os.path.join(queue, "000000000.q")

    def fault_in_a_foreign_mapping():
        with open(os.path.join(sys.argv[1], "foreign"), "w+b") as file:
            file.truncate(4096)
            view = mmap.mmap(file.fileno(), 4096)
            file.truncate(0)
        return view[0]

    writer = tw.open_publisher(queue, segment_bytes=8192)
    writer.append(1, bytes(1000))
    reader = tw.open_log(queue)
"""

TRUNCATED = {
    "writer": """
    os.truncate(segment, 0)
    try:
        writer.append(1, b"y")
    except tw.MappingLost:
        print("lost")
    with contextlib.suppress(tw.TapewireError):
        writer.close()
""",
    "reader": """
    writer.close()
    os.truncate(segment, 0)
    try:
        reader.next()
    except tw.MappingLost:
        print("lost")
    reader.close()
""",
}

# `sa_handler` is the first word of struct sigaction on Linux.
CTYPES = """
    libc = ctypes.CDLL(None)
    HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
    own = HANDLER(lambda signum: os._exit(42))
    libc.signal.argtypes = [ctypes.c_int, HANDLER]

    def installed():
        action = ctypes.create_string_buffer(256)
        libc.sigaction(signal.SIGBUS, None, action)
        return int.from_bytes(action.raw[:8], "little")

    libc.signal(signal.SIGBUS, own)
    address = ctypes.cast(own, ctypes.c_void_p).value
    deadline = time.monotonic() + 20
    while installed() == address:  # until a heartbeat of the queue sees it
        assert time.monotonic() < deadline
        time.sleep(0.001)
"""

REPLACED = {
    "faulthandler.enable": "    faulthandler.enable()\n",
    "faulthandler.enable and disable": "    faulthandler.enable(); faulthandler.disable()\n",
    "signal.signal by ctypes": CTYPES,
}


@pytest.mark.parametrize("handle", TRUNCATED)
@pytest.mark.parametrize("replaced", REPLACED)
def test_a_truncated_file_is_a_lost_mapping_after_the_handler_was_replaced(tmp, replaced, handle):
    done = python(BEGIN + REPLACED[replaced] + TRUNCATED[handle], tmp, check=False)
    assert (done.returncode, done.stdout) == (0, "lost\n"), done.stderr


def test_a_bus_error_elsewhere_reaches_the_traceback_of_faulthandler_enabled_later(tmp):
    code = BEGIN + REPLACED["faulthandler.enable"] + "    fault_in_a_foreign_mapping()\n"
    done = python(code, tmp, check=False)
    assert "Bus error" in done.stderr
    assert "fault_in_a_foreign_mapping" in done.stderr
    assert done.returncode == -signal.SIGBUS


def test_a_bus_error_elsewhere_ends_the_process_after_faulthandler_was_disabled(tmp):
    """Its handler returns at once then, and the same instruction faults again."""
    code = BEGIN + REPLACED["faulthandler.enable and disable"]
    done = python(code + "    fault_in_a_foreign_mapping()\n", tmp, check=False)
    assert done.returncode == -signal.SIGBUS


def test_a_bus_error_elsewhere_reaches_a_handler_installed_later_by_ctypes(tmp):
    done = python(BEGIN + CTYPES + "    fault_in_a_foreign_mapping()\n", tmp, check=False)
    assert done.returncode == 42


def test_faulthandler_works_as_before_where_it_is_wrapped(tmp):
    code = """
        import faulthandler, sys
        before = faulthandler.enable
        import tapewire
        assert faulthandler.enable.__wrapped__ is before
        with open(sys.argv[1], "w") as file:
            faulthandler.enable(file, all_threads=False)
            assert faulthandler.is_enabled()
            assert faulthandler.disable() is True
        assert not faulthandler.is_enabled()
        assert faulthandler.disable() is False
    """
    python(code, tmp / "traceback")
