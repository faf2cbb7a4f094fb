/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: which rank this process is, where ranks meet, and what tells its run from others. */
#ifndef COMM_LAUNCH_H
#define COMM_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "hsdp/job.h"

/* The ranks of one host. */
#define LAUNCH_MAX_RANKS 64u

/* MASTER_PORT and those after it. */
#define LAUNCH_MAX_PORTS 17u

#define LAUNCH_HOST_BYTES 256u /* a name or an address, with its NUL */
#define LAUNCH_NODE_BYTES 16u
#define LAUNCH_HEX_BYTES  33u /* 32 hexadecimal digits and a NUL */

/** Where rank 0 listens for other hosts, and they look for it. */
struct launch_place {
    char host[LAUNCH_HOST_BYTES]; /* "" where nothing says, or the host's store will */
    uint16_t ports[LAUNCH_MAX_PORTS];
    uint32_t n_ports; /* to try in this order; 0 = any that is free, or nothing says */
    bool is_fixed;    /* one port that the setting rendezvous_port gives: no other will do */
};

struct launch {
    uint32_t rank;
    uint32_t world_ranks;
    uint32_t local_rank;
    uint32_t local_ranks;
    uint32_t n_hosts;                 /* nodes of the job; 0 = the launcher does not say */
    char node_key[LAUNCH_NODE_BYTES]; /* tells nodes on one machine apart; "" = nothing does */
    bool is_leader;                   /* local rank 0: it holds the meeting point of its node */
    bool is_one_host;                 /* all ranks are local */
    uint32_t launcher;                /* private: which variables hold */
    bool is_spec;                     /* private: the host says which rank this is */
    struct launch_place place;        /* launch_place_read */
};

/**
 * Answers "who am I?": from the spec, else from the launcher's environment, else one rank.
 * Leaves the place empty.
 *
 * Errors: HSDP_ERR_INVALID names the variable and its text, or the one that is missing;
 * HSDP_ERR_UNSUPPORTED for more than LAUNCH_MAX_RANKS on this host.
 */
int32_t launch_read(const struct hsdp_job_spec *spec, struct launch *ret,
                    struct hsdp_error *reterr);

/**
 * Answers "where do we meet?", into launch->place: rendezvous_port is that setting, 0 = not set.
 * With a key/value store of the host (has_store) only that port counts.
 *
 * Errors: HSDP_ERR_INVALID names a variable and its text; HSDP_ERR_UNAVAILABLE where several hosts
 * have to meet and nothing says at which host or port.
 */
int32_t launch_place_read(struct launch *launch, bool has_store, uint16_t rendezvous_port,
                          struct hsdp_error *reterr);

/* ------------------------------------------------------------------------------- identity */

/* What must be equal on all ranks of a run, in the order in which it is compared. */
enum launch_field {
    LAUNCH_RUN,        /* HSDP_RUN_ID */
    LAUNCH_TORCH_RUN,  /* TORCHELASTIC_RUN_ID */
    LAUNCH_ADDR,       /* MASTER_ADDR */
    LAUNCH_PORT,       /* MASTER_PORT */
    LAUNCH_OWN_PORT,   /* the setting rendezvous_port */
    LAUNCH_MPIRUN,     /* OMPI_MCA_orte_hnp_uri */
    LAUNCH_NAMESPACE,  /* PMIX_NAMESPACE */
    LAUNCH_SLURM_JOB,  /* SLURM_JOB_ID */
    LAUNCH_SLURM_STEP, /* SLURM_STEP_ID */
    /* From here on: the attempt, which another one of the same run differs in. */
    LAUNCH_ATTEMPT,       /* HSDP_ATTEMPT */
    LAUNCH_TORCH_ATTEMPT, /* TORCHELASTIC_RESTART_COUNT */
    LAUNCH_SLURM_ATTEMPT, /* SLURM_RESTART_COUNT */
    LAUNCH_N_FIELDS
};

#define LAUNCH_FIRST_ATTEMPT LAUNCH_ATTEMPT
#define LAUNCH_VALUE_BYTES   64u /* with the NUL; a longer one is its beginning and a hash */

/** Only the variables of this job's launcher; without pointers, so that it can be sent. */
struct launch_identity {
    char values[LAUNCH_N_FIELDS][LAUNCH_VALUE_BYTES]; /* "" = not set; the rest is zero */
};

/**
 * Reads what tells this run from others, after launch_place_read; *ret_is_known is false when
 * nothing does (an attempt alone is nothing).
 *
 * Errors: HSDP_ERR_INVALID names a variable and its text.
 */
int32_t launch_identity_read(const struct launch *launch, struct launch_identity *ret,
                             bool *ret_is_known, struct hsdp_error *reterr);

/** 32 hexadecimal digits that stand for an identity. */
void launch_identity_hash(const struct launch_identity *identity, char ret_hex[LAUNCH_HEX_BYTES]);

/**
 * The text that the unix meeting point of this node derives from: "KEY=VALUE" lines without the
 * attempt, so that another attempt comes to the same place and hears that it is one. A node's key
 * is in it.
 */
void launch_meeting_key(const struct launch *launch, const struct launch_identity *identity,
                        struct text *text);

/** The first field in which two identities differ; LAUNCH_N_FIELDS when they are equal. */
enum launch_field launch_identity_compare(const struct launch_identity *left,
                                          const struct launch_identity *right);

/**
 * Says in one sentence how the identity of another rank differs from that of the one that asks:
 * HSDP_ERR_MISMATCH with both values, and for a field of the attempt that one of them is a
 * survivor. HSDP_OK when they are equal. Texts that came from elsewhere need not end.
 */
int32_t launch_identity_check(const struct launch_identity *own, uint32_t own_rank,
                              const struct launch_identity *other, uint32_t other_rank,
                              struct hsdp_error *reterr);

#endif /* COMM_LAUNCH_H */
