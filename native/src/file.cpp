#include "tapewire/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/process.hpp"

namespace tapewire {

namespace {

// NONBLOCK has no effect on a file, and avoids blocking indefinitely on a pipe in its place.
int open_regular(const std::string& path, int flags, unsigned mode) noexcept {
    const int fd = open_descriptor(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    struct stat st{};
    if (fd >= 0 && (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
        close_descriptor(fd);
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    return fd;
}

std::string parent_of(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

File::File(const std::string& path, int flags, unsigned mode) : path_(path) {
    fd_ = open_regular(path, flags, mode);
    if (fd_ < 0) throw_errno("cannot open file", path);
    born_ = fork_generation();
}

std::optional<File> File::open_existing(const std::string& path, int flags) {
    File file;
    file.fd_ = open_regular(path, flags, 0);
    if (file.fd_ < 0) {
        if (errno == ENOENT) return std::nullopt;
        throw_errno("cannot open file", path);
    }
    file.path_ = path;
    file.born_ = fork_generation();
    return file;
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), born_(other.born_), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
    if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
        born_ = other.born_;
        path_ = std::move(other.path_);
    }
    return *this;
}

void File::close() noexcept {
    if (fd_ < 0) return;
    // In a forked child the descriptor was closed already, and its number may be reused by now.
    if (born_ == fork_generation()) close_descriptor(fd_);
    fd_ = -1;
}

std::uint64_t File::size() const {
    struct stat st;
    if (::fstat(fd_, &st) != 0) throw_errno("cannot stat file", path_);
    return static_cast<std::uint64_t>(st.st_size);
}

std::size_t File::read_at(void* into, std::size_t n, std::uint64_t offset) const {
    std::size_t done = 0;
    while (done < n) {
        const ssize_t got = ::pread(fd_, static_cast<char*>(into) + done, n - done,
                                    static_cast<off_t>(offset + done));
        if (got < 0) {
            if (errno == EINTR) continue;
            throw_errno("cannot read file", path_);
        }
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

void File::write_at(const void* from, std::size_t n, std::uint64_t offset) const {
    std::size_t done = 0;
    while (done < n) {
        const ssize_t put = ::pwrite(fd_, static_cast<const char*>(from) + done, n - done,
                                     static_cast<off_t>(offset + done));
        if (put < 0) {
            if (errno == EINTR) continue;
            throw_errno("cannot write file", path_);
        }
        done += static_cast<std::size_t>(put);
    }
}

void File::resize(std::uint64_t bytes) const {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw_errno("cannot resize file", path_);
}

namespace {

// 0 or an errno.
int fallocate_patiently(int fd, int how, std::uint64_t from, std::uint64_t bytes) noexcept {
    int rc;
    do {
        rc = ::fallocate(fd, how, static_cast<off_t>(from), static_cast<off_t>(bytes)) == 0 ? 0
                                                                                            : errno;
    } while (rc == EINTR);
    return rc;
}

[[noreturn]] void throw_no_room(int rc, std::uint64_t bytes, const std::string& path) {
    throw_os_error(rc, "cannot allocate " + std::to_string(bytes) + " bytes", path);
}

}  // namespace

void File::allocate(std::uint64_t bytes) const {
    int rc = fallocate_patiently(fd_, 0, 0, bytes);
    if (rc == EOPNOTSUPP) {  // glibc's form writes to each block instead
        do {
            rc = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
        } while (rc == EINTR);
    }
    if (rc != 0) throw_no_room(rc, bytes, path_);
}

void File::allocate_holes(std::uint64_t bytes) const {
    const int rc = fallocate_patiently(fd_, 0, 0, bytes);
    if (rc == 0) return;
    if (rc != EOPNOTSUPP) throw_no_room(rc, bytes, path_);
    // Writing to each block of a large file takes seconds: only if some are missing.
    struct stat found;
    if (::fstat(fd_, &found) != 0) throw_errno("cannot stat file", path_);
    if (static_cast<std::uint64_t>(found.st_blocks) * 512 < bytes) allocate(bytes);
}

void File::allocate_range(std::uint64_t from, std::uint64_t bytes) const {
    const int rc = fallocate_patiently(fd_, 0, from, bytes);
    if (rc == EOPNOTSUPP) return;  // ramfs: a page is allocated on access
    if (rc != 0) throw_no_room(rc, bytes, path_);
}

void File::free_zeros(std::uint64_t from, std::uint64_t to) const {
    if (from >= to) return;
    const int rc =
        fallocate_patiently(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, to - from);
    if (rc != 0 && rc != EOPNOTSUPP) {
        throw_os_error(rc, "cannot free the space after the end", path_);
    }
}

bool File::shows_holes() const noexcept {
    struct statfs system{};
    if (::fstatfs(fd_, &system) != 0) return false;
    switch (static_cast<std::uint32_t>(system.f_type)) {
        case BTRFS_SUPER_MAGIC:
        case EXT4_SUPER_MAGIC:
        case TMPFS_MAGIC:
        case XFS_SUPER_MAGIC:
            return true;
        default:
            return false;
    }
}

std::uint64_t File::next_data(std::uint64_t from) const noexcept {
    const off_t found = ::lseek(fd_, static_cast<off_t>(from), SEEK_DATA);
    if (found >= 0) return static_cast<std::uint64_t>(found);
    return errno == ENXIO ? ~std::uint64_t{0} : from;  // ENXIO: none up to the end of the file
}

std::uint64_t File::next_hole(std::uint64_t from) const noexcept {
    constexpr auto kNone = ~std::uint64_t{0};
    const off_t found = ::lseek(fd_, static_cast<off_t>(from), SEEK_HOLE);
    // A place that is data for one call and a hole for the next was punched meanwhile.
    return found > static_cast<off_t>(from) ? static_cast<std::uint64_t>(found) : kNone;
}

void File::sync_data() const {
    while (::fdatasync(fd_) != 0) {
        if (errno != EINTR) throw_errno("cannot sync file", path_);
    }
}

void File::write_through(const std::byte* mapped, std::uint64_t from, std::uint64_t to) const {
    constexpr std::uint64_t kPage = 4096;
    const std::uint64_t begin = from / kPage * kPage;
    // The last page of a file whose length is not a multiple of a page cannot be written past the
    // cache, and must not be extended.
    const std::uint64_t end = std::min((to + kPage - 1) / kPage * kPage, size() / kPage * kPage);
    if (const std::uint64_t rest = std::max(begin, end); to > rest)
        write_at(mapped + rest, to - rest, rest);
    if (begin >= end) return;
    std::optional<File> direct;
    try {
        direct.emplace(path_, O_WRONLY | O_DIRECT);
    } catch (const Error& e) {
        if (e.os_errno == EINVAL) return;
        throw;
    }
    // All of it is copied first: a write drops pages from the cache, neighbours in the same folio
    // included, and reading them again gives zeros.
    const std::unique_ptr<void, decltype(&std::free)> copy(std::aligned_alloc(kPage, end - begin),
                                                           &std::free);
    if (!copy) throw_os_error(ENOMEM, "cannot copy unsynced records", path_);
    std::memcpy(copy.get(), mapped + begin, end - begin);
    for (std::uint64_t at = begin; at < end;) {
        const std::byte* source = static_cast<const std::byte*>(copy.get()) + (at - begin);
        const ssize_t n = ::pwrite(direct->fd(), source, end - at, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && at == begin) return;
        if (n < static_cast<ssize_t>(kPage)) {
            const int err = n < 0 ? errno : ENOSPC;
            put_back(source, end - at, at);
            throw_os_error(err, "cannot write file", path_);
        }
        at += static_cast<std::uint64_t>(n) / kPage * kPage;
    }
}

// A direct write that fails may have dropped the cached pages all the same, and then the copy is
// the last one. Written as entire pages, so that nothing has to be read from the failing disk, as a
// store to a mapped page would require; the mapping shows the same pages.
void File::put_back(const std::byte* copy, std::uint64_t bytes,
                    std::uint64_t offset) const noexcept {
    try {
        write_at(copy, bytes, offset);
    } catch (const Error&) {
        // The caller throws, with the reason why the pages could not be written to disk.
    }
}

bool File::try_lock(int how) const {
    while (::flock(fd_, how | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return false;
        if (errno != EINTR) throw_errno("cannot lock file", path_);
    }
    return true;
}

namespace {

struct flock entire_file(short type) noexcept {
    struct flock range{};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    return range;
}

// The type of a lock that conflicts with one of `type`; F_UNLCK if there is none.
short conflicting_lock(int fd, short type) noexcept {
    struct flock range = entire_file(type);
    return ::fcntl(fd, F_OFD_GETLK, &range) == 0 ? range.l_type : short{F_UNLCK};
}

}  // namespace

bool File::try_write_lock() const noexcept {
    struct flock range = entire_file(F_WRLCK);
    return ::fcntl(fd_, F_OFD_SETLK, &range) == 0;
}

bool File::is_write_locked() const noexcept { return conflicting_lock(fd_, F_RDLCK) == F_WRLCK; }

bool File::is_read_locked() const noexcept { return conflicting_lock(fd_, F_WRLCK) == F_RDLCK; }

void File::unlock() const noexcept {
    if (fd_ < 0 || born_ != fork_generation()) return;
    ::flock(fd_, LOCK_UN);
    struct flock range = entire_file(F_UNLCK);
    (void)::fcntl(fd_, F_OFD_SETLK, &range);
}

bool File::is_still_at_its_path() const {
    struct stat held, named;
    if (::fstat(fd_, &held) != 0) throw_errno("cannot stat file", path_);
    if (::stat(path_.c_str(), &named) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return false;
        throw_errno("cannot stat file", path_);  // it may well exist
    }
    return held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

void File::extend_with_zeros(std::uint64_t bytes) const {
    const std::uint64_t size = this->size();
    if (size >= bytes) return;
    const std::vector<char> zeros(bytes - size);
    write_at(zeros.data(), zeros.size(), size);
}

DirectoryLock::DirectoryLock(const std::string& path, int how, std::int64_t patience_ns)
    : fd_(open_descriptor(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)),
      born_(fork_generation()) {
    if (fd_ < 0) throw_errno("cannot open directory", path);
    const std::int64_t deadline = mono_ns() + patience_ns;
    while (::flock(fd_, how | LOCK_NB) != 0) {
        if (mono_ns() >= deadline) {
            release();
            return;
        }
        const timespec pause{0, 200'000};
        ::nanosleep(&pause, nullptr);
    }
}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
    if (this != &other) {
        release();
        fd_ = std::exchange(other.fd_, -1);
        born_ = other.born_;
    }
    return *this;
}

void DirectoryLock::release() noexcept {
    if (fd_ >= 0 && born_ == fork_generation()) {
        ::flock(fd_, LOCK_UN);
        close_descriptor(fd_);
    }
    fd_ = -1;
}

void make_directory(const std::string& path) {
    if (is_directory(path)) return;
    if (::mkdir(path.c_str(), 0700) != 0) {
        if (errno == EEXIST) {
            if (is_directory(path)) return;  // another process has just made it
            throw_os_error(ENOTDIR, "cannot create directory", path);
        }
        if (errno != ENOENT) throw_errno("cannot create directory", path);
        make_directory(parent_of(path));
        if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
            throw_errno("cannot create directory", path);
    }
    sync_directory(parent_of(path));  // otherwise a loss of power takes everything in it
}

Directory::Directory(const std::string& path)
    : fd_(open_descriptor(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)), path_(path) {
    if (fd_ < 0) throw_errno("cannot open directory", path);
}

Directory::~Directory() { close_descriptor(fd_); }

void Directory::sync() const {
    // Some filesystems (overlay, network) cannot sync a directory and report that; this is not a
    // lost write.
    while (::fsync(fd_) != 0) {
        if (errno == EINVAL || errno == ENOTSUP) return;
        if (errno != EINTR) throw_errno("cannot sync directory", path_);
    }
}

void sync_directory(const std::string& path) { Directory(path).sync(); }

bool file_exists(const std::string& path) noexcept {
    struct stat st;
    return ::lstat(path.c_str(), &st) == 0;
}

bool is_directory(const std::string& path) noexcept {
    struct stat st;
    return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool is_memory_backed(const std::string& directory) noexcept {
    struct statfs system{};
    if (::statfs(directory.c_str(), &system) != 0) return false;
    const auto type = static_cast<std::uint32_t>(system.f_type);
    return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

void rename_over(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) throw_errno("cannot rename to " + to, from);
}

bool rename_without_replacing(const std::string& from, const std::string& to) {
    if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) ==
        0) {
        return true;
    }
    if (errno == EEXIST) return false;
    if (errno != EINVAL && errno != ENOSYS) throw_errno("cannot rename to " + to, from);
    // Filesystems without the flag (NFS, some FUSE): a hard link does not replace a file either.
    if (::link(from.c_str(), to.c_str()) != 0) {
        if (errno == EEXIST) return false;
        throw_errno("cannot link to " + to, from);
    }
    ::unlink(from.c_str());
    return true;
}

bool remove_file(const std::string& path) {
    if (::unlink(path.c_str()) == 0) return true;
    if (errno == ENOENT) return false;
    throw_errno("cannot remove file", path);
}

std::vector<std::string> list_directory(const std::string& path) {
    const int fd = open_descriptor(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR* dir = fd < 0 ? nullptr : ::fdopendir(fd);
    if (dir == nullptr) throw_errno("cannot list directory", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(dir)) {
        names.emplace_back(entry->d_name);
        errno = 0;
    }
    const int err = errno;  // a truncated list must not be taken for a complete one
    disown_descriptor(fd);
    ::closedir(dir);
    if (err != 0) throw_os_error(err, "cannot list directory", path);
    return names;
}

std::string read_small_file(const std::string& path, std::size_t limit) {
    std::optional<File> file = File::open_existing(path, O_RDONLY);
    if (!file) return {};
    std::string text(limit, '\0');
    text.resize(file->read_at(text.data(), limit, 0));
    return text;
}

}  // namespace tapewire
