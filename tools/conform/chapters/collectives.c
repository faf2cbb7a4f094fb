/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: groups of the host, and what they compute. */
#include "collectives.h"

#define KINDS "group.h: hsdp_coll_spec"
#define SUMS  "group.h: sums are computed"

const struct coll_dtype coll_dtypes[COLL_N_DTYPES] = {
    {"fp32", HSDP_DTYPE_FLOAT, 32, true},   {"fp64", HSDP_DTYPE_FLOAT, 64, true},
    {"bf16", HSDP_DTYPE_BFLOAT, 16, true},  {"fp16", HSDP_DTYPE_FLOAT, 16, true},
    {"int8", HSDP_DTYPE_INT, 8, false},     {"int16", HSDP_DTYPE_INT, 16, false},
    {"int32", HSDP_DTYPE_INT, 32, false},   {"int64", HSDP_DTYPE_INT, 64, false},
    {"uint8", HSDP_DTYPE_UINT, 8, false},   {"uint16", HSDP_DTYPE_UINT, 16, false},
    {"uint32", HSDP_DTYPE_UINT, 32, false}, {"uint64", HSDP_DTYPE_UINT, 64, false},
};

static const struct conform_check checks[] = {
    {"a barrier waits for the last one", KINDS, coll_barrier, 4, 0, 0},
    {"all_reduce of each dtype and reduction", KINDS, coll_all_reduce, 4, 0, 0},
    {"all_reduce in place", KINDS, coll_all_reduce_in_place, 3, 0, 0},
    {"reduce_scatter of each dtype and reduction", KINDS, coll_reduce_scatter, 4, 0, 0},
    {"all_gather of each dtype", KINDS, coll_all_gather, 4, 0, 0},
    {"all_to_all of each dtype, also in place", KINDS, coll_all_to_all, 4, 0, 0},
    {"broadcast from each root, also in place", KINDS, coll_broadcast, 4, 0, 0},
    {"send and recv around a ring", KINDS, coll_send_recv, 4, 0, 0},
    {"uneven counts", KINDS, coll_uneven, 4, 0, 0},
    {"counts of zero", KINDS, coll_zero, 4, 0, 0},
    {"tensors of a megabyte and more", KINDS, coll_large, 2, 0, 0},
    {"sums are over adjacent pairs in group order", SUMS, coll_pairs, 4, 0, 0},
    {"a mean is the same by all_reduce and reduce_scatter", SUMS, coll_mean_both_ways, 2, 0, 0},
    {"a mean of any size is right", SUMS, coll_mean_of_sizes, 2, 0, 0},
    {"a mean of integers is right or unsupported", SUMS, coll_mean_of_integers, 2, 0, 0},
    {"one rank alone gets every bit back", SUMS, coll_every_bit, 1, 0, 0},
    {"what is no number stays none", SUMS, coll_not_a_number, 2, 0, 0},
    {"a group of one rank works without traffic", "group.h: a group of one rank", coll_one_rank, 2,
     0, 0},
    {"groups of one mesh do not mix", "group.h: create, connect", coll_derived, 4, 0, 0},
    {"members and index are those of the selector", "group.h: info, members", coll_members, 4, 0,
     0},
    {"who is outside of a selector gets no group", "group.h: create", coll_not_member, 4, 0, 0},
    {"several collectives start in one call", "group.h: start", coll_several, 4, 0, 0},
    {"specs and tensors of a newer host", "group.h: start: spec_bytes", coll_strides, 2, 0, 0},
    {"tickets are done in any order", "job.h: ticket_wait", coll_tickets, 2, 0, 0},
    {"what is sent and received is counted", "group.h: info", coll_counted, 2, 0, 0},
    {"what does not fit the ranks is refused", "group.h: start: errors", coll_wrong_specs, 2, 0, 0},
};

const struct conform_chapter conform_collectives = {"collectives", "groups of the host", checks,
                                                    sizeof(checks) / sizeof(checks[0])};
