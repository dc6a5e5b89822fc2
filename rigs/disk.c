/* A disk that can be recorded, and that can fail: preload this into a process.
 *
 * DISK_FOLDER  the folder to watch: its own entries, and what is written to the files directly in it
 * DISK_LOG     where every change is recorded, in the order in which it happened (none: nothing is)
 * disk_arm     make one of the next calls of a kind fail; disk_calls counts them
 *
 * A call is held until it is recorded, so the order of the log is the order of the disk. Reads are not
 * recorded, nor is what goes through a memory map (SQLite's -shm file, which no recovery reads).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 4096, LOG_HANDLE = 300 };

struct __attribute__((packed)) record {
    char what;        /* New, Write, Truncate, Sync, Failed sync, Directory sync, Link, Rename, Unlink */
    uint64_t inode;
    uint64_t at;
    uint32_t size;    /* of what follows */
};

struct handle {
    char open, directory, mark, synchronous, append;
    uint64_t inode;
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static struct handle handles[FILES];
static char folder[PATH_MAX];
static size_t folder_size;
static int log_handle = -1;
static long calls[128], fail_at[128];
static int fail_with[128];

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void begin(void) {
    const char *named = getenv("DISK_FOLDER"), *log = getenv("DISK_LOG");
    if (named && realpath(named, folder)) folder_size = strlen(folder);
    if (log) {
        int handle = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        log_handle = fcntl(handle, F_DUPFD_CLOEXEC, LOG_HANDLE);
        syscall(SYS_close, handle);
    }
}

/* From now on, the count-th call of a kind ('w' write, 's' sync, 'n' name) fails; 0: none does. */
void disk_arm(int kind, long count, int error) {
    pthread_mutex_lock(&turn);
    fail_at[kind] = count ? calls[kind] + count : 0;
    fail_with[kind] = error;
    pthread_mutex_unlock(&turn);
}

long disk_calls(int kind) { return calls[kind]; }

static int fails(int kind) {
    calls[kind]++;
    if (calls[kind] != fail_at[kind]) return 0;
    errno = fail_with[kind];
    return 1;
}

static void note(char what, uint64_t inode, uint64_t at, const void *data, size_t size) {
    if (log_handle < 0) return;
    struct record head = {what, inode, at, (uint32_t)size};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, size}};
    int kept = errno;
    if (syscall(SYS_writev, log_handle, parts, size ? 2 : 1) != (long)(sizeof head + size)) abort();
    errno = kept;
}

/* The name inside the folder, "" for the folder itself, NULL for what lies elsewhere. */
static const char *inside(const char *path, char *whole) {
    if (!folder_size || !path) return NULL;
    if (path[0] != '/') {
        char here[PATH_MAX];
        if (!getcwd(here, sizeof here) || snprintf(whole, PATH_MAX, "%s/%s", here, path) >= PATH_MAX) return NULL;
    } else if (snprintf(whole, PATH_MAX, "%s", path) >= PATH_MAX) return NULL;
    if (strncmp(whole, folder, folder_size)) return NULL;
    if (!whole[folder_size]) return "";
    if (whole[folder_size] != '/' || strchr(whole + folder_size + 1, '/')) return NULL;
    return whole + folder_size + 1;
}

