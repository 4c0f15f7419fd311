/* Where the nodes of a session went: how many each execution provider got. */
#include "ort.h"

#include <string.h>

enum { EPS_LISTED = 16, OPERATORS_LISTED = 64, NODES_NAMED = 4096 };

struct placed { /* what one EP got of a graph */
    const char *ep;
    uint64_t subgraphs, nodes;
    const char *operators[OPERATORS_LISTED]; /* of the first nodes */
    const char *kinds[OPERATORS_LISTED];     /* each operator once, with how many nodes it has */
    uint64_t kind_nodes[OPERATORS_LISTED], kind_count;
};

static void count_operator(struct placed *placed, const char *operator) {
    uint64_t at = 0;
    while (at < placed->kind_count && strcmp(placed->kinds[at], operator) != 0) at++;
    if (at == OPERATORS_LISTED) return; /* what is not listed is the rest of `nodes` */
    if (at == placed->kind_count) placed->kinds[placed->kind_count++] = operator;
    placed->kind_nodes[at]++;
}

static bool count_nodes(ort_handle subgraph, struct placed *eps, size_t *count,
                        struct outcome *outcome) {
    const char *name = NULL;
    ort_handle const *nodes = NULL;
    size_t node_count = 0, at = 0;
    if (!ort_fine(ort.api->subgraph_ep(subgraph, &name), outcome) ||
        !ort_fine(ort.api->subgraph_nodes(subgraph, &nodes, &node_count), outcome))
        return false;
    while (at < *count && strcmp(eps[at].ep, name) != 0) at++;
    if (at == EPS_LISTED)
        return fail(outcome, "unsupported", "more than %d EPs in one graph", EPS_LISTED);
    if (at == *count) eps[(*count)++] = (struct placed){.ep = name};
    eps[at].subgraphs++;
    for (size_t i = 0; i < node_count; i++) {
        const char *operator = NULL;
        if (!ort_fine(ort.api->node_operator(nodes[i], &operator), outcome)) return false;
        if (eps[at].nodes < OPERATORS_LISTED) eps[at].operators[eps[at].nodes] = operator;
        eps[at].nodes++;
        count_operator(&eps[at], operator);
    }
    return true;
}

static void report_placed(struct json *data, const struct placed *eps, size_t count) {
    json_open(data, "placement", '[');
    for (size_t i = 0; i < count; i++) {
        json_open(data, NULL, '{');
        json_text(data, "ep", eps[i].ep);
        json_u64(data, "nodes", eps[i].nodes);
        json_u64(data, "subgraphs", eps[i].subgraphs);
        json_open(data, "operators", '[');
        for (uint64_t n = 0; n < eps[i].nodes && n < OPERATORS_LISTED; n++)
            json_text(data, NULL, eps[i].operators[n]);
        json_close(data, ']');
        json_open(data, "operator_nodes", '[');
        for (uint64_t n = 0; n < eps[i].kind_count; n++) {
            json_open(data, NULL, '{');
            json_text(data, "operator", eps[i].kinds[n]);
            json_u64(data, "nodes", eps[i].kind_nodes[n]);
            json_close(data, '}');
        }
        json_close(data, ']');
        json_close(data, '}');
    }
    json_close(data, ']');
}

/* Each subgraph that an EP got, with its nodes by name and operator. */
static bool report_assigned(struct json *data, ort_handle const *subgraphs, size_t count,
                            struct outcome *outcome) {
    size_t named = 0;
    json_open(data, "assigned", '[');
    for (size_t i = 0; i < count; i++) {
        const char *ep = NULL;
        ort_handle const *nodes = NULL;
        size_t node_count = 0;
        if (!ort_fine(ort.api->subgraph_ep(subgraphs[i], &ep), outcome) ||
            !ort_fine(ort.api->subgraph_nodes(subgraphs[i], &nodes, &node_count), outcome))
            return false;
        json_open(data, NULL, '{');
        json_text(data, "ep", ep);
        json_open(data, "nodes", '[');
        for (size_t n = 0; n < node_count && named < NODES_NAMED; n++, named++) {
            const char *name = NULL, *operator = NULL;
            if (!ort_fine(ort.api->node_name(nodes[n], &name), outcome) ||
                !ort_fine(ort.api->node_operator(nodes[n], &operator), outcome))
                return false;
            json_open(data, NULL, '[');
            json_text(data, NULL, name);
            json_text(data, NULL, operator);
            json_close(data, ']');
        }
        json_close(data, ']');
        json_close(data, '}');
    }
    json_close(data, ']');
    return true;
}

/* Which EP got which nodes; with `whole`, nodes that went to another one are a failure. */
void ort_placement(const struct step *step, struct outcome *outcome) {
    const char *whole = step_text(step, "whole");
    const struct ort_session *session = ort_session_of(step, outcome);
    if (session == NULL) return;
    if (ort.api_version < ORT_API_NEWEST) {
        outcome->skipped = "this ORT does not tell where nodes went (API 24)";
        return;
    }
    static struct placed eps[EPS_LISTED];
    ort_handle const *subgraphs = NULL;
    size_t subgraph_count = 0, count = 0;
    if (!ort_fine(ort.api->assignment(session->handle, &subgraphs, &subgraph_count), outcome))
        return;
    for (size_t i = 0; i < subgraph_count; i++)
        if (!count_nodes(subgraphs[i], eps, &count, outcome)) return;
    report_placed(&outcome->data, eps, count);
    if (!report_assigned(&outcome->data, subgraphs, subgraph_count, outcome)) return;
    uint64_t nodes = 0, elsewhere = 0;
    const char *other = NULL, *operator = NULL;
    for (size_t i = 0; i < count; i++) {
        nodes += eps[i].nodes;
        if (whole == NULL || strcmp(eps[i].ep, whole) == 0) continue;
        elsewhere += eps[i].nodes;
        other = eps[i].ep;
        operator = eps[i].operators[0];
    }
    if (whole != NULL && (elsewhere > 0 || nodes == 0))
        fail(outcome, "placement", "%llu of %llu nodes are not on %s%s%s%s%s",
             (unsigned long long)elsewhere, (unsigned long long)nodes, whole,
             other != NULL ? " but on " : "", other != NULL ? other : "",
             operator != NULL ? ", the first is " : "", operator != NULL ? operator : "");
}
