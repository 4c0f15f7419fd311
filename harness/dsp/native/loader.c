/* Loads a skel as Qualcomm ships it, unchanged, and serves it to the client that began this process:
 * `qemu-hexagon loader SKEL`, with the control socket as fd 3 (wire.h).
 *
 * A skel is a position-independent ELF32 library. Its segments are copied into memory that may be
 * executed, as nothing else of the DSP's loader is needed for its code; its imports are resolved by
 * the table in imports.S.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader.h"

enum { MOST_SKEL = 64 << 20, LONGEST_LOG = 1 << 20, CONTROL = 3, PAGE = 4096, MOST_TLS = 1024 };

static struct {
    uint8_t *base;
    uint32_t size;
    const Elf32_Sym *symbols;
    const char *names;
    uint32_t symbol_count, names_size;
    uint32_t tls, tls_filled; /* where thread-local storage begins as it is filled, and how far */
} skel;

static const char *unlisted[UNLISTED];

/* --- what is told -------------------------------------------------------------------------------- */

void say(const char *format, ...) {
    static volatile int written;
    char line[512];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    if (length < 0) return;
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    if (__sync_add_and_fetch(&written, length) > LONGEST_LOG) return;
    if (write(2, line, (size_t)length) < 0) return;
}

/* --- symbols ------------------------------------------------------------------------------------- */

static const char *name_of(const Elf32_Sym *symbol) {
    return symbol->st_name < skel.names_size ? skel.names + symbol->st_name : "";
}

void *skel_symbol(const char *name) {
    for (uint32_t i = 1; i < skel.symbol_count; i++)
        if (skel.symbols[i].st_shndx != SHN_UNDEF && strcmp(name_of(&skel.symbols[i]), name) == 0)
            return skel.base + skel.symbols[i].st_value;
    return NULL;
}

const char *skel_place(const void *address, char *text, size_t size) {
    uint32_t offset = (uint32_t)((const uint8_t *)address - skel.base);
    const Elf32_Sym *best = NULL;
    if (skel.base == NULL || offset >= skel.size) {
        snprintf(text, size, "%p, outside of the skel", address);
        return text;
    }
    for (uint32_t i = 1; i < skel.symbol_count; i++) {
        const Elf32_Sym *one = &skel.symbols[i];
        bool below = one->st_shndx != SHN_UNDEF && one->st_value <= offset;
        if (below && (best == NULL || one->st_value > best->st_value)) best = one;
    }
    if (best != NULL && offset < best->st_value + best->st_size)
        snprintf(text, size, "skel+0x%x, %.120s", offset, name_of(best));
    else
        snprintf(text, size, "skel+0x%x", offset);
    return text;
}

/* What a call of an import that the table does not have ends with. */
_Noreturn void unlisted_called(uint32_t number, const void *caller) {
    char place[200];
    say("the skel calls %s, which nothing here gives, from %s", unlisted[number % UNLISTED],
        skel_place(caller, place, sizeof place));
    _exit(EXIT_NO_IMPORT);
}

static const void *imported(const char *name, bool weak) {
    static uint32_t count;
    for (uint32_t i = 0; i < import_count; i++)
        if (strcmp(import_table[i].name, name) == 0) return import_table[i].address;
    if (weak) return NULL;
    say("nothing here gives %s", name);
    if (count == UNLISTED) return NULL;
    unlisted[count] = name;
    return unlisted_stubs + STUB_BYTES * count++;
}

/* --- loading ------------------------------------------------------------------------------------- */

static bool inside(uint32_t offset, uint32_t size) {
    return offset <= skel.size && size <= skel.size - offset;
}

/* What a thread has of the skel's thread-local storage: filled when it first asks for it. */
struct tls_place {
    uint32_t module, offset;
};
void *dsp___tls_get_addr(const struct tls_place *place) {
    static _Thread_local _Alignas(64) uint8_t own[MOST_TLS];
    static _Thread_local bool filled;
    if (!filled) memcpy(own, skel.base + skel.tls, skel.tls_filled);
    filled = true;
    return own + place->offset % MOST_TLS;
}

/* Tables of the dynamic section, by tag; those that a skel does not have are 0. */
struct tables {
    uint32_t value[DT_INIT_ARRAYSZ + 1], gnu_hash;
};

