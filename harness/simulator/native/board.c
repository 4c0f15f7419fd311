/* Loaded into the host programs of a simulated arm64 board: makes them tell and start what is there.
 *
 * A board's shell and tools are programs of this host; the programs that are pushed to it are not.
 * This library does in user space, for the processes of one device, what binfmt_misc does for a
 * whole machine: an arm64 program that is to be executed is handed to qemu. It also lets the host's
 * programs see what qemu's -L lets the arm64 ones see (files below `root`), and name the board's
 * machine and C library.
 *
 * It lies in a folder with links beside it: `qemu`, `root`, `libc` (its target is the text that
 * getconf GNU_LIBC_VERSION prints). exec may be called in a child of vfork, so nothing here
 * allocates but on the stack.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))
#define PRELOAD "LD_PRELOAD="

extern char **environ;

static char own[PATH_MAX], folder[PATH_MAX], qemu[PATH_MAX], root[PATH_MAX];

/* Where this library lies, as LD_PRELOAD names it. */
static bool located(void) {
    if (root[0] != '\0') return true;
    Dl_info info;
    if (dladdr((void *)located, &info) == 0 || info.dli_fname[0] != '/') return false;
    size_t length = strlen(info.dli_fname);
    if (length + 8 >= PATH_MAX) return false;
    strcpy(own, info.dli_fname);
    strcpy(folder, own);
    *strrchr(folder, '/') = '\0';
    strcpy(stpcpy(qemu, folder), "/qemu");
    strcpy(stpcpy(root, folder), "/root");
    return true;
}

static int raw_stat(const char *path, struct stat *status) {
    int before = errno;
    int result = (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
    errno = before;
    return result;
}

/* `path`, or what the board has in its place: files always, folders where the host has none. */
static const char *shown(const char *path, char *buffer) {
    struct stat status, hosts;
    if (path == NULL || path[0] != '/' || !located()) return path;
    size_t length = strlen(root);
    if (length + strlen(path) >= PATH_MAX) return path;
    strcpy(stpcpy(buffer, root), path);
    if (raw_stat(buffer, &status) != 0) return path;
    if (S_ISDIR(status.st_mode) && raw_stat(path, &hosts) == 0) return path;
    return buffer;
}

/* --- executing ------------------------------------------------------------------------------- */

static bool is_for_the_board(const char *path) {
    unsigned char head[20];
    int before = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) {
        errno = before;
        return false;
    }
    long count = syscall(SYS_read, fd, head, sizeof head);
    syscall(SYS_close, fd);
    errno = before;
    return count == sizeof head && memcmp(head, ELFMAG, SELFMAG) == 0 &&
           head[EI_CLASS] == ELFCLASS64 && head[18] + 256 * head[19] == EM_AARCH64 &&
           access(path, X_OK) == 0;
}

static size_t count_of(char *const list[]) {
    size_t count = 0;
    while (list != NULL && list[count] != NULL) count++;
    return count;
}

/* The value of LD_PRELOAD without this library, in `buffer` of at least its size. */
static void without_own(const char *value, char *buffer) {
    size_t length = strlen(own);
    buffer[0] = '\0';
    while (*value != '\0') {
        size_t span = strcspn(value, ": ");
        if (span > 0 && !(span == length && strncmp(value, own, span) == 0)) {
            if (buffer[0] != '\0') strcat(buffer, ":");
            strncat(buffer, value, span);
        }
        value += span + (value[span] != '\0');
    }
}

struct command {
    const char *path;
    char **argv;
    char **envp;
};

static bool is_for_the_loader(const char *entry) { return strncmp(entry, "LD_", 3) == 0; }

/* The command line of qemu: variables of the loader go to the program only, by -E, since qemu is a
 * program of this host. One with a comma cannot be given so; it stays where it is. */
static void hand_to_qemu(struct command *made, const char *path, char *const argv[],
                         char *const envp[], char *preload, char **list, char **environment) {
    size_t used = 0, kept = 0;
    list[used++] = qemu;
    list[used++] = "-0";
    list[used++] = argv != NULL && argv[0] != NULL ? argv[0] : (char *)path;
    list[used++] = "-L";
    list[used++] = root;
    for (size_t i = 0; envp != NULL && envp[i] != NULL; i++) {
        char *entry = envp[i];
        if (strncmp(entry, PRELOAD, strlen(PRELOAD)) == 0) {
            strcpy(preload, PRELOAD);
            without_own(entry + strlen(PRELOAD), preload + strlen(PRELOAD));
            if (preload[strlen(PRELOAD)] == '\0') continue;
            entry = preload;
        }
        if (is_for_the_loader(entry) && strchr(entry, ',') == NULL) {
            list[used++] = "-E";
            list[used++] = entry;
        } else {
            environment[kept++] = entry;
        }
    }
    list[used++] = (char *)path;
    for (size_t i = 1; argv != NULL && argv[0] != NULL && argv[i] != NULL; i++)
        list[used++] = argv[i];
    list[used] = environment[kept] = NULL;
    *made = (struct command){qemu, list, environment};
}

