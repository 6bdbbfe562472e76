// Preloaded into a process that writes a queue: records, in order, every call that makes something
// durable or changes a directory below $TAPEWIRE_RECORD_ROOT, and the content of the files then.
//
// Stores to mapped pages are not system calls. But they are visible through the file, so at every
// recorded call, and at every note of the program, all files are read and each changed page is
// logged: the log has every version of a page that could have reached a disk at one of these
// moments. It is appended to $TAPEWIRE_RECORD_LOG; tests/crash/recording.py reads it.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT     __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(&name))real(#name))

enum { kPage = 4096, kMostFiles = 1024, kLargestFile = 1 << 20, kSyncUs = 100 };

struct entry {  // of the log; `length` bytes follow it
    uint32_t kind, length;
    uint64_t file, number;
};

struct file {
    ino_t ino;
    int fd;
    off_t size;
    char* copy;  // as last logged
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct file files[kMostFiles];
static int file_count;
static struct stat directories[16];
static int directory_count;
static char root[PATH_MAX];
static size_t root_length;
static int out = -1;
static uint64_t syncs;

// A failed recorder must not be mistaken for a queue that has lost nothing.
static void die(const char* what) {
    fprintf(stderr, "recorder: %s: %s\n", what, strerror(errno));
    _exit(86);
}

static void* real(const char* name) {
    void* found = dlsym(RTLD_NEXT, name);
    if (found == NULL) die(name);
    return found;
}

static void put(char kind, uint64_t file, uint64_t number, const void* data, size_t length) {
    struct entry entry = {(uint32_t)kind, (uint32_t)length, file, number};
    struct iovec parts[] = {{&entry, sizeof entry}, {(void*)data, length}};
    if (writev(out, parts, 2) != (ssize_t)(sizeof entry + length)) die("cannot write the log");
}

static int is_ours(const char* path) {
    return out >= 0 && strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == '\0');
}

static const char* below_root(const char* path) {
    return path[root_length] == '/' ? path + root_length + 1 : "";
}

static void look_at(struct file* file) {
    static char now[kLargestFile];
    struct stat st;
    if (fstat(file->fd, &st) != 0 || st.st_size > kLargestFile) die("cannot stat a file");
    const ssize_t got = pread(file->fd, now, (size_t)st.st_size, 0);
    if (got != st.st_size) die("cannot read a file");
    if (st.st_size != file->size) put('S', file->ino, (uint64_t)st.st_size, NULL, 0);
    file->copy =
        realloc(file->copy, (size_t)(st.st_size > file->size ? st.st_size : file->size) + 1);
    if (st.st_size > file->size)  // grown: the new part was zeros
        memset(file->copy + file->size, 0, (size_t)(st.st_size - file->size));
    file->size = st.st_size;
    for (off_t at = 0; at < st.st_size; at += kPage) {
        const size_t length = (size_t)(st.st_size - at < kPage ? st.st_size - at : kPage);
        if (memcmp(file->copy + at, now + at, length) == 0) continue;
        memcpy(file->copy + at, now + at, length);
        put('P', file->ino, (uint64_t)(at / kPage), now + at, length);
    }
}

static void look_at_all(void) {
    for (int i = 0; i < file_count; ++i) look_at(&files[i]);
}

static struct file* find(ino_t ino) {
    for (int i = 0; i < file_count; ++i)
        if (files[i].ino == ino) return &files[i];
    return NULL;
}

static void watch(const char* path, char kind) {
    struct stat st;
    if (lstat(path, &st) != 0) die("cannot stat a new file");
    put(kind, st.st_ino, S_ISDIR(st.st_mode), below_root(path), strlen(below_root(path)));
    if (S_ISDIR(st.st_mode)) {
        directories[directory_count++] = st;
        return;
    }
    if (find(st.st_ino) != NULL) die("a file is created twice");
    const int fd = REAL(open)(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file_count == kMostFiles) die("too many files");
    if (fd < 0) die(path);
    files[file_count++] = (struct file){st.st_ino, fd, 0, NULL};
}

