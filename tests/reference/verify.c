/* SPDX-License-Identifier: Apache-2.0 */
/* Checks while running: whether replicas hold the same bits. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

/* FNV-1a over bytes. */
static uint64_t bytes_hash(uint64_t hash, const void *bytes, size_t n_bytes)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < n_bytes; i++) {
        hash = (hash ^ at[i]) * 1099511628211u;
    }
    return hash;
}

#define HASH_BEGIN 14695981039346656037u

/* Ranks that say the same label and holder hold the same values. */
static void entry_write(struct packet *packet, const char *label, const char *what,
                        const char *unit, uint32_t holder, uint64_t hash)
{
    char text[200];

    snprintf(text, sizeof(text), "%.80s of %.100s", what, label);
    packet_put_text(packet, text);
    packet_put_text(packet, unit);
    packet_put_number(packet, holder);
    packet_put_number(packet, hash);
}

/* Masters and states: equal where the shard is. */
static void shards_write(const hsdp_model *model, uint32_t unit, struct packet *packet)
{
    const struct unit *u = &model->units[unit];
    uint64_t hashes[1 + MOST_STATES];
    const struct hsdp_segment *segment;
    uint32_t rank = model->job->launch.rank, writer = rank;
    struct walk walk;
    struct flat flat;

    walk_begin(model, unit, HSDP_SHARD_STEP, rank, &walk);
    for (uint32_t f = 0; f <= model->n_states; f++) {
        hashes[f] = HASH_BEGIN;
    }
    while ((segment = walk_next(&walk)) != NULL) {
        for (uint32_t f = 0; f <= model->n_states; f++) {
            int32_t which = f == 0 ? HSDP_FLAT_MASTER : HSDP_FLAT_STATE + (int32_t)f - 1;

            if (flat_find(model, unit, segment->buffer, which, &flat)) {
                hashes[f] = bytes_hash(
                    hashes[f], flat.base + segment->shard_offset_elems * dtype_bytes(flat.dtype),
                    segment->n_elems * dtype_bytes(flat.dtype));
            }
        }
    }
    reference_plan.writer(model->plan, unit, HSDP_SHARD_STEP, rank, &writer, NULL);
    for (uint32_t f = 0; f <= model->n_states; f++) {
        entry_write(packet, u->name, f == 0 ? "masters" : model->states[f - 1].name, u->name,
                    writer, hashes[f]);
    }
}

/* Whole parameters: equal over all that a class is replicated over, and where they are tied. */
static void params_write(const hsdp_model *model, uint32_t param, struct packet *packet)
{
    const struct param *p = &model->params[param];
    const struct unit *u = &model->units[p->info.unit];
    uint32_t rank = model->job->launch.rank;
    struct hsdp_class_info klass = HSDP_CLASS_INFO_INIT;
    uint32_t holders[MOST_RANKS], replicas[MOST_RANKS];
    uint64_t n = 0, hash;

    reference_plan.class_info(model->plan, u->class_index, &klass, NULL);
    reference_mesh.members(model->mesh, p->info.tied_over, rank, holders, MOST_RANKS, &n, NULL);
    reference_mesh.members(model->mesh, klass.replicated_dims, holders[0], replicas, MOST_RANKS, &n,
                           NULL);
    hash = bytes_hash(HASH_BEGIN,
                      u->buffers[p->info.buffer].params +
                          p->info.offset_elems * dtype_bytes(u->param_dtype),
                      p->info.n_elems * dtype_bytes(u->param_dtype));
    entry_write(packet, p->info.name, "parameter", u->name, replicas[0], hash);
}

bool drift_write(const hsdp_model *model, struct packet *packet)
{
    for (uint32_t u = 0; u < model->n_units; u++) {
        shards_write(model, u, packet);
    }
    for (uint32_t p = 0; p < model->n_params; p++) {
        if (model->params[p].is_storage) {
            params_write(model, p, packet);
        }
    }
    return !packet->is_bad;
}

/* -------------------------------------------------------------------------------------- reading */

struct entry {
    const char *label;
    const char *unit;
    uint64_t holder;
    uint64_t hash;
};

static bool entry_read(struct packet *part, struct entry *ret)
{
    if (part->at >= part->n_bytes) {
        return false;
    }
    ret->label = packet_get_text(part);
    ret->unit = packet_get_text(part);
    ret->holder = packet_get_number(part);
    ret->hash = packet_get_number(part);
    return !part->is_bad;
}

/* What a rank has written, behind its part of the step. */
static struct packet part_of(struct packet answer, uint32_t rank)
{
    struct packet part = packet_get_part(&answer);
    size_t n_bytes;

    for (uint32_t r = 0; r < rank; r++) {
        part = packet_get_part(&answer);
    }
    packet_get_blob(&part, &n_bytes);
    return part;
}

/* The first rank before this one that holds the same thing, and holds other values. */
static bool entry_differs(struct packet answer, const struct entry *entry, uint32_t rank,
                          uint32_t *ret_other)
{
    for (uint32_t r = 0; r < rank; r++) {
        struct packet part = part_of(answer, r);
        struct entry other;

        while (entry_read(&part, &other)) {
            if (other.holder == entry->holder && strcmp(other.label, entry->label) == 0 &&
                other.hash != entry->hash) {
                *ret_other = r;
                return true;
            }
        }
    }
    return false;
}

bool drift_find(const hsdp_model *model, struct packet answer, struct hsdp_error *ret_error)
{
    for (uint32_t r = 1; r < model->job->launch.world_ranks; r++) {
        struct packet part = part_of(answer, r);
        struct entry entry;
        uint32_t other;

        while (entry_read(&part, &entry)) {
            if (!entry_differs(answer, &entry, r, &other)) {
                continue;
            }
            *ret_error = (struct hsdp_error)HSDP_ERROR_INIT;
            ret_error->status = HSDP_ERR_DRIFT;
            snprintf(ret_error->unit, sizeof(ret_error->unit), "%s", entry.unit);
            snprintf(ret_error->message, sizeof(ret_error->message),
                     "step %" PRIu64 ": %s, in unit \"%s\", differs between rank %" PRIu32
                     " and rank %" PRIu32,
                     model->n_steps + 1, entry.label, entry.unit, other, r);
            return true;
        }
    }
    return false;
}
