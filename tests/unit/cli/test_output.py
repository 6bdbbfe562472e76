"""What all commands share."""

import os
import signal

import pytest

from tapewire.cli.output import interruptible


def test_an_error_during_clean_up_does_not_replace_ctrl_c():
    def clean_up_badly():
        with interruptible():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                raise RuntimeError("raised by a library")

    with pytest.raises(SystemExit) as ended:
        clean_up_badly()
    assert ended.value.code == 128 + signal.SIGINT


def test_an_error_without_a_signal_is_raised():
    with pytest.raises(RuntimeError), interruptible():
        raise RuntimeError