static void forget(ino_t ino) {
    struct file* file = find(ino);
    if (file == NULL) return;
    close(file->fd);
    free(file->copy);
    *file = files[--file_count];
}

static void watch_what_is_there(const char* path) {
    DIR* dir = opendir(path);
    if (dir == NULL) return;  // not created yet
    watch(path, 'F');
    for (struct dirent* entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char inside[PATH_MAX];
        snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR) {
            watch_what_is_there(inside);
        } else {
            watch(inside, 'F');
        }
    }
    closedir(dir);
}

__attribute__((constructor)) static void begin(void) {
    const char* path = getenv("TAPEWIRE_RECORD_ROOT");
    const char* log = getenv("TAPEWIRE_RECORD_LOG");
    if (path == NULL || log == NULL) return;
    snprintf(root, sizeof root, "%s", path);
    root_length = strlen(root);
    const int fd = REAL(open)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) die("cannot open the log");
    out = fd;
    watch_what_is_there(root);
    look_at_all();
    put('A', 0, 0, NULL, 0);  // all existing files have been logged
}

// ---- notes of the recorded program ---------------------------------------------------------

EXPORT void recorder_note(const char* text) {
    pthread_mutex_lock(&mutex);
    look_at_all();
    put('N', 0, 0, text, strlen(text));
    pthread_mutex_unlock(&mutex);
}

// Under the mutex, so that no other thread is in the middle of an entry.
EXPORT void recorder_kill(void) {
    pthread_mutex_lock(&mutex);
    look_at_all();
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

// ---- the calls ---------------------------------------------------------

static int is_watched(int fd, ino_t* ino) {
    struct stat st;
    if (out < 0 || fstat(fd, &st) != 0) return 0;
    *ino = st.st_ino;
    pthread_mutex_lock(&mutex);
    int found = find(st.st_ino) != NULL;
    for (int i = 0; i < directory_count; ++i)
        found |= directories[i].st_ino == st.st_ino && directories[i].st_dev == st.st_dev;
    pthread_mutex_unlock(&mutex);
    return found;
}

// Stores before the call are durable after it; stores during the call may be.
static int synced(int (*call)(int), const char* name, int fd) {
    ino_t ino;
    if (!is_watched(fd, &ino)) return call(fd);
    pthread_mutex_lock(&mutex);
    look_at_all();
    const uint64_t number = syncs++;
    put('B', ino, number, name, strlen(name));
    pthread_mutex_unlock(&mutex);
    usleep(kSyncUs);  // the time of a disk, in which other threads continue
    const int rc = call(fd);
    const int err = errno;
    pthread_mutex_lock(&mutex);
    look_at_all();
    if (rc == 0) put('E', ino, number, name, strlen(name));
    pthread_mutex_unlock(&mutex);
    errno = err;
    return rc;
}

EXPORT int fsync(int fd) { return synced(REAL(fsync), "fsync", fd); }
EXPORT int fdatasync(int fd) { return synced(REAL(fdatasync), "fdatasync", fd); }

// Starts writing without a guarantee: nothing is durable.
EXPORT int sync_file_range(int fd, off_t from, off_t bytes, unsigned flags) {
    ino_t ino;
    if (is_watched(fd, &ino)) {
        pthread_mutex_lock(&mutex);
        look_at_all();
        put('T', ino, 0, "sync_file_range", 15);
        pthread_mutex_unlock(&mutex);
    }
    return REAL(sync_file_range)(fd, from, bytes, flags);
}

static int opened(int (*call)(const char*, int, ...), const char* path, int flags, mode_t mode) {
    if ((flags & O_CREAT) == 0 || !is_ours(path)) return call(path, flags, mode);
    pthread_mutex_lock(&mutex);
    struct stat st;
    const int is_new = lstat(path, &st) != 0;
    const int fd = call(path, flags, mode);
    const int err = errno;
    if (fd >= 0 && is_new) watch(path, 'C');
    look_at_all();
    if (fd >= 0 && fstat(fd, &st) == 0) put('T', st.st_ino, 0, "open", 4);
    pthread_mutex_unlock(&mutex);
    errno = err;
    return fd;
}

#define MODE_OF_LAST(flags)                \
    mode_t mode = 0;                       \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest;                      \
        va_start(rest, flags);             \
        mode = (mode_t)va_arg(rest, int);  \
        va_end(rest);                      \
    }

