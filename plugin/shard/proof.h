/* SPDX-License-Identifier: Apache-2.0 */
/* The proof at wrap: known values go where gradients and parameters will go. See verify.h. */
#ifndef SHARD_PROOF_H
#define SHARD_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "device/norm.h"
#include "shard/model.h"

/*
 * Two rounds of gradients and one of parameters, through the calls of hosts. In the first, every
 * rank gives 1 for every element: what comes out says how many ranks were counted. In the second,
 * one rank gives a number that tells the element, and the others zeros: it says which. What is
 * expected is computed from what the class says of itself, never from what the reduction uses.
 *
 * A parameter that other units have names for, or other stages copies, gets 1 from each of them in
 * the first round; in the second only under its own name, on the first stage.
 */
enum proof_round {
    PROOF_EVERY_RANK,
    PROOF_ONE_RANK,
    PROOF_PARAMS,
};

/* What a class promises, in its own words: names of dimensions, settings, sizes of the mesh. */
struct promise {
    uint32_t replicated; /* dimensions */
    uint32_t n_ranks;    /* that sum their gradients */
    uint32_t index;      /* this rank's among them */
    uint32_t holder;     /* which of the ranks that hold different values */
    bool is_first;       /* of those that hold the same values: it counts them */
    float divisor;
    enum dtype gradient_dtype;
    enum dtype wire_dtype;
};

/* The first thing that a rank finds wrong; what ranks exchange. */
struct fault {
    int32_t status; /* HSDP_OK = none */
    uint32_t reserved;
    char unit[64];
    char text[432];
};

/* proof.only: beside one unit's index. */
#define PROOF_ALL_UNITS UINT32_MAX
#define PROOF_NO_UNIT   (UINT32_MAX - 1)

/* Where a rank's plan begins: the first of the ranks that have it, and how many units it has. */
struct stage {
    uint32_t first_rank;
    uint32_t n_units;
};

struct proof {
    struct hsdp_model *model;
    struct promise *promises; /* one a class */
    struct hsdp_segment *segments;
    uint32_t *units;      /* of a pass */
    uint8_t *gathered;    /* one exchange of all ranks */
    struct stage *stages; /* one a rank */
    uint32_t *n_names;    /* one a parameter: its gradients, with those of its names elsewhere */
    uint32_t only;        /* the unit that takes part */
    struct fault fault;
};

/** Allocates and reads the promises; *ret_proof may be half-made on failure: proof_fini. */
int32_t proof_init(struct proof *ret_proof, struct hsdp_model *model, struct hsdp_error *reterr);
void proof_fini(struct proof *proof);

/** Notes a fault of a unit, unless there is one already; `format` continues its names. */
void proof_fault(struct proof *proof, uint32_t unit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Every rank hears of the first fault of the lowest rank that has one. Collective over the job.
 *
 * Errors: the status of that fault, on all ranks.
 */
int32_t proof_agree(struct proof *proof, struct hsdp_error *reterr);

/** Elements of a parameter, from its shape. */
uint64_t proof_elems(const struct plan_param *param);

#define PROOF_BLOCK_ELEMS 1024u

/** How many of n_elems there are from `first` on, up to a block. */
uint64_t proof_block(uint64_t n_elems, uint64_t first);

/** The number of the rank that gives an element in the second round, among those of its class. */
uint32_t proof_giver(const struct proof *proof, uint32_t param, uint64_t elem);

/** What is given for elements first to first + n of a storage, before any rounding. */
void proof_values(const struct proof *proof, enum proof_round round, uint32_t param, uint64_t first,
                  uint64_t n, float *ret_values);

/** proof_grads.c: one round of gradients. Collective over the job; the step is discarded. */
int32_t proof_grads(struct proof *proof, enum proof_round round, struct hsdp_error *reterr);

/** proof_params.c: masters, publish, unshard; leaves zeros. Collective over the job. */
int32_t proof_params(struct proof *proof, struct hsdp_error *reterr);

#endif /* SHARD_PROOF_H */
