/* FastRPC as the stubs of QNN see it: sessions, handles, calls and the requests about them. */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cdsprpc.h"

enum { MAX_HANDLES = 256, HEXAGON_ARCH = 0xFF };

/* Where the DSP looks after DSP_LIBRARY_PATH or, without it, ADSP_LIBRARY_PATH. */
#define DEFAULT_PATH                                                                            \
    "/vendor/dsp/cdsp;/vendor/dsp;/vendor/lib/rfsa/adsp;/vendor/lib64/rfs/adsp;"                \
    "/usr/lib/rfsa/adsp;/usr/lib/dsp/cdsp;/dsp/cdsp;/dsp"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct {
    struct pd *pd;
    bool unsigned_pd;
    int handles;
} sessions[EFFECTIVE];
static struct {
    struct pd *pd;
    uint64_t remote;
} handles[MAX_HANDLES];

struct pd *session_pd(int domain) {
    struct pd *pd = NULL;
    if (domain == -1) domain = CDSP;
    pthread_mutex_lock(&mutex);
    if (domain >= 0 && domain < EFFECTIVE && sessions[domain].pd != NULL)
        pd = pd_hold(sessions[domain].pd);
    pthread_mutex_unlock(&mutex);
    return pd;
}

void each_pd(void (*use)(struct pd *pd, void *context), void *context) {
    for (int domain = 0; domain < EFFECTIVE; domain++) {
        struct pd *pd = session_pd(domain);
        if (pd == NULL) continue;
        use(pd, context);
        pd_release(pd);
    }
}

/* --- which skel --- */

static bool has_file(const char *folder, size_t length, const char *name, char *path) {
    const char *between = length > 0 ? "/" : "";
    int used = snprintf(path, MAX_PATH, "%.*s%s%s", (int)length, folder, between, name);
    return used > 0 && used < MAX_PATH && access(path, R_OK) == 0;
}

/* The file that file:///NAME?SYMBOL... names, along the paths as the DSP searches them. */
static bool find_skel(const char *uri, char *path) {
    char name[MAX_PATH];
    const char *start = strncmp(uri, "file://", 7) == 0 ? uri + 7 : uri;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "?"), start);
    if (strchr(name + 1, '/') != NULL) return has_file("", 0, name, path);
    const char *plain = name + (name[0] == '/'), *own = getenv("DSP_LIBRARY_PATH");
    if (own == NULL) own = getenv("ADSP_LIBRARY_PATH");
    const char *lists[] = {own, DEFAULT_PATH};
    for (size_t at = 0; at < 2; at++)
        for (const char *one = lists[at]; one != NULL && *one != '\0';) {
            size_t length = strcspn(one, ";");
            if (has_file(one, length, plain, path)) return true;
            one += length + (one[length] == ';');
        }
    return has_file(".", 1, plain, path);
}

/* Why the DSP would not load it: 0, or its error. */
static int check_skel(const char *uri, char *path) {
    Elf32_Ehdr head;
    if (!find_skel(uri, path))
        return said("open", DSP_EUNABLETOLOAD, "not found along %s: %s",
                    getenv("DSP_LIBRARY_PATH") ? "DSP_LIBRARY_PATH" : "ADSP_LIBRARY_PATH", uri);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, &head, sizeof head);
    if (file >= 0) close(file);
    if (got != sizeof head || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS32 || head.e_machine != EM_QDSP6)
        return said("open", DSP_EUNABLETOLOAD, "no library of a Hexagon: %s", path);
    if ((head.e_flags & HEXAGON_ARCH) > arch_number())
        return said("open", DSP_EUNABLETOLOAD, "made for v%x, and this DSP is v%ld: %s",
                    head.e_flags & HEXAGON_ARCH, limits()->arch, path);
    return 0;
}

/* --- calls --- */

enum { INPUTS_AT = 16, OUTPUTS_AT = 8, INPUT_HANDLES_AT = 4 };

union remote_argument {
    struct {
        void *data;
        size_t size;
    } buffer;
    struct {
        int32_t fd;
        uint32_t offset;
    } handle;
};

