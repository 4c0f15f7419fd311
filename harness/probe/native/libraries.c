/* Which files the loader took of the libraries that matter, told once a step has failed.
 *
 * A library that is there under the same name in the folder of ours, and is another file, was hidden
 * by the one that was taken. Its version is read from what is mapped: nothing else tells it. */
#include "probe.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { LIBRARIES_MAX = 32, PATH_BYTES = 1024, BUILD_ID_MAX = 20, FILES_MAX = 256 };
#define SCANNED_MAX (UINT64_C(128) << 20)

struct look {
    const char *folder; /* of ours, without a slash at its end */
    uint32_t told, files;
    struct {
        dev_t device;
        ino_t number;
    } file[FILES_MAX]; /* of all that is loaded */
};

static bool matters(const char *name) {
    static const char *const parts[] = {"Qnn", "Htp", "dsprpc", "onnxruntime", "OpenCL", "Snpe"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i]) != NULL) return true;
    return false;
}

/* Its own name: in our store files are called after their content. */
static const char *soname(const struct dl_phdr_info *info) {
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        ElfW(Addr) texts = 0, name = 0;
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_STRTAB) texts = entry->d_un.d_ptr;
            if (entry->d_tag == DT_SONAME) name = entry->d_un.d_val;
        }
        if (texts == 0 || name == 0) return NULL;
        if (texts < info->dlpi_addr) texts += info->dlpi_addr; /* only glibc relocates it */
        return (const char *)(texts + name);
    }
    return NULL;
}

static void write_build_id(struct json *json, const struct dl_phdr_info *info) {
    static const char gnu[] = "GNU";
    char digits[2 * BUILD_ID_MAX + 1];
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_NOTE) continue;
        const char *at = (const char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        const char *end = at + info->dlpi_phdr[i].p_memsz;
        while (end - at > (long)sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *note = (const void *)at;
            const unsigned char *text = (const void *)(note + 1);
            uint64_t size = sizeof *note + (note->n_namesz + 3ull) / 4 * 4 +
                            (note->n_descsz + 3ull) / 4 * 4;
            if (size > (uint64_t)(end - at)) break;
            if (note->n_type == 3 && note->n_namesz == 4 && memcmp(text, gnu, 4) == 0) {
                uint32_t length = note->n_descsz < BUILD_ID_MAX ? note->n_descsz : BUILD_ID_MAX;
                for (uint32_t j = 0; j < length; j++)
                    snprintf(digits + 2 * j, 3, "%02x", text[4 + j]);
                if (length > 0) json_text(json, "build_id", digits);
                return;
            }
            at += size;
        }
    }
}

/* v2.51.0.260929181845, with at least the day: how many characters of it stand there; else 0. */
static size_t version_at(const char *text, const char *end) {
    size_t length = 1;
    for (int part = 0; part < 4; part++) {
        size_t digits = 0;
        while (text + length + digits < end && text[length + digits] >= '0' &&
               text[length + digits] <= '9')
            digits++;
        if (part < 3 ? digits < 1 || digits > 3 : digits != 6 && digits != 12) return 0;
        length += digits;
        if (part < 3 && (text + length >= end || text[length++] != '.')) return 0;
    }
    return length;
}

static void write_version(struct json *json, const struct dl_phdr_info *info) {
    uint64_t left = SCANNED_MAX;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & (PF_R | PF_W)) != PF_R) continue;
        const char *at = (const char *)(info->dlpi_addr + part->p_vaddr);
        uint64_t size = part->p_filesz < left ? part->p_filesz : left;
        const char *end = at + size;
        left -= size;
        while (at < end && (at = memchr(at, 'v', (size_t)(end - at))) != NULL) {
            size_t length = version_at(at, end);
            if (length > 0) {
                json_bytes(json, "version", at + 1, length - 1);
                return;
            }
            at++;
        }
    }
}

static int note(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct look *look = data;
    struct stat file;
    if (look->files >= FILES_MAX || info->dlpi_name == NULL || stat(info->dlpi_name, &file) != 0)
        return 0;
    look->file[look->files].device = file.st_dev;
    look->file[look->files++].number = file.st_ino;
    return 0;
}

/* One that stands before another of its name and loads it itself is hidden by nobody. */
static bool loaded(const struct look *look, const struct stat *file) {
    for (uint32_t i = 0; i < look->files; i++)
        if (look->file[i].device == file->st_dev && look->file[i].number == file->st_ino)
            return true;
    return false;
}

static int tell(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    struct look *look = data;
    if (info->dlpi_name == NULL || info->dlpi_name[0] == '\0') return 0;
    const char *base = strrchr(info->dlpi_name, '/'), *name = soname(info);
    if (name == NULL) name = base != NULL ? base + 1 : info->dlpi_name;
    if (!matters(name) || look->told++ >= LIBRARIES_MAX) return 0;
    char own[PATH_BYTES];
    struct stat taken, ours;
    snprintf(own, sizeof own, "%s/%.255s", look->folder, name);
    bool known = stat(own, &ours) == 0 && stat(info->dlpi_name, &taken) == 0;
    bool same = known && taken.st_dev == ours.st_dev && taken.st_ino == ours.st_ino;
    struct json *json = event_open("library");
    json_text(json, "name", name);
    json_text(json, "path", info->dlpi_name);
    /* of the same size it is a copy: two builds of one library never are */
    if (known && !loaded(look, &ours) && taken.st_size != ours.st_size)
        json_text(json, "hides", own);
    write_build_id(json, info);
    if (!same) write_version(json, info);
    event_close();
    return 0;
}

void event_libraries(const struct plan *plan) {
    char folder[PATH_BYTES] = "."; /* a bare name is looked for in the runtime's folder */
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const char *path = step_text(&plan->steps[i], "lib");
        const char *slash = path != NULL ? strrchr(path, '/') : NULL;
        if (slash == NULL || slash == path || slash - path >= PATH_BYTES) continue;
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        break;
    }
    struct look look = {.folder = folder};
    dl_iterate_phdr(note, &look);
    dl_iterate_phdr(tell, &look);
}
