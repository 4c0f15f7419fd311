/* The requests about sessions and handles, and what a DSP tells of itself. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "cdsprpc.h"

/* Requests of remote_handle_control. */
enum { LATENCY = 1, DSP_INFO, WAKELOCK, GET_DOMAIN };
/* What DSP_INFO asks for. */
enum { DOMAIN_SUPPORT, UNSIGNED_PD, HVX_64B, HVX_128B, VTCM_PAGE, VTCM_COUNT, ARCH_VERSION,
       HMX_DEPTH, HMX_SPATIAL, ASYNC, STATUS_NOTIFICATION, ATTRIBUTES = 260 };
/* Requests of remote_session_control. */
enum { THREAD_PARAMETERS = 1, UNSIGNED_MODULE, RELATIVE_PRIORITY = 4, PROCESS_KILL = 6,
       SESSION_CLOSE, PD_DUMP, PROCESS_EXCEPTION, PROCESS_TYPE, STATUS_NOTIFICATIONS,
       INITIAL_MEMORY, RESERVE_SESSION, EFFECTIVE_DOMAIN, SESSION_URI };

struct domain_value {
    int32_t domain, value;
};
struct new_session {
    const char *domain;
    uint32_t domain_length;
    const char *name;
    uint32_t name_length, effective, session;
};
struct effective {
    const char *domain;
    uint32_t domain_length, session, effective;
};
struct session_uri {
    const char *domain;
    uint32_t domain_length, session;
    const char *module;
    uint32_t module_length;
    char *uri;
    uint32_t uri_length;
};

static bool is_effective(int domain) { return domain >= 0 && domain < EFFECTIVE; }

/* --- what the DSP can do --- */

static int capability(uint32_t domain, uint32_t attribute, uint32_t *value) {
    const struct limits *told = limits();
    if (!is_effective((int)domain) || attribute >= ATTRIBUTES) return AEE_EBADPARM;
    *value = 0;
    if (dsp_folder() == NULL) {
        *value = 1;
        return 0;
    }
    if (domain % DOMAINS != CDSP) return attribute == DOMAIN_SUPPORT ? 0 : AEE_ECONNREFUSED;
    switch (attribute) {
    case DOMAIN_SUPPORT:
    case VTCM_COUNT:
    case HMX_DEPTH:
    case HMX_SPATIAL:
    case STATUS_NOTIFICATION: *value = 1; break;
    case UNSIGNED_PD: *value = told->unsigned_pd != 0; break;
    case HVX_128B: *value = (uint32_t)told->hvx_threads; break;
    case VTCM_PAGE: *value = (uint32_t)told->vtcm_mb << 20; break;
    case ARCH_VERSION: *value = arch_number(); break;
    default: break; /* HVX of 64 bytes, asynchronous calls and what is newer: it has none */
    }
    return 0;
}

static int handle_request(int domain, uint32_t request, void *data, uint32_t size) {
    uint32_t *words = data;
    if (data == NULL) return AEE_EBADPARM;
    switch (request) {
    case LATENCY: return size == 2 * sizeof *words ? 0 : AEE_EBADPARM;
    case DSP_INFO: return size < 3 * sizeof *words ? AEE_EBADPARM
                                                   : capability(words[0], words[1], &words[2]);
    case WAKELOCK: return size == sizeof *words ? 0 : AEE_EBADPARM;
    case GET_DOMAIN:
        if (size != sizeof *words) return AEE_EBADPARM;
        words[0] = (uint32_t)domain;
        return 0;
    default: return AEE_EUNSUPPORTED;
    }
}

EXPORTED int remote_handle_control(uint32_t request, void *data, uint32_t size) {
    int answer = 0;
    if (scripted("capability", &answer)) return answer;
    return handle_request(CDSP, request, data, size);
}

EXPORTED int remote_handle64_control(uint64_t handle, uint32_t request, void *data,
                                     uint32_t size) {
    int answer = 0;
    uint64_t remote;
    if (answered("handle_control", &answer)) return answer;
    struct pd *pd = handle_pd(handle, &remote, false);
    if (pd == NULL) return AEE_EINVHANDLE;
    answer = handle_request(pd->domain, request, data, size);
    pd_release(pd);
    return answer;
}

/* --- sessions --- */