EXPORT int open(const char* path, int flags, ...) {
    MODE_OF_LAST(flags)
    return opened(REAL(open), path, flags, mode);
}

EXPORT int open64(const char* path, int flags, ...) {
    MODE_OF_LAST(flags)
    return opened(REAL(open64), path, flags, mode);
}

static int sized(int fd, const char* name, int rc) {
    const int err = errno;
    ino_t ino;
    if (is_watched(fd, &ino)) {
        pthread_mutex_lock(&mutex);
        look_at_all();
        put('T', ino, 0, name, strlen(name));
        pthread_mutex_unlock(&mutex);
    }
    errno = err;
    return rc;
}

EXPORT int ftruncate(int fd, off_t bytes) {
    return sized(fd, "ftruncate", REAL(ftruncate)(fd, bytes));
}
EXPORT int ftruncate64(int fd, off64_t bytes) {
    return sized(fd, "ftruncate", REAL(ftruncate64)(fd, bytes));
}
EXPORT int fallocate(int fd, int how, off_t from, off_t bytes) {
    return sized(fd, "fallocate", REAL(fallocate)(fd, how, from, bytes));
}
EXPORT int fallocate64(int fd, int how, off64_t from, off64_t bytes) {
    return sized(fd, "fallocate", REAL(fallocate64)(fd, how, from, bytes));
}

// Called with the mutex held, before a name changes: the replaced file is removed.
static ino_t inode_at(const char* path) {
    struct stat st;
    look_at_all();
    return lstat(path, &st) == 0 ? st.st_ino : 0;
}

static void put_renamed(ino_t moved, ino_t replaced, const char* from, const char* to) {
    char both[2 * PATH_MAX];
    const int length = snprintf(both, sizeof both, "%s|%s", below_root(from), below_root(to));
    put('R', moved, 0, both, (size_t)length);
    if (replaced != 0 && replaced != moved) forget(replaced);
}

EXPORT int rename(const char* from, const char* to) {
    if (!is_ours(from) || !is_ours(to)) return REAL(rename)(from, to);
    pthread_mutex_lock(&mutex);
    const ino_t replaced = inode_at(to);
    const ino_t moved = inode_at(from);
    const int rc = REAL(rename)(from, to);
    const int err = errno;
    if (rc == 0) put_renamed(moved, replaced, from, to);
    pthread_mutex_unlock(&mutex);
    errno = err;
    return rc;
}

// renameat2 is called by its number.
EXPORT long syscall(long number, ...) {
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; ++i) a[i] = va_arg(rest, long);
    va_end(rest);
    long (*call)(long, ...) = REAL(syscall);
    const int renames = number == SYS_renameat2 && is_ours((const char*)a[1]);
    if (!renames) return call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const char *from = (const char*)a[1], *to = (const char*)a[3];
    pthread_mutex_lock(&mutex);
    const ino_t replaced = inode_at(to);
    const ino_t moved = inode_at(from);
    const long rc = call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    const int err = errno;
    if (rc == 0) put_renamed(moved, replaced, from, to);
    pthread_mutex_unlock(&mutex);
    errno = err;
    return rc;
}

EXPORT int unlink(const char* path) {
    if (!is_ours(path)) return REAL(unlink)(path);
    pthread_mutex_lock(&mutex);
    const ino_t gone = inode_at(path);
    const int rc = REAL(unlink)(path);
    const int err = errno;
    if (rc == 0) {
        put('U', gone, 0, below_root(path), strlen(below_root(path)));
        forget(gone);
    }
    pthread_mutex_unlock(&mutex);
    errno = err;
    return rc;
}

EXPORT int mkdir(const char* path, mode_t mode) {
    const int rc = REAL(mkdir)(path, mode);
    if (rc != 0 || !is_ours(path)) return rc;
    pthread_mutex_lock(&mutex);
    watch(path, 'C');
    pthread_mutex_unlock(&mutex);
    return rc;
}
