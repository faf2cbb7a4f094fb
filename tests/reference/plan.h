/* SPDX-License-Identifier: Apache-2.0 */
/* Plans inside: rows of classes, units and parameters, each added by one call of the host. */
#ifndef REFERENCE_PLAN_H
#define REFERENCE_PLAN_H

#include <stdatomic.h>
#include <stdio.h>

#include "hsdp/plan.h"
#include "mesh.h"
#include "settings.h"
#include "strategy.h"

struct plan_class {
    char *name;
    struct settings settings;
    const struct strategy *strategy;
    uint32_t replicated;                     /* over which values are equal; has all of R */
    uint32_t reduced;                        /* R */
    uint32_t cuts[N_CUTS];                   /* P, G, S: each within the next, and all within R */
    uint32_t slice_dims[HSDP_MESH_MAX_DIMS]; /* those of S in slice order: P first, then G, S */
    uint32_t n_slice_dims;
    uint32_t divisor;
    char cut_texts[N_CUTS][DIMS_TEXT_BYTES]; /* selectors */
    char reduced_text[DIMS_TEXT_BYTES];
    char replicated_text[DIMS_TEXT_BYTES];
};

struct plan_param {
    char *name;
    int64_t shape[HSDP_PARAM_MAX_DIMS];
    uint64_t n_elems;
    uint64_t block_elems;
    uint32_t n_dims;
    uint32_t unit;
    uint32_t hyper_group;
    uint32_t flags;
    uint32_t storage;      /* itself, or the parameter that it is tied to */
    char *tied_over;       /* of a storage: a selector without negative numbers; NULL = not tied */
    bool is_copy;          /* another stage's counts */
    char *given_tied_over; /* as the host has said it; NULL = not at all */

    /* Filled by finish. */
    uint32_t buffer;
    uint64_t offset_elems;
};

struct plan_buffer {
    bool is_frozen;
    uint64_t n_elems; /* with padding */
    uint64_t n_padding_elems;
    uint64_t shard_elems[N_CUTS];
};

struct plan_unit {
    char *name;
    uint32_t class_index;
    uint32_t n_params; /* all names */

    /* Filled by finish. */
    uint32_t n_buffers; /* first the trainable one, then the frozen one, where there are such */
    struct plan_buffer buffers[2];
    uint64_t n_alias_elems; /* of gradients for parameters of other units */
    bool is_added_to;       /* other units have gradients for it */
    uint32_t grad_slot;
};

struct hsdp_plan {
    struct hsdp_mesh *mesh; /* with dp split where it is */
    struct settings settings;
    struct plan_class *classes;
    struct plan_unit *units;
    struct plan_param *params;
    uint32_t n_classes;
    uint32_t n_units;
    uint32_t n_params;
    bool is_finished;
    struct hsdp_plan_info totals; /* filled by finish */
    atomic_uint n_holders;
};

/* ------------------------------------------------------------------- for models, made of a plan */

/** Keeps a plan alive until it is given back with reference_plan.destroy. */
hsdp_plan *plan_hold(const hsdp_plan *plan);

/**
 * Writes what the ranks that share parameters have to agree on: a line for each setting, class,
 * unit and parameter, so that the first line that differs names the cause.
 */
void plan_lines_write(const hsdp_plan *plan, FILE *file);

/* ---------------------------------------------------------------------------- between the files */

/** plan_class.c: reads a class; on failure *ret holds nothing. */
int32_t plan_class_read(const struct call *call, const struct hsdp_plan *plan,
                        const struct hsdp_class_spec *spec, struct plan_class *ret);
void plan_class_free(struct plan_class *klass);

/** plan_class.c: which slice of a cut a rank owns, and who saves it. */
uint32_t plan_slice(const struct hsdp_plan *plan, const struct plan_class *klass, int cut,
                    uint32_t rank);
uint32_t plan_slice_writer(const struct hsdp_plan *plan, const struct plan_class *klass, int cut,
                           uint32_t rank);

/** plan_param.c: reads a parameter; on failure *ret holds nothing. */
int32_t plan_param_read(const struct call *call, const struct hsdp_plan *plan,
                        const struct hsdp_param_spec *spec, struct plan_param *ret);
void plan_param_free(struct plan_param *param);

/** True for a name of another unit's parameter. */
bool plan_is_alias(const struct hsdp_plan *plan, uint32_t param);

/** plan_layout.c: places parameters and cuts buffers; then adds up. */
int32_t plan_lay_out(const struct call *call, struct hsdp_plan *plan);

/** plan_query.c: one segment after the other, from *param on; false when there is no more. */
struct plan_walk {
    const struct hsdp_plan *plan;
    uint32_t unit;
    uint32_t buffer;
    int cut;
    uint32_t rank;
    uint32_t param; /* the next to look at; 0 to begin */
};
bool plan_walk_next(struct plan_walk *walk, struct hsdp_segment *ret);

/** plan_report.c: the index-th remark; false past the last one. */
#define NOTE_BYTES 256
bool plan_note(const struct hsdp_plan *plan, uint32_t index, char text[NOTE_BYTES]);

/** Bytes of an element of a dtype setting: "fp32" has 4, bf16 and fp16 have 2. */
uint64_t plan_dtype_bytes(const struct settings *settings, const char *key);

/** plan_query.c and plan_report.c: functions of the table. */
int32_t plan_info(const hsdp_plan *plan, struct hsdp_plan_info *ret_info,
                  struct hsdp_error *reterr);
int32_t plan_mesh(const hsdp_plan *plan, const hsdp_mesh **ret_mesh, struct hsdp_error *reterr);
int32_t plan_setting(const hsdp_plan *plan, const char *key, const char **ret_value,
                     const char **ret_source, struct hsdp_error *reterr);
int32_t plan_class_setting(const hsdp_plan *plan, uint32_t class_index, const char *key,
                           const char **ret_value, const char **ret_source,
                           struct hsdp_error *reterr);
int32_t plan_class_info(const hsdp_plan *plan, uint32_t class_index,
                        struct hsdp_class_info *ret_info, struct hsdp_error *reterr);
int32_t plan_unit_info(const hsdp_plan *plan, uint32_t unit, struct hsdp_unit_info *ret_info,
                       struct hsdp_error *reterr);
int32_t plan_buffer_info(const hsdp_plan *plan, uint32_t unit, uint32_t buffer,
                         struct hsdp_buffer_info *ret_info, struct hsdp_error *reterr);
int32_t plan_param_info(const hsdp_plan *plan, uint32_t param, struct hsdp_param_info *ret_info,
                        struct hsdp_error *reterr);
int32_t plan_param_find(const hsdp_plan *plan, const char *name, uint32_t *ret_param,
                        struct hsdp_error *reterr);
int32_t plan_segments(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                      struct hsdp_segment *ret_segments, uint64_t segment_bytes,
                      uint64_t max_segments, uint64_t *ret_n_segments, struct hsdp_error *reterr);
int32_t plan_writer(const hsdp_plan *plan, uint32_t unit, int32_t shard, uint32_t rank,
                    uint32_t *ret_writer_rank, struct hsdp_error *reterr);
int32_t plan_report(const hsdp_plan *plan, char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                    struct hsdp_error *reterr);

#endif /* REFERENCE_PLAN_H */