/* A protection domain is ended by the client's own wish, as if it had died. */
static int kill_session(int domain) {
    struct pd *pd = session_pd(domain);
    if (pd == NULL) return AEE_ENOTINITIALIZED;
    pd_kill(pd);
    pd_release(pd);
    return 0;
}

static int reserve(struct new_session *asked) {
    int domain = named_domain(asked->domain, "");
    if (domain < 0 || asked->name == NULL) return AEE_EBADPARM;
    int effective = reserve_session(domain);
    asked->effective = effective < 0 ? EFFECTIVE : (uint32_t)effective;
    asked->session = asked->effective / DOMAINS;
    return effective < 0 ? said("session", AEE_ENOSESSION, "a process has %d sessions", SESSIONS)
                         : 0;
}

static int write_uri(const struct session_uri *asked) {
    if (named_domain(asked->domain, "") < 0 || asked->session >= SESSIONS ||
        asked->module == NULL || asked->uri == NULL || asked->uri_length <= asked->module_length)
        return AEE_EBADPARM;
    int length = snprintf(asked->uri, asked->uri_length, "%s&_dom=%.*s&_session=%u", asked->module,
                          (int)asked->domain_length, asked->domain, asked->session);
    return length < 0 || (uint32_t)length >= asked->uri_length ? AEE_EBADSIZE : 0;
}

static int for_domains(int domain, int value, int (*use)(int domain, bool value)) {
    if (domain != -1) return is_effective(domain) ? use(domain, value != 0) : AEE_EBADPARM;
    int error = 0;
    for (int one = 0; one < EFFECTIVE && error == 0; one++) error = use(one, value != 0);
    return error;
}

static int close_one(int domain, bool unused) {
    (void)unused;
    return close_session(domain);
}

#define ASKED(type) (size == sizeof(type))

static int session_request(uint32_t request, void *data, uint32_t size) {
    struct domain_value *pair = data;
    struct effective *effective = data;
    int domain = size >= sizeof(int32_t) ? pair->domain : 0;
    switch (request) {
    case THREAD_PARAMETERS: return ASKED(int32_t[3]) ? 0 : AEE_EBADPARM;
    case RELATIVE_PRIORITY:
    case PD_DUMP:
    case INITIAL_MEMORY: return ASKED(*pair) ? 0 : AEE_EBADPARM;
    case UNSIGNED_MODULE:
        return ASKED(*pair) ? for_domains(domain, pair->value, want_unsigned_pd) : AEE_EBADPARM;
    case PROCESS_KILL:
    case PROCESS_EXCEPTION: return ASKED(int32_t) ? kill_session(domain) : AEE_EBADPARM;
    case SESSION_CLOSE: return ASKED(int32_t) ? for_domains(domain, 0, close_one) : AEE_EBADPARM;
    case PROCESS_TYPE:
        if (!ASKED(*pair) || !is_effective(domain)) return AEE_EBADPARM;
        pair->value = is_unsigned_pd(domain);
        return 0;
    case STATUS_NOTIFICATIONS: {
        struct notified *one = data;
        if (!ASKED(*one) || !is_effective(one->domain) || one->call == NULL) return AEE_EBADPARM;
        return keep_notified(*one) ? 0 : AEE_ENOMEMORY;
    }
    case RESERVE_SESSION: return ASKED(struct new_session) ? reserve(data) : AEE_EBADPARM;
    case EFFECTIVE_DOMAIN:
        if (!ASKED(*effective) || effective->session >= SESSIONS) return AEE_EBADPARM;
        domain = named_domain(effective->domain, "");
        if (domain < 0) return AEE_EBADPARM;
        effective->effective = (uint32_t)domain + DOMAINS * effective->session;
        return 0;
    case SESSION_URI: return ASKED(struct session_uri) ? write_uri(data) : AEE_EBADPARM;
    default: return AEE_EUNSUPPORTED;
    }
}

EXPORTED int remote_session_control(uint32_t request, void *data, uint32_t size) {
    int answer = 0;
    if (scripted(request == UNSIGNED_MODULE ? "unsigned" : "session", &answer)) return answer;
    return data == NULL ? AEE_EBADPARM : session_request(request, data, size);
}

EXPORTED int remote_system_request(void *request) {
    int answer = 0;
    (void)request;
    scripted("system", &answer);
    return answer;
}
