/* The requests about sessions and handles, and what a DSP tells of itself. Those that no stub of QNN
 * makes are not known here; the record says so where one is made.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "cdsprpc.h"

/* What a request about a handle may be, and what DSP_INFO asks for. */
enum { LATENCY = 1, DSP_INFO, WAKELOCK };
enum { DOMAIN_SUPPORT, UNSIGNED_PD, HVX_128B = 3, VTCM_PAGE, VTCM_COUNT, ARCH_VERSION, HMX_DEPTH,
       HMX_SPATIAL, ATTRIBUTES = 260 };
/* What a request about a session may be. */
enum { THREAD_PARAMETERS = 1, UNSIGNED_MODULE, RELATIVE_PRIORITY = 4, SESSION_CLOSE = 7,
       INITIAL_MEMORY = 12, EFFECTIVE_DOMAIN = 14 };

struct domain_value {
    int32_t domain, value;
};
struct attribute {
    uint32_t domain, attribute, value;
};
struct effective {
    const char *domain;
    uint32_t domain_length, session, effective;
};

static int accept(void *data) { return (void)data, 0; }

/* How long a call may take until the CPU sees its answer, or how long it polls for one. */
static int take_latency(void *data) {
    const uint32_t *asked = data;
    char words[60];
    snprintf(words, sizeof words, "enable %u, latency %u us", asked[0], asked[1]);
    tell_harness("vote", "DSPRPC_CONTROL_LATENCY", "0", words, NULL);
    return 0;
}

static int tell_attribute(void *data) {
    struct attribute *asked = data;
    const struct limits *told = limits();
    if (asked->domain >= EFFECTIVE || asked->attribute >= ATTRIBUTES) return AEE_EBADPARM;
    asked->value = dsp_folder() == NULL;
    if (dsp_folder() == NULL) return 0;
    if (asked->domain % DOMAINS != CDSP)
        return asked->attribute == DOMAIN_SUPPORT ? 0 : AEE_ECONNREFUSED;
    switch (asked->attribute) {
    case DOMAIN_SUPPORT:
    case VTCM_COUNT:
    case HMX_DEPTH:
    case HMX_SPATIAL: asked->value = 1; break;
    case UNSIGNED_PD: asked->value = told->unsigned_pd != 0; break;
    case HVX_128B: asked->value = (uint32_t)told->hvx_threads; break;
    case VTCM_PAGE: asked->value = (uint32_t)told->vtcm_mb << 20; break;
    case ARCH_VERSION: asked->value = arch_number(); break;
    default: break; /* HVX of 64 bytes, asynchronous calls, notifications: it has none */
    }
    return 0;
}

static int set_unsigned(void *data) {
    const struct domain_value *asked = data;
    int first = asked->domain, last = asked->domain, error = 0;
    if (asked->domain == -1) first = 0, last = EFFECTIVE - 1;
    if (first < 0 || last >= EFFECTIVE) return AEE_EBADPARM;
    for (int one = first; one <= last && error == 0; one++)
        error = want_unsigned_pd(one, asked->value != 0);
    return error;
}

static int close_one(void *data) {
    int32_t domain = *(int32_t *)data;
    return domain >= 0 && domain < EFFECTIVE ? close_session(domain) : AEE_EBADPARM;
}

static int tell_effective(void *data) {
    struct effective *asked = data;
    int domain = named_domain(asked->domain, "");
    if (domain < 0 || asked->session >= SESSIONS) return AEE_EBADPARM;
    asked->effective = (uint32_t)domain + DOMAINS * asked->session;
    return 0;
}

static const struct request {
    const char *about;
    uint32_t number, size;
    int (*answer)(void *data);
} REQUESTS[] = {
    {"handle", LATENCY, 8, take_latency},
    {"handle", DSP_INFO, sizeof(struct attribute), tell_attribute},
    {"handle", WAKELOCK, 4, accept},
    {"session", THREAD_PARAMETERS, 12, accept},
    {"session", UNSIGNED_MODULE, sizeof(struct domain_value), set_unsigned},
    {"session", RELATIVE_PRIORITY, sizeof(struct domain_value), accept},
    {"session", SESSION_CLOSE, sizeof(int32_t), close_one},
    {"session", INITIAL_MEMORY, sizeof(struct domain_value), accept},
    {"session", EFFECTIVE_DOMAIN, sizeof(struct effective), tell_effective},
};

static int ask(const char *about, uint32_t number, void *data, uint32_t size) {
    const struct request *one = REQUESTS, *end = REQUESTS + sizeof REQUESTS / sizeof *REQUESTS;
    while (one < end && (one->number != number || strcmp(one->about, about) != 0)) one++;
    if (one == end) return said(about, AEE_EUNSUPPORTED, "request %u", number);
    return data == NULL || size != one->size ? AEE_EBADPARM : one->answer(data);
}

EXPORTED int remote_handle_control(uint32_t request, void *data, uint32_t size) {
    int answer = 0;
    return scripted("capability", &answer) ? answer : ask("handle", request, data, size);
}

EXPORTED int remote_handle64_control(uint64_t handle, uint32_t request, void *data,
                                     uint32_t size) {
    int answer = 0;
    uint64_t remote;
    if (answered("handle_control", &answer)) return answer;
    struct pd *pd = handle_pd(handle, &remote, false);
    if (pd == NULL) return AEE_EINVHANDLE;
    pd_release(pd);
    return ask("handle", request, data, size);
}

EXPORTED int remote_session_control(uint32_t request, void *data, uint32_t size) {
    int answer = 0;
    const char *call = request == UNSIGNED_MODULE ? "unsigned" : "session";
    return scripted(call, &answer) ? answer : ask("session", request, data, size);
}

EXPORTED int remote_system_request(void *request) {
    int answer = 0;
    (void)request;
    scripted("system", &answer);
    return answer;
}
