"""A small file system that a child of the crash tests mounts for itself; it ends with the child."""

import ctypes
import os
import shutil
import subprocess

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
TMPFS_BYTES = 1 << 20
EXT4_BYTES = 4 << 20  # a journal alone takes 1 MiB
FILESYSTEMS = ("tmpfs", "ext4")


def _checked(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _run(*command):
    if shutil.which(command[0]) is None:
        raise OSError(f"needs {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _own_mounts():
    """Give this process its own mounts, which end with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        _checked(libc.unshare(CLONE_NEWNS), "unshare")
    else:
        _checked(libc.unshare(CLONE_NEWNS | CLONE_NEWUSER), "unshare")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {uid} 1"),
            ("gid_map", f"0 {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _checked(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount private")
    return libc


class SmallDisk:
    """A file system of a few segments, with ballast that can be removed.

    ext4 is in a file behind a loop device, which the kernel frees with the mount. Unlike tmpfs, it
    reserves blocks before it allocates them (delayed allocation) and needs some for its tables.
    """

    def __init__(self, filesystem, directory):
        libc = _own_mounts()
        self.directory = directory
        self.queue = os.path.join(directory, "queue")
        self._ballast = os.path.join(directory, "ballast")
        self._image = directory + ".image"
        if filesystem == "tmpfs":
            options = f"size={TMPFS_BYTES},mode=0700".encode()
            _checked(
                libc.mount(b"none", os.fsencode(directory), b"tmpfs", 0, options), "mount tmpfs"
            )
        else:
            with open(self._image, "wb") as file:
                file.truncate(EXT4_BYTES)
            _run("mkfs.ext4", "-q", "-m", "0", self._image)
            self._mount_image()

    def _mount_image(self):
        _run("mount", "-o", "loop", self._image, self.directory)

    def mount_again(self):
        """What is read afterwards comes from the blocks of the image, not from the page cache."""
        _run("umount", self.directory)
        self._mount_image()

    def fill(self, leave=0):
        """Use up all space but `leave` bytes."""
        block = os.statvfs(self.directory).f_frsize
        with open(self._ballast, "wb") as file:
            size = 0
            piece = self._room()
            while (more := min(piece, self._room() - leave)) >= block:
                # The writer's threads and ext4's tables also take pages, so space that was free may
                # be gone.
                try:
                    os.posix_fallocate(file.fileno(), size, more)
                    size += more
                except OSError:
                    piece = more // 2

    def _room(self):
        free = os.statvfs(self.directory)
        return free.f_bavail * free.f_frsize

    def free(self):
        os.unlink(self._ballast)


class ThinDisk:
    """ext4 on overcommitted blocks: while it is starved, a write to a new block fails.

    The image is a sparse file on a small tmpfs. No journal: its failure would stop ext4.
    """

    TMPFS_BYTES = 64 << 20
    EXT4_BYTES = 128 << 20

    def __init__(self, directory):
        libc = _own_mounts()
        self.directory = directory
        self.queue = os.path.join(directory, "queue")
        self._back = directory + ".back"
        self._image = os.path.join(self._back, "image")
        self._ballast = os.path.join(self._back, "ballast")
        os.mkdir(self._back)
        options = f"size={self.TMPFS_BYTES},mode=0700".encode()
        _checked(libc.mount(b"none", os.fsencode(self._back), b"tmpfs", 0, options), "mount tmpfs")
        with open(self._image, "wb") as file:
            file.truncate(self.EXT4_BYTES)
        _run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", self._image)
        self._mount()

    def _mount(self):
        _run("mount", "-o", "loop,errors=continue", self._image, self.directory)

    def starve(self):
        """Make each write-back to a block that was never written fail."""
        with open(self._ballast, "wb") as file:
            for step in (1 << 20, 64 << 10, 4 << 10):
                try:
                    while True:
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), step)
                except OSError:
                    continue

    def feed(self):
        os.unlink(self._ballast)

    def mount_again(self):
        """What is read afterwards comes from the blocks of the image, not from the page cache."""
        _run("umount", self.directory)
        self._mount()


def small_disk_or_say_why(line, where, kind=SmallDisk):
    """`where`: the arguments of `kind`. If mounting is not permitted, send "unable" and exit."""
    try:
        return kind(**where)
    except OSError as error:
        line.say("unable", str(error))
        raise SystemExit(0) from None