static int opened(const char *path, int flags, mode_t mode) {
    REAL(int, "openat64", int, const char *, int, ...);
    char whole[PATH_MAX];
    const char *name = inside(path, whole);
    if (!name) return real(AT_FDCWD, path, flags, mode);
    pthread_mutex_lock(&turn);
    struct stat found;
    int fresh = (flags & O_CREAT) && lstat(whole, &found), result = -1;
    if (!fresh || !fails('n')) result = real(AT_FDCWD, path, flags, mode);
    if (result >= 0 && result < FILES && !fstat(result, &found)) {
        handles[result] = (struct handle){1, S_ISDIR(found.st_mode), !strcmp(name, "acknowledged"),
                                          (flags & O_DSYNC) != 0, (flags & O_APPEND) != 0, found.st_ino};
        if (fresh) note('N', found.st_ino, 0, name, strlen(name));
        else if (flags & O_TRUNC) note('T', found.st_ino, 0, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return result;
}

static mode_t mode_of(int flags, va_list rest) { return (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = mode_of(flags, rest); \
        va_end(rest); \
        return opened(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = mode_of(flags, rest); \
        va_end(rest); \
        return at == AT_FDCWD || path[0] == '/' ? opened(path, flags, mode) : real(at, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int handle) {
    REAL(int, "close", int);
    if (handle >= 0 && handle < FILES && handles[handle].open) {
        pthread_mutex_lock(&turn);
        handles[handle].open = 0;
        pthread_mutex_unlock(&turn);
    }
    return real(handle);
}

static struct handle *watched(int handle) {
    return handle >= 0 && handle < FILES && handles[handle].open ? &handles[handle] : NULL;
}

/* at < 0: at the handle's own position. A failing write has written half of what it was given. */
static ssize_t put(int handle, const void *data, size_t size, off64_t at) {
    struct handle *file = watched(handle);
    pthread_mutex_lock(&turn);
    int failed = !file->mark && fails('w'), error = errno;
    off64_t where = at >= 0 ? at : file->append ? lseek64(handle, 0, SEEK_END) : lseek64(handle, 0, SEEK_CUR);
    if (failed) size /= 2;
    ssize_t done = at >= 0 ? syscall(SYS_pwrite64, handle, data, size, at) : syscall(SYS_write, handle, data, size);
    if (done > 0) note(file->mark ? 'A' : 'W', file->inode, (uint64_t)where, data, (size_t)done);
    if (done > 0 && file->synchronous) note('S', file->inode, 0, NULL, 0);
    if (failed) done = -1, errno = error;
    pthread_mutex_unlock(&turn);
    return done;
}

ssize_t write(int handle, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return watched(handle) ? put(handle, data, size, -1) : real(handle, data, size);
}

ssize_t pwrite(int handle, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return watched(handle) ? put(handle, data, size, at) : real(handle, data, size, at);
}

ssize_t pwrite64(int handle, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return watched(handle) ? put(handle, data, size, at) : real(handle, data, size, at);
}

static ssize_t put_all(int handle, const struct iovec *parts, int count, off64_t at) {
    ssize_t sum = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = put(handle, parts[i].iov_base, parts[i].iov_len, at < 0 ? at : at + sum);
        if (done < 0) return sum ? sum : done;
        sum += done;
    }
    return sum;
}

ssize_t writev(int handle, const struct iovec *parts, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return watched(handle) ? put_all(handle, parts, count, -1) : real(handle, parts, count);
}

ssize_t pwritev(int handle, const struct iovec *parts, int count, off_t at) {
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t);
    return watched(handle) ? put_all(handle, parts, count, at) : real(handle, parts, count, at);
}

static int cut(int handle, off64_t size) {
    struct handle *file = watched(handle);
    pthread_mutex_lock(&turn);
    int result = -1;
    if (!fails('w')) {
        result = (int)syscall(SYS_ftruncate, handle, size);
        if (!result) note('T', file->inode, (uint64_t)size, NULL, 0);
    }
    pthread_mutex_unlock(&turn);
    return result;
}

int ftruncate(int handle, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    return watched(handle) ? cut(handle, size) : real(handle, size);
}

int ftruncate64(int handle, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    return watched(handle) ? cut(handle, size) : real(handle, size);
}

/* What a failed sync had to write counts as lost: Linux marks such pages clean and forgets them. */
static int flush(int handle, long number) {
    struct handle *file = watched(handle);
    pthread_mutex_lock(&turn);
    int failed = fails('s'), result = -1, error = errno;
    if (!failed) result = (int)syscall(number, handle), error = errno;
    note(file->directory ? 'D' : 'S', file->inode, failed, NULL, 0);
    errno = error;
    pthread_mutex_unlock(&turn);
    return result;
}

int fsync(int handle) {
    REAL(int, "fsync", int);
    return watched(handle) ? flush(handle, SYS_fsync) : real(handle);
}

int fdatasync(int handle) {
    REAL(int, "fdatasync", int);
    return watched(handle) ? flush(handle, SYS_fdatasync) : real(handle);
}

static int change(char what, long number, const char *from, const char *to) {
    char whole_from[PATH_MAX], whole_to[PATH_MAX], names[2 * NAME_MAX + 2];
    const char *a = inside(from, whole_from), *b = to ? inside(to, whole_to) : "";
    pthread_mutex_lock(&turn);
    int result = -1;
    if (!(a && b) || !fails('n')) {
        result = (int)(to ? syscall(number, AT_FDCWD, from, AT_FDCWD, to, 0) : syscall(number, AT_FDCWD, from, 0));
        if (!result && a && b) {
            int size = snprintf(names, sizeof names, "%s/%s", a, b);
            note(what, 0, 0, names, (size_t)size);
        }
    }
    pthread_mutex_unlock(&turn);
    return result;
}

int unlink(const char *path) { return change('U', SYS_unlinkat, path, NULL); }
int link(const char *from, const char *to) { return change('L', SYS_linkat, from, to); }
int rename(const char *from, const char *to) { return change('R', SYS_renameat2, from, to); }

int unlinkat(int at, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    return (at == AT_FDCWD || path[0] == '/') && !flags ? unlink(path) : real(at, path, flags);
}

int linkat(int from, const char *a, int to, const char *b, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    return from == AT_FDCWD && to == AT_FDCWD && !flags ? link(a, b) : real(from, a, to, b, flags);
}

int renameat(int from, const char *a, int to, const char *b) {
    REAL(int, "renameat", int, const char *, int, const char *);
    return from == AT_FDCWD && to == AT_FDCWD ? rename(a, b) : real(from, a, to, b);
}