/* Makes a call on a channel of its own. Its own error if the process is gone, or dies under it. */
static int call(struct pd *pd, struct wire_call_head head, const union remote_argument *arguments,
                uint64_t *value) {
    unsigned inputs = head.scalars >> INPUTS_AT & 0xFF, outputs = head.scalars >> OUTPUTS_AT & 0xFF;
    unsigned buffers = inputs + outputs;
    head.count = buffers + (head.scalars >> INPUT_HANDLES_AT & 0xF) + (head.scalars & 0xF);
    if (head.count > 0 && arguments == NULL) return AEE_EBADPARM;
    struct wire_argument told[MAX_ARGUMENTS];
    struct iovec parts[2 + MAX_ARGUMENTS] = {{&head, sizeof head},
                                             {told, head.count * sizeof *told}};
    size_t part_count = 2;
    for (unsigned at = 0; at < head.count; at++) {
        const union remote_argument *one = &arguments[at];
        struct buffer found;
        int error = 0;
        if (at >= buffers) {
            told[at] = (struct wire_argument){WIRE_HANDLE, one->handle.fd, one->handle.offset, 0};
            error = map_fd(pd, "invoke", one->handle.fd, take_dma_handle(one->handle.fd), 0, false);
        } else if (one->buffer.size > 0 && buffer_at(one->buffer.data, one->buffer.size, &found)) {
            size_t offset = (size_t)((char *)one->buffer.data - found.base);
            told[at] = (struct wire_argument){at < inputs ? WIRE_IN_MAPPED : WIRE_OUT_MAPPED,
                                              found.fd, (uint32_t)offset,
                                              (uint32_t)one->buffer.size};
            error = map_fd(pd, "invoke", found.fd, 0, 0, false);
        } else {
            if (one->buffer.size > UINT32_MAX) return AEE_EBADPARM;
            told[at] = (struct wire_argument){at < inputs ? WIRE_IN_COPIED : WIRE_OUT_COPIED, -1, 0,
                                              (uint32_t)one->buffer.size};
            if (at < inputs && one->buffer.size > 0)
                parts[part_count++] = (struct iovec){one->buffer.data, one->buffer.size};
        }
        if (error != 0) return error;
    }
    int channel = pd_channel(pd);
    if (channel < 0)
        return said("invoke", pd->gone != 0 ? pd->gone : DSP_EBADSTATE, "the DSP's process is gone");
    struct wire_answer answer;
    bool whole = send_all(channel, parts, part_count) &&
                 receive_all(channel, &answer, sizeof answer);
    for (unsigned at = inputs; at < buffers && whole; at++)
        if (told[at].kind == WIRE_OUT_COPIED)
            whole = receive_all(channel, arguments[at].buffer.data, arguments[at].buffer.size);
    if (!whole) {
        close(channel);
        pthread_mutex_lock(&pd->mutex); /* who calls now may be quicker than who waits for the end */
        if (pd->gone == 0) pd->gone = AEE_ENOSUCH;
        pthread_mutex_unlock(&pd->mutex);
        return said("invoke", DSP_EBADSTATE, "the DSP's process died under the call");
    }
    pd_channel_done(pd, channel);
    if (value != NULL) *value = answer.value;
    return answer.status;
}

/* --- handles --- */

int named_domain(const char *text, const char *before) {
    static const char *const NAMES[] = {"adsp", "mdsp", "sdsp", "cdsp1", "cdsp", "gdsp0", "gdsp1"};
    static const int DOMAIN_OF[] = {0, 1, 2, 4, CDSP, 5, 6};
    const char *at = text != NULL ? strstr(text, before) : NULL;
    if (at == NULL) return -1;
    at += strlen(before);
    for (size_t one = 0; one < sizeof DOMAIN_OF / sizeof *DOMAIN_OF; one++)
        if (strncmp(at, NAMES[one], strlen(NAMES[one])) == 0) return DOMAIN_OF[one];
    return -1;
}

static int domain_of_uri(const char *uri) {
    const char *session = strstr(uri, "&_session=");
    long number = session != NULL ? strtol(session + 10, NULL, 10) : 0;
    int domain = named_domain(uri, "&_dom=");
    return domain < 0 || number < 0 || number >= SESSIONS ? -1 : domain + DOMAINS * (int)number;
}

/* The session's protection domain with one handle more; begins it if there is none. */
static struct pd *enter_session(int domain, const char *skel, int *error) {
    pthread_mutex_lock(&mutex);
    struct pd *pd = sessions[domain].pd;
    if (pd != NULL && pd->gone != 0 && sessions[domain].handles == 0) {
        pd_end(pd);
        sessions[domain].pd = pd = NULL;
    }
    if (pd == NULL)
        sessions[domain].pd = pd = pd_begin(domain, skel, error);
    else if (pd->gone != 0)
        *error = said("open", pd->gone, "the session died, and its handles are still open");
    else if (strcmp(pd->skel, skel) != 0)
        *error = said("open", DSP_EUNABLETOLOAD, "not %s, too, beside %s", skel, pd->skel);
    else
        *error = 0;
    if (*error == 0) {
        sessions[domain].handles++;
        pd_hold(pd);
    }
    pthread_mutex_unlock(&mutex);
    return *error == 0 ? pd : NULL;
}

/* One handle less; the last one ends the session. */
static void leave_session(struct pd *pd) {
    pthread_mutex_lock(&mutex);
    int domain = pd->domain;
    bool last = sessions[domain].pd == pd && --sessions[domain].handles == 0;
    if (last) sessions[domain].pd = NULL;
    pthread_mutex_unlock(&mutex);
    if (last) pd_end(pd);
}

