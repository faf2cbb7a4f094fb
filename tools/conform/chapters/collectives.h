/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the chapter "collectives", by file; and what they share. */
#ifndef CONFORM_COLLECTIVES_H
#define CONFORM_COLLECTIVES_H

#include "conform.h"
#include "numbers.h"

/* A job with one group of the host. */
struct coll {
    struct host host;
    hsdp_group *group;
    uint32_t n_ranks; /* of the group */
    uint32_t index;
};

/** Joins over these dimensions, and connects the group that the selector picks. */
void coll_open(struct conform *conform, struct coll *coll, const char *dims, const char *selector);
void coll_close(struct coll *coll);

/* A dtype of tensors in groups. */
struct coll_dtype {
    const char *name;
    uint8_t code;
    uint8_t bits;
    bool is_float;
};

#define COLL_N_DTYPES 12u
extern const struct coll_dtype coll_dtypes[COLL_N_DTYPES]; /* fp32 is the first */

/* A tensor of one dimension, with its shape in it. */
struct coll_vector {
    struct hsdp_tensor tensor;
    int64_t n_elems;
};

struct hsdp_tensor *coll_vector(struct coll_vector *vector, void *base, uint64_t n_elems,
                                const struct coll_dtype *dtype);

struct hsdp_coll_spec coll_spec(int32_t kind, int32_t reduce, const struct hsdp_tensor *input,
                                const struct hsdp_tensor *output);

/* One element of memory as a number; what is written is exact in the dtype. */
double coll_read(const void *base, uint64_t elem, const struct coll_dtype *dtype);
void coll_write(void *base, uint64_t elem, const struct coll_dtype *dtype, double value);

/** Starts and waits. True unless the plugin has not built it: HSDP_ERR_UNSUPPORTED. */
bool coll_run(struct coll *coll, const struct hsdp_coll_spec *specs, uint64_t n_specs);

/* coll_values.c */
void coll_barrier(struct conform *conform);
void coll_all_reduce(struct conform *conform);
void coll_all_reduce_in_place(struct conform *conform);
void coll_reduce_scatter(struct conform *conform);
void coll_all_gather(struct conform *conform);
void coll_all_to_all(struct conform *conform);
void coll_broadcast(struct conform *conform);
void coll_send_recv(struct conform *conform);
void coll_uneven(struct conform *conform);
void coll_zero(struct conform *conform);
void coll_large(struct conform *conform);

/* coll_sums.c */
void coll_pairs(struct conform *conform);
void coll_mean_both_ways(struct conform *conform);
void coll_mean_of_sizes(struct conform *conform);
void coll_mean_of_integers(struct conform *conform);
void coll_every_bit(struct conform *conform);
void coll_not_a_number(struct conform *conform);

/* coll_groups.c */
void coll_one_rank(struct conform *conform);
void coll_derived(struct conform *conform);
void coll_members(struct conform *conform);
void coll_not_member(struct conform *conform);
void coll_several(struct conform *conform);
void coll_strides(struct conform *conform);
void coll_tickets(struct conform *conform);
void coll_counted(struct conform *conform);
void coll_wrong_specs(struct conform *conform);

#endif /* CONFORM_COLLECTIVES_H */
