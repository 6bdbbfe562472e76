"""Processes that kill themselves at a chosen step of those that change the disk."""

import os
import signal


class Steps:
    """Count steps, and kill this process with SIGKILL at the `last`-th.

    Steps are before and after each sync, each rename, and each call of the other functions given;
    they count from where `begun` is true.
    """

    def __init__(self, last, *others, begun=lambda: True):
        self.count = 0
        self._begun = begun
        self._last = last
        for owner, name in ((os, "fsync"), (os, "rename"), *others):
            setattr(owner, name, self._stepping(getattr(owner, name)))

    def _step(self):
        if self.count == 0 and not self._begun():
            return
        self.count += 1
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def _stepping(self, function):
        def stepped(*arguments, **options):
            self._step()
            result = function(*arguments, **options)
            self._step()
            return result

        return stepped