/* A program of this host keeps this library, also where its environment was emptied. */
static void keep_with_host(struct command *made, const char *path, char *const argv[],
                           char *const envp[], char *preload, char **environment) {
    size_t kept = 0;
    strcpy(stpcpy(preload, PRELOAD), own);
    for (size_t i = 0; envp != NULL && envp[i] != NULL; i++) {
        if (strncmp(envp[i], PRELOAD, strlen(PRELOAD)) != 0) {
            environment[kept++] = envp[i];
            continue;
        }
        char *end = preload + strlen(PRELOAD) + strlen(own);
        without_own(envp[i] + strlen(PRELOAD), end + 1);
        if (end[1] != '\0') *end = ':';
    }
    environment[kept++] = preload;
    environment[kept] = NULL;
    *made = (struct command){path, (char **)argv, environment};
}

static size_t preload_size(char *const envp[]) {
    size_t size = strlen(PRELOAD) + strlen(own) + 2;
    for (size_t i = 0; envp != NULL && envp[i] != NULL; i++)
        if (strncmp(envp[i], PRELOAD, strlen(PRELOAD)) == 0) size += strlen(envp[i]);
    return size;
}

/* Makes `command` from path, argv and envp, on the stack of the function that uses it. */
#define PREPARE(command, given, argv, envp)                                                     \
    char shown_path[PATH_MAX];                                                                  \
    struct command command = {given, (char **)(argv), (char **)(envp)};                         \
    if (located()) {                                                                            \
        const char *chosen = shown(given, shown_path);                                          \
        size_t variables = count_of(envp);                                                      \
        char *preload = alloca(preload_size(envp));                                             \
        char **environment = alloca((variables + 2) * sizeof(char *));                          \
        if (is_for_the_board(chosen)) {                                                         \
            char **list = alloca((count_of(argv) + 2 * variables + 8) * sizeof(char *));        \
            hand_to_qemu(&command, chosen, argv, envp, preload, list, environment);             \
        } else {                                                                                \
            keep_with_host(&command, chosen, argv, envp, preload, environment);                 \
        }                                                                                       \
    }

EXPORTED int execve(const char *path, char *const argv[], char *const envp[]) {
    PREPARE(command, path, argv, envp);
    return REAL(execve)(command.path, command.argv, command.envp);
}

/* The first executable file of that name along PATH, as execvp looks for it. */
static const char *along_path(const char *name, char *buffer) {
    if (strchr(name, '/') != NULL || *name == '\0') return name;
    const char *list = NULL;
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        if (strncmp(*entry, "PATH=", 5) == 0) list = *entry + 5;
    if (list == NULL) list = "/bin:/usr/bin";
    for (;;) {
        size_t span = strcspn(list, ":");
        if (span + strlen(name) + 3 < PATH_MAX) {
            struct stat status;
            memcpy(buffer, list, span);
            buffer[span] = '\0';
            sprintf(buffer + span, "%s%s", span > 0 ? "/" : "./", name);
            if (access(buffer, X_OK) == 0 && raw_stat(buffer, &status) == 0 &&
                S_ISREG(status.st_mode))
                return buffer;
        }
        if (list[span] == '\0') return NULL;
        list += span + 1;
    }
}

EXPORTED int execvpe(const char *name, char *const argv[], char *const envp[]) {
    char buffer[PATH_MAX];
    const char *path = along_path(name, buffer);
    if (path != NULL && is_for_the_board(path)) return execve(path, argv, envp);
    PREPARE(command, name, argv, envp);
    return REAL(execvpe)(name, command.argv, command.envp);
}

EXPORTED int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }

EXPORTED int execvp(const char *name, char *const argv[]) { return execvpe(name, argv, environ); }

#define COLLECT(first, list)                                                                    \
    va_list more, again;                                                                        \
    va_start(more, first);                                                                      \
    va_copy(again, more);                                                                       \
    size_t count = 1;                                                                           \
    while (va_arg(more, char *) != NULL) count++;                                               \
    char **list = alloca((count + 1) * sizeof(char *));                                         \
    list[0] = (char *)(first);                                                                  \
    for (size_t i = 1; i <= count; i++) list[i] = va_arg(again, char *);                        \
    va_end(more)

EXPORTED int execl(const char *path, const char *first, ...) {
    COLLECT(first, list);
    va_end(again);
    return execve(path, list, environ);
}

EXPORTED int execlp(const char *name, const char *first, ...) {
    COLLECT(first, list);
    va_end(again);
    return execvpe(name, list, environ);
}

EXPORTED int execle(const char *path, const char *first, ...) {
    COLLECT(first, list);
    char **envp = va_arg(again, char **);
    va_end(again);
    return execve(path, list, envp);
}

