/* SPDX-License-Identifier: Apache-2.0 */
/* Groups inside: what group.c, coll.c and diag.c share. */
#ifndef REFERENCE_GROUP_H
#define REFERENCE_GROUP_H

#include "job.h"

/* How many groups of a name, and a first member, there have been. */
struct group_count {
    struct group_count *next;
    uint64_t n;
    uint32_t first_rank;
    char name[];
};

struct hsdp_group {
    struct hsdp_group *next; /* of the job's */
    hsdp_job *job;
    char *name;
    char key[64]; /* what its requests begin with */
    bool is_connected;
    uint32_t members[MOST_RANKS];
    uint32_t n_ranks;
    uint32_t index;      /* of this rank */
    uint64_t timeout_ms; /* 0 = the job's */
    uint64_t n_started;
    uint64_t n_sent_to[MOST_RANKS];
    uint64_t n_received_from[MOST_RANKS];
    uint64_t n_bytes_sent;
    uint64_t n_bytes_received;
    struct coll *colls; /* under way */
};

uint64_t group_timeout_ms(const hsdp_group *group);

/* One collective, from its start to its answer. */
struct coll {
    struct coll *next;
    hsdp_group *group;
    int32_t kind;
    int32_t reduce;
    uint32_t peer;
    uint32_t element_bytes;
    enum element element; /* N_ELEMENTS = of a dtype that can only be moved */
    char dtype[24];
    const unsigned char *input;
    unsigned char *output;
    uint64_t n_in; /* elements */
    uint64_t n_out;
    uint64_t send_elems[MOST_RANKS]; /* one number per member */
    uint64_t recv_elems[MOST_RANKS];
};

/** Reads and checks what the host asks for. */
int32_t coll_read(const struct call *call, hsdp_group *group, const struct hsdp_coll_spec *spec,
                  struct coll *ret);
/** Asks the server for it; *coll is the group's from here on, until it is answered. */
int32_t coll_start(const struct call *call, struct coll *coll, uint64_t own_timeout_ms,
                   uint64_t *ticket);
void colls_free(hsdp_group *group);

#endif /* REFERENCE_GROUP_H */
