// Files and directories: a descriptor that closes itself (only in the process that opened it), and
// the operations on entire files that the engines need. Every failure is an Error with the path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tapewire {

class File {
  public:
    File() = default;
    // Always O_CLOEXEC and O_NOFOLLOW: a link inside a queue must not lead out of it.
    File(const std::string& path, int flags, unsigned mode = 0600);
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() { close(); }

    // Empty if the file does not exist; other failures throw.
    static std::optional<File> open_existing(const std::string& path, int flags);

    void close() noexcept;
    explicit operator bool() const noexcept { return fd_ >= 0; }
    int fd() const noexcept { return fd_; }
    const std::string& path() const noexcept { return path_; }

    std::uint64_t size() const;
    std::size_t read_at(void* into, std::size_t n, std::uint64_t offset) const;  // short at the end
    void write_at(const void* from, std::size_t n, std::uint64_t offset) const;
    void resize(std::uint64_t bytes) const;
    void allocate(std::uint64_t bytes) const;  // reserves blocks: ENOSPC here, not SIGBUS later
    // The same for an existing file with or without holes, whose bytes stay unchanged.
    void allocate_holes(std::uint64_t bytes) const;
    void allocate_range(std::uint64_t from, std::uint64_t bytes) const;  // inside the file's length
    // Frees the blocks of bytes that are zero; content and length stay the same. Does nothing where
    // the file system does not support it.
    void free_zeros(std::uint64_t from, std::uint64_t to) const;
    // Whether next_data() and next_hole() can be used: the file system reports holes, also next to
    // bytes that a mapping has just written.
    bool shows_holes() const noexcept;
    // The first offset from `from` on that was ever written: all bytes before it are zero. 2^64 -
    // 1: none.
    std::uint64_t next_data(std::uint64_t from) const noexcept;
    std::uint64_t next_hole(std::uint64_t from) const noexcept;  // 2^64 - 1: none, or not known
    void sync_data() const;
    // Writes the pages of [from, to) to their blocks past the page cache; `mapped` is the mapped
    // file. For use after a failed write-back: ext4 keeps a block that could not be written as
    // "never written", and writing its page again does not change that, so it reads as zeros once
    // the page is dropped. No thread may change these pages meanwhile; a reader may see zeros until
    // the write ends. Does nothing where there is no direct I/O. When it throws, the pages are in
    // the cache as before.
    void write_through(const std::byte* mapped, std::uint64_t from, std::uint64_t to) const;
    bool try_lock(int how) const;  // flock; false if another process holds it
    // An open-file-description lock for writing on the entire file. It needs write permission, so a
    // process that may only read cannot hold it, but can keep it from being taken by a lock for
    // reading.
    bool try_write_lock() const noexcept;
    // Whether another open file description holds it; read locks do not count.
    bool is_write_locked() const noexcept;
    bool is_read_locked() const noexcept;
    void unlock() const noexcept;  // of both kinds: flock, and by open file description
    // False: it was removed or replaced. Throws if that cannot be determined.
    bool is_still_at_its_path() const;
    // By writing, so that a full disk fails here: a hole would cause a SIGBUS under a mapping
    // later.
    void extend_with_zeros(std::uint64_t bytes) const;
    void moved_to(std::string path) { path_ = std::move(path); }  // after a rename

  private:
    void put_back(const std::byte* copy, std::uint64_t bytes, std::uint64_t offset) const noexcept;

    int fd_ = -1;
    std::uint32_t born_ = 0;
    std::string path_;
};

// A directory, opened for syncing. Failing to open it (no descriptors) loses nothing; a failed sync
// may have lost entries.
class Directory {
  public:
    explicit Directory(const std::string& path);
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory();

    void sync() const;

  private:
    int fd_ = -1;
    std::string path_;
};

// A flock on a directory for the lifetime of the object, which serializes changes of its files
// between processes. Empty (false) if it was not obtained within `patience_ns`.
class DirectoryLock {
  public:
    DirectoryLock() = default;
    DirectoryLock(const std::string& path, int how, std::int64_t patience_ns);
    DirectoryLock(DirectoryLock&& other) noexcept
        : fd_(std::exchange(other.fd_, -1)), born_(other.born_) {}
    DirectoryLock& operator=(DirectoryLock&& other) noexcept;
    DirectoryLock(const DirectoryLock&) = delete;
    DirectoryLock& operator=(const DirectoryLock&) = delete;
    ~DirectoryLock() { release(); }

    explicit operator bool() const noexcept { return fd_ >= 0; }
    void release() noexcept;

  private:
    int fd_ = -1;
    std::uint32_t born_ = 0;
};

void make_directory(const std::string& path);  // 0700, with parents; may exist
void sync_directory(const std::string& path);
bool file_exists(const std::string& path) noexcept;
// Whether the files in this directory are only in memory (tmpfs, ramfs).
bool is_memory_backed(const std::string& directory) noexcept;
bool is_directory(const std::string& path) noexcept;
void rename_over(const std::string& from, const std::string& to);
// False if `to` exists.
bool rename_without_replacing(const std::string& from, const std::string& to);
bool remove_file(const std::string& path);  // false if it did not exist
std::vector<std::string> list_directory(const std::string& path);
std::string read_small_file(const std::string& path, std::size_t limit);

}  // namespace tapewire
