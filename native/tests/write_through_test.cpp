// File::write_through on a disk that fails halfway: the records stay in the page cache.
//
// `pwrite` is replaced here, for files opened with O_DIRECT: the first call writes one page, the
// second fails. Before it fails, it drops the rest of the span from the cache, as a direct write
// does; the disk has zeros there.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/file.hpp"
#include "tapewire/mapping.hpp"

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 8;
int direct_writes = 0;
bool disk_fails = true;

ssize_t write_bytes(int fd, const void* from, std::size_t n, off_t at) {
    return ::syscall(SYS_pwrite64, fd, from, n, at);
}

ssize_t failing_write(int fd, const void* from, std::size_t n, off_t at) {
    if (direct_writes++ == 0) return write_bytes(fd, from, kPage, at);
    void* zeros = std::aligned_alloc(kPage, n);
    std::memset(zeros, 0, n);
    const bool dropped = write_bytes(fd, zeros, n, at) == static_cast<ssize_t>(n);
    std::free(zeros);
    errno = dropped ? EIO : EBADF;
    return -1;
}

ssize_t any_write(int fd, const void* from, std::size_t n, off_t at) {
    if (disk_fails && (::fcntl(fd, F_GETFL) & O_DIRECT) != 0) return failing_write(fd, from, n, at);
    return write_bytes(fd, from, n, at);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ssize_t pwrite(int fd, const void* from,
                                                                 std::size_t n, off_t at) {
    return any_write(fd, from, n, at);
}
extern "C" __attribute__((visibility("default"))) ssize_t pwrite64(int fd, const void* from,
                                                                   std::size_t n, off_t at) {
    return any_write(fd, from, n, at);
}

namespace {

// On a disk: memory has no direct I/O before Linux 6.6.
struct Directory {
    std::string path = (kit::fs::current_path() / "write-through-XXXXXX").string();
    Directory() {
        if (::mkdtemp(path.data()) == nullptr) std::abort();
    }
    ~Directory() { kit::fs::remove_all(path); }
};

bool has_direct_io(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
    if (fd >= 0) ::close(fd);
    return fd >= 0;
}

TEST(a_write_that_fails_half_way_leaves_the_records_in_the_page_cache) {
    const Directory directory;
    const std::string path = directory.path + "/segment";
    std::vector<char> records(kPages * kPage);
    for (std::size_t i = 0; i < records.size(); ++i) records[i] = static_cast<char>(i * 7 / 5 + 1);
    const tapewire::File file(path, O_RDWR | O_CREAT);
    if (!has_direct_io(path)) {
        std::cerr << "skipped: no direct I/O here" << std::endl;
        return;
    }
    file.write_at(records.data(), records.size(), 0);
    const tapewire::Mapping map(file, records.size(), tapewire::Mapping::Access::read_write);
    CHECK(kit::throws(tapewire::Errc::os_error,
                      [&] { file.write_through(map.data(), kPage + 100, 7 * kPage - 100); }));
    CHECK_EQ(direct_writes, 2);
    CHECK_EQ(std::memcmp(map.data(), records.data(), records.size()), 0);
}

// A queue of another implementation may have segments of any multiple of 64 bytes.
TEST(a_file_whose_length_is_not_a_multiple_of_a_page_keeps_its_length) {
    const Directory directory;
    const std::string path = directory.path + "/segment";
    std::vector<char> records(2 * kPage + 192);
    for (std::size_t i = 0; i < records.size(); ++i) records[i] = static_cast<char>(i * 7 / 5 + 1);
    const tapewire::File file(path, O_RDWR | O_CREAT);
    file.write_at(records.data(), records.size(), 0);
    disk_fails = false;
    for (const std::uint64_t from : {std::uint64_t{0}, std::uint64_t{kPage}, 2 * kPage + 64}) {
        const tapewire::Mapping map(file, records.size(), tapewire::Mapping::Access::read_write);
        file.write_through(map.data(), from, records.size());
        CHECK_EQ(file.size(), records.size());
        CHECK(std::memcmp(map.data(), records.data(), records.size()) == 0);
    }
    disk_fails = true;
}

}  // namespace

TEST_MAIN()