EXPORTED int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                         const posix_spawnattr_t *attributes, char *const argv[],
                         char *const envp[]) {
    PREPARE(command, path, argv, envp);
    return REAL(posix_spawn)(pid, command.path, actions, attributes, command.argv, command.envp);
}

EXPORTED int posix_spawnp(pid_t *pid, const char *name, const posix_spawn_file_actions_t *actions,
                          const posix_spawnattr_t *attributes, char *const argv[],
                          char *const envp[]) {
    char buffer[PATH_MAX];
    const char *path = along_path(name, buffer);
    if (path != NULL) return posix_spawn(pid, path, actions, attributes, argv, envp);
    return REAL(posix_spawnp)(pid, name, actions, attributes, argv, envp);
}

/* --- what the board says of itself ------------------------------------------------------------ */

EXPORTED int uname(struct utsname *name) {
    int result = (int)syscall(SYS_uname, name);
    if (result == 0) strcpy(name->machine, "aarch64");
    return result;
}

static const char *libc_version(void) {
    static char text[64];
    char path[PATH_MAX + 8];
    if (text[0] == '\0' && located()) {
        strcpy(stpcpy(path, folder), "/libc");
        long length = syscall(SYS_readlinkat, AT_FDCWD, path, text, sizeof text - 1);
        text[length > 0 ? length : 0] = '\0';
    }
    return text;
}

EXPORTED size_t confstr(int name, char *buffer, size_t size) {
    const char *text = libc_version();
    if (name != _CS_GNU_LIBC_VERSION || text[0] == '\0') return REAL(confstr)(name, buffer, size);
    if (size > 0) snprintf(buffer, size, "%s", text);
    return strlen(text) + 1;
}

/* --- what the board shows --------------------------------------------------------------------- */

#define HERE(path) char buffer_[PATH_MAX]; path = shown(path, buffer_)
#define READS(flags) (((flags) & O_ACCMODE) == O_RDONLY && ((flags) & O_CREAT) == 0)
#define MODE(flags)                                                                             \
    mode_t mode = 0;                                                                            \
    if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) {                       \
        va_list more;                                                                           \
        va_start(more, flags);                                                                  \
        mode = va_arg(more, mode_t);                                                            \
        va_end(more);                                                                           \
    }

static int open_any(int at, const char *path, int flags, mode_t mode) {
    if (!READS(flags)) return REAL(openat)(at, path, flags, mode);
    HERE(path);
    return REAL(openat)(at, path, flags, mode);
}

EXPORTED int open(const char *path, int flags, ...) {
    MODE(flags);
    return open_any(AT_FDCWD, path, flags, mode);
}

EXPORTED int openat(int at, const char *path, int flags, ...) {
    MODE(flags);
    return open_any(at, path, flags, mode);
}

EXPORTED int __open_2(const char *path, int flags) { return open_any(AT_FDCWD, path, flags, 0); }
EXPORTED int __openat_2(int at, const char *path, int flags) { return open_any(at, path, flags, 0); }

EXPORTED FILE *fopen(const char *path, const char *mode) {
    if (mode[0] != 'r' || strchr(mode, '+') != NULL) return REAL(fopen)(path, mode);
    HERE(path);
    return REAL(fopen)(path, mode);
}

/* What programs call that were compiled with large files: on 64 bits the same. */
#define THE_SAME(name) EXPORTED __attribute__((alias(#name)))
THE_SAME(open) int open64(const char *path, int flags, ...);
THE_SAME(openat) int openat64(int at, const char *path, int flags, ...);
THE_SAME(__open_2) int __open64_2(const char *path, int flags);
THE_SAME(__openat_2) int __openat64_2(int at, const char *path, int flags);
THE_SAME(fopen) FILE *fopen64(const char *path, const char *mode);

/* The real function, of what the board has in the place of `path`. */
#define SHOWS(type, name, parameters, arguments)                                                \
    EXPORTED type name parameters {                                                             \
        HERE(path);                                                                             \
        return REAL(name) arguments;                                                            \
    }

SHOWS(DIR *, opendir, (const char *path), (path))
SHOWS(int, access, (const char *path, int mode), (path, mode))
SHOWS(int, faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags))
SHOWS(int, stat, (const char *path, struct stat *status), (path, status))
SHOWS(int, lstat, (const char *path, struct stat *status), (path, status))
SHOWS(int, fstatat, (int at, const char *path, struct stat *status, int flags),
      (at, path, status, flags))
SHOWS(int, stat64, (const char *path, struct stat64 *status), (path, status))
SHOWS(int, lstat64, (const char *path, struct stat64 *status), (path, status))
SHOWS(int, fstatat64, (int at, const char *path, struct stat64 *status, int flags),
      (at, path, status, flags))
SHOWS(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *status),
      (at, path, flags, mask, status))