static uint64_t keep_handle(struct pd *pd, uint64_t remote) {
    uint64_t handle = 0;
    pthread_mutex_lock(&mutex);
    for (size_t at = 0; at < MAX_HANDLES && handle == 0; at++)
        if (handles[at].pd == NULL) {
            handles[at].pd = pd;
            handles[at].remote = remote;
            handle = ((uint64_t)pd->domain + 1) << 16 | (at + 1);
        }
    pthread_mutex_unlock(&mutex);
    return handle;
}

struct pd *handle_pd(uint64_t handle, uint64_t *remote, bool take) {
    struct pd *pd = NULL;
    size_t at = (handle & 0xFFFF) - 1;
    pthread_mutex_lock(&mutex);
    if (at < MAX_HANDLES && handles[at].pd != NULL &&
        handle >> 16 == (uint64_t)handles[at].pd->domain + 1) {
        pd = take ? handles[at].pd : pd_hold(handles[at].pd);
        *remote = handles[at].remote;
        if (take) handles[at].pd = NULL;
    }
    pthread_mutex_unlock(&mutex);
    return pd;
}

EXPORTED int remote_handle64_open(const char *uri, uint64_t *handle) {
    int error = 0;
    if (uri == NULL || handle == NULL) return AEE_EBADPARM;
    *handle = dsp_folder() == NULL;
    if (answered("open", &error)) return error;
    int domain = domain_of_uri(uri);
    if (domain < 0) return AEE_EBADPARM;
    if (domain % DOMAINS != CDSP) return said("open", AEE_ECONNREFUSED, "no such DSP: %s", uri);
    if (dsp_is_gone_for_good()) return said("open", AEE_ECONNRESET, "the DSP does not come back");
    if (sessions[domain].unsigned_pd && !limits()->unsigned_pd)
        return said("open", AEE_ECONNREFUSED, "no unsigned protection domains");
    char skel[MAX_PATH];
    error = check_skel(uri, skel);
    if (error != 0) return error;
    struct pd *pd = enter_session(domain, skel, &error);
    if (pd == NULL) return error;
    union remote_argument name = {.buffer = {(void *)uri, strlen(uri) + 1}};
    struct wire_call_head head = {.kind = WIRE_OPEN, .scalars = 1u << INPUTS_AT};
    uint64_t remote = 0;
    error = call(pd, head, &name, &remote);
    if (error != 0 && error != DSP_EBADSTATE) said("open", error, "the DSP does not load %s", skel);
    if (error == 0) *handle = keep_handle(pd, remote);
    if (error == 0 && *handle == 0) error = said("open", AEE_ENOMEMORY, "too many handles");
    if (error != 0) {
        leave_session(pd);
        pd_release(pd);
    }
    return error;
}

EXPORTED int remote_handle64_close(uint64_t handle) {
    int answer = 0;
    uint64_t remote;
    if (answered("close", &answer)) return answer;
    struct pd *pd = handle_pd(handle, &remote, true);
    if (pd == NULL) return AEE_EINVHANDLE;
    struct wire_call_head head = {.kind = WIRE_CLOSE, .handle = remote};
    if (sessions[pd->domain].handles > 1 && pd->gone == 0) answer = call(pd, head, NULL, NULL);
    leave_session(pd);
    pd_release(pd);
    return answer;
}

EXPORTED int remote_handle64_invoke(uint64_t handle, uint32_t scalars, void *arguments) {
    int answer = 0;
    if (answered("invoke", &answer)) return answer;
    struct wire_call_head head = {.kind = WIRE_INVOKE, .scalars = scalars};
    struct pd *pd = handle_pd(handle, &head.handle, false);
    if (pd == NULL) return AEE_EINVHANDLE;
    answer = call(pd, head, arguments, NULL);
    pd_release(pd);
    return answer;
}

/* --- what is asked of sessions --- */

int want_unsigned_pd(int domain, bool unsigned_pd) {
    pthread_mutex_lock(&mutex);
    bool other = sessions[domain].pd != NULL && sessions[domain].unsigned_pd != unsigned_pd;
    if (!other) sessions[domain].unsigned_pd = unsigned_pd;
    pthread_mutex_unlock(&mutex);
    return other ? AEE_EALREADYLOADED : 0;
}

/* Closes all handles of a session. */
int close_session(int domain) {
    int closed = 0;
    for (size_t at = 0; at < MAX_HANDLES; at++) {
        pthread_mutex_lock(&mutex);
        struct pd *pd = handles[at].pd;
        if (pd != NULL && pd->domain == domain)
            handles[at].pd = NULL;
        else
            pd = NULL;
        pthread_mutex_unlock(&mutex);
        if (pd == NULL) continue;
        leave_session(pd);
        pd_release(pd);
        closed++;
    }
    return closed > 0 ? 0 : AEE_EFAILED;
}
