/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes: what the files of both sides share. */
#ifndef COMM_NODES_INTERNAL_H
#define COMM_NODES_INTERNAL_H

#include "comm/nodes.h"
#include "comm/nodes_message.h"
#include "comm/rank_set.h"
#include "net/hub.h"
#include "net/uplink.h"

#define NODES_NOBODY UINT32_MAX

/* For who waits in vain. */
#define NODES_NO_TOKEN "without a token (token_file) only nodes on one machine meet"

/* One node as the root sees it. The first is its own. */
struct node {
    uint32_t peer; /* of the hub */
    uint32_t n_ranks;
    uint32_t *ranks; /* ascending once all have come; owned */
    uint32_t leader; /* its rank */
    char host[NODES_HOST_BYTES];
    bool has_joined; /* it has said who it is, and is one of us */
    bool has_ended;
    bool is_done;      /* it has the board of the farewell */
    bool is_asked;     /* for positions, which have not come yet */
    uint64_t n_boards; /* exchanges for which its mailboxes are here */
};

/* Who is missing, and what they do: being found out by the root. */
struct verdict {
    bool is_open;
    uint64_t until_ns; /* by then it is given */
    struct nodes_expired cause;
    struct rank_set missing;
    char text[400]; /* "rank 5, which is stopped; rank 8, which has died" */
};

struct nodes {
    struct hsdp_job *job;
    pthread_mutex_t lock;  /* held while connections are served */
    struct hub *hub;       /* the root's; NULL = there is no need of one */
    struct uplink *uplink; /* of other leaders */
    struct nodes_join own;
    uint64_t silence_ns; /* as the hub or the uplink knows it */
    bool is_root;
    bool has_token;
    bool is_relaying;

    /* How it stands: HSDP_PENDING, HSDP_OK when the world has come, or what it failed with. */
    int32_t status;
    uint32_t reporter;
    struct hsdp_error error;
    bool is_failure_told; /* to the other nodes */

    /* Ranks of this node; the root's are in its first node. */
    struct nodes_rank locals[LAUNCH_MAX_RANKS];
    uint32_t n_locals;
    uint32_t n_told;     /* of them, by a leader */
    uint64_t expired_ns; /* a leader: when it asked the root; 0 = it has not */

    /* The root. */
    struct node *nodes;
    uint32_t n_nodes;
    uint32_t *owners;    /* by rank: index of its node, NODES_NOBODY */
    uint32_t *pids;      /* by rank */
    uint32_t n_arrived;  /* ranks */
    uint32_t n_known;    /* ranks that have come, whether they fit or not */
    uint32_t n_heralded; /* ranks of the nodes whose leaders have come */
    uint32_t n_failed;   /* nodes that have been told how the meeting has failed */
    uint64_t linger_ns;  /* misfit: so long the others may come to hear it; UINT64_MAX = none */
    struct hsdp_error misfit;
    struct verdict verdict;

    /* Exchanges. */
    uint64_t n_sent;     /* boards of this node, given to the root (or taken, at the root) */
    uint64_t n_asked;    /* the last exchange for which a rank of this node has asked */
    bool is_closing;     /* the farewell has been heard */
    bool waits_for_done; /* the root: n_boards is raised when all have it */
};

/* nodes.c */
/** How often connections beat, with nodes->silence_ns. */
uint64_t nodes_beat_ns(const struct nodes *nodes);
void nodes_fail_own(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err);
/** Fails the job for what the relay has seen or heard. */
void nodes_raise(struct nodes *nodes, uint32_t reporter, const struct hsdp_error *err);
/** Mask of the ranks of this node, by index, that have not come to an exchange. */
uint64_t node_absent(const struct nodes *nodes, uint64_t exchange);
/** What they are doing, or whom they wait for. */
void positions_fill(const struct nodes *nodes, uint64_t exchange, struct nodes_positions *ret);
/** What a rank of this node asks: whose fault is it that its exchange has expired? Once each. */
bool node_question(struct nodes *nodes, struct nodes_expired *ret);
void board_arrived(struct nodes *nodes, uint64_t exchange);
bool board_is_farewell(const struct nodes *nodes, uint64_t exchange);

/* nodes_root.c: meeting */
int32_t root_open(struct nodes *nodes, const uint8_t *token, struct hsdp_error *reterr);
void root_fini(struct nodes *nodes);
void root_arrived(struct nodes *nodes, uint32_t index, const struct nodes_rank *rank);
void root_step(struct nodes *nodes);
void root_expire(struct nodes *nodes);
void root_tell(struct nodes *nodes, uint32_t kind, const void *bytes, uint64_t n_bytes);
/** Tells the failure to whom it has not been told; false when all leaders have come. */
bool root_fail(struct nodes *nodes, const struct nodes_failed *failed);

/* nodes_relay.c: the root, afterwards */
void root_received(struct nodes *nodes, uint32_t index, uint32_t kind, const uint8_t *bytes,
                   uint64_t n_bytes);
void root_lost(struct nodes *nodes, uint32_t index, enum net_end why);
void root_relay(struct nodes *nodes);
void root_ask(struct nodes *nodes, const struct nodes_expired *cause);

/* nodes_leader.c */
int32_t leader_open(struct nodes *nodes, const uint8_t *token, struct hsdp_error *reterr);
void leader_arrived(struct nodes *nodes);
void leader_step(struct nodes *nodes);
void leader_expire(struct nodes *nodes);
/** Tells the root the failure, once it is found; false when it has been told, or is lost. */
bool leader_fail(struct nodes *nodes, const struct nodes_failed *failed);
void leader_relay(struct nodes *nodes);

#endif /* COMM_NODES_INTERNAL_H */