static bool relocate(const struct tables *of, int table, int size) {
    if (!inside(of->value[table], of->value[size])) return false;
    const Elf32_Rela *first = (const Elf32_Rela *)(skel.base + of->value[table]);
    for (uint32_t i = 0; i < of->value[size] / sizeof *first; i++) {
        uint32_t number = ELF32_R_SYM(first[i].r_info), type = ELF32_R_TYPE(first[i].r_info);
        if (!inside(first[i].r_offset, 4) || number >= skel.symbol_count) return false;
        uint32_t *word = (uint32_t *)(skel.base + first[i].r_offset);
        const Elf32_Sym *symbol = &skel.symbols[number];
        bool weak = ELF32_ST_BIND(symbol->st_info) == STB_WEAK;
        const void *found = symbol->st_shndx != SHN_UNDEF ? skel.base + symbol->st_value
                            : number != 0                 ? imported(name_of(symbol), weak)
                                                          : NULL;
        if (type == R_HEX_RELATIVE)
            *word = (uint32_t)skel.base + (uint32_t)first[i].r_addend;
        else if (type == R_HEX_32 || type == R_HEX_GLOB_DAT || type == R_HEX_JMP_SLOT)
            *word = found == NULL ? 0 : (uint32_t)found + (uint32_t)first[i].r_addend;
        else if (type == R_HEX_DTPMOD_32)
            *word = 1;
        else
            return false;
    }
    return true;
}

