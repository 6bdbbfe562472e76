"""What all commands have in common."""

import os
import signal

import pytest

from tapewire.cli.output import interruptible


def test_an_error_of_cleaning_up_does_not_take_the_place_of_ctrl_c():
    def clean_up_badly():
        with interruptible():
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                raise RuntimeError("what a library makes of it")

    with pytest.raises(SystemExit) as ended:
        clean_up_badly()
    assert ended.value.code == 128 + signal.SIGINT


def test_an_error_that_nobody_interrupted_stays_one():
    with pytest.raises(RuntimeError), interruptible():
        raise RuntimeError