/* Copies the segments of a file of `size` bytes; whether they are what their headers say. */
static bool copy_segments(const uint8_t *file, uint32_t size, struct tables *tables) {
    const Elf32_Ehdr *head = (const Elf32_Ehdr *)file;
    const Elf32_Phdr *segment = (const Elf32_Phdr *)(file + head->e_phoff);
    const Elf32_Dyn *dynamic = NULL;
    uint32_t dynamic_size = 0;
    if (head->e_phoff > size || head->e_phnum > (size - head->e_phoff) / sizeof *segment)
        return false;
    for (int i = 0; i < head->e_phnum; i++) {
        uint32_t end = segment[i].p_vaddr + segment[i].p_memsz;
        if (segment[i].p_type != PT_LOAD) continue;
        if (end < segment[i].p_vaddr || end > MOST_SKEL) return false;
        if (end > skel.size) skel.size = end;
    }
    skel.size = (skel.size + PAGE - 1) & ~(PAGE - 1u);
    void *base = mmap(NULL, skel.size, PROT_READ | PROT_WRITE | PROT_EXEC,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return false;
    skel.base = base;
    for (int i = 0; i < head->e_phnum; i++) {
        const Elf32_Phdr *one = &segment[i];
        if (one->p_type != PT_LOAD && one->p_type != PT_DYNAMIC && one->p_type != PT_TLS) continue;
        if (one->p_offset > size || one->p_filesz > size - one->p_offset ||
            !inside(one->p_vaddr, one->p_filesz))
            return false;
        if (one->p_type == PT_LOAD)
            memcpy(skel.base + one->p_vaddr, file + one->p_offset, one->p_filesz);
        else if (one->p_type == PT_TLS) {
            if (one->p_memsz > MOST_TLS || one->p_filesz > one->p_memsz) return false;
            skel.tls = one->p_vaddr;
            skel.tls_filled = one->p_filesz;
        } else {
            dynamic = (const Elf32_Dyn *)(skel.base + one->p_vaddr);
            dynamic_size = one->p_filesz;
        }
    }
    for (uint32_t i = 0; i < dynamic_size / sizeof *dynamic && dynamic[i].d_tag != DT_NULL; i++)
        if (dynamic[i].d_tag <= DT_INIT_ARRAYSZ)
            tables->value[dynamic[i].d_tag] = dynamic[i].d_un.d_val;
        else if (dynamic[i].d_tag == DT_GNU_HASH)
            tables->gnu_hash = dynamic[i].d_un.d_val;
    return dynamic != NULL;
}

/* How many symbols there are, which only the table for looking them up tells; 0 if it is damaged. */
static uint32_t count_symbols(const struct tables *tables) {
    uint32_t hash = tables->value[DT_HASH], gnu = tables->gnu_hash, last = 0;
    if (hash != 0) return inside(hash, 8) ? ((const uint32_t *)(skel.base + hash))[1] : 0;
    if (gnu == 0 || !inside(gnu, 16)) return 0;
    const uint32_t *head = (const uint32_t *)(skel.base + gnu);
    uint32_t buckets = head[0], first = head[1], filter = head[2];
    uint64_t chains = gnu + 16 + 4ull * filter + 4ull * buckets;
    if (chains > skel.size) return 0;
    for (uint32_t i = 0; i < buckets; i++)
        if (head[4 + filter + i] > last) last = head[4 + filter + i];
    if (last < first) return first;
    const uint32_t *chain = (const uint32_t *)(skel.base + chains);
    while (chains + 4ull * (last - first + 1) <= skel.size && (chain[last - first] & 1) == 0) last++;
    return last + 1;
}

static int place_skel(const uint8_t *file, uint32_t size, uint32_t arch) {
    const Elf32_Ehdr *head = (const Elf32_Ehdr *)file;
    struct tables tables = {0};
    if (size < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_ident[EI_CLASS] != ELFCLASS32 || head->e_machine != EM_QDSP6)
        return AEE_EBADELF;
    if ((head->e_flags & 0xFF) > arch) {
        say("the skel is for v%x, and this DSP is v%x", head->e_flags & 0xFF, arch);
        return AEE_EBADELF;
    }
    if (!copy_segments(file, size, &tables)) return AEE_EBADELF;
    uint32_t names = tables.value[DT_STRTAB], symbols = tables.value[DT_SYMTAB];
    skel.names_size = tables.value[DT_STRSZ];
    if (skel.names_size == 0 || !inside(names, skel.names_size) ||
        skel.base[names + skel.names_size - 1] != '\0')
        return AEE_EBADELF;
    skel.symbol_count = count_symbols(&tables);
    skel.symbols = (const Elf32_Sym *)(skel.base + symbols);
    skel.names = (const char *)skel.base + names;
    if (skel.symbol_count == 0 || skel.symbol_count > MOST_SKEL / sizeof *skel.symbols ||
        !inside(symbols, skel.symbol_count * sizeof *skel.symbols))
        return AEE_EBADELF;
    if (!relocate(&tables, DT_RELA, DT_RELASZ) || !relocate(&tables, DT_JMPREL, DT_PLTRELSZ))
        return AEE_EBADELF;
    if (tables.value[DT_INIT] != 0) ((void (*)(void))(skel.base + tables.value[DT_INIT]))();
    uint32_t array = tables.value[DT_INIT_ARRAY], array_size = tables.value[DT_INIT_ARRAYSZ];
    if (tables.value[DT_INIT] == 0 && inside(array, array_size))
        for (uint32_t i = 0; i < array_size / 4; i++) ((void (**)(void))(skel.base + array))[i]();
    return 0;
}

int skel_load(const char *path, uint32_t arch) {
    struct stat status;
    int fd = open(path, O_RDONLY), loaded = AEE_EUNABLETOLOAD;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
        status.st_size <= MOST_SKEL) {
        void *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (file != MAP_FAILED) {
            loaded = place_skel(file, (uint32_t)status.st_size, arch);
            munmap(file, (size_t)status.st_size);
        }
    }
    if (fd >= 0) close(fd);
    say("%s: %s", path, loaded == 0 ? "loaded" : "cannot be loaded");
    return loaded;
}

/* Thread-local storage of the libraries is reached through the procedure linkage table, an entry for
   each variable, which nobody fills in a static program. They are filled here before anything uses
   them, with what follows up to the end of the page, which is padding. */
extern void *__tls_get_addr(void *);
extern uint32_t _GLOBAL_OFFSET_TABLE_[];
enum { FIRST_ENTRY = 4 };
__attribute__((constructor(101))) static void mend_linkage_table(void) {
    for (uint32_t *entry = &_GLOBAL_OFFSET_TABLE_[FIRST_ENTRY]; (uintptr_t)entry % PAGE != 0; entry++)
        if (*entry == 0) *entry = (uint32_t)__tls_get_addr;
}

int main(int count, char **words) {
    if (count != 2) {
        say("usage: loader SKEL, with a control socket as fd 3");
        return 2;
    }
    handle_faults();
    serve(CONTROL, skel_load(words[1], arch_number()));
    power_ends();
    _exit(0);
}
