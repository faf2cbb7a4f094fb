/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors: "dp,cp", "pp[0,-1]" and "", as mesh.h has the grammar. */
#include "selector.h"

#include <string.h>

/* One selector that is being read. */
struct reading {
    const struct hsdp_mesh *mesh;
    const char *operation;
    const char *text;
    struct hsdp_error *reterr;
};

static int32_t refuse(const struct reading *reading, const char *why)
{
    char known[HSDP_MESH_MAX_DIMS * (HSDP_DIM_NAME_MAX + 2)] = "";

    for (uint32_t d = 0; d < reading->mesh->n_dims; d++) {
        strcat(known, d == 0 ? "" : ", ");
        strcat(known, reading->mesh->names[d]);
    }
    return skeleton_fail(reading->reterr, reading->operation, HSDP_ERR_INVALID,
                         "%s: \"%.64s\": %s; dimensions are %s", reading->operation, reading->text,
                         why, known);
}

/* The dimension of a name that may have a suffix: "dp" and "_shard". */
static uint32_t dim_bit(const struct hsdp_mesh *mesh, const char *name, size_t n_bytes,
                        const char *suffix)
{
    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        if (strlen(mesh->names[d]) >= n_bytes && memcmp(mesh->names[d], name, n_bytes) == 0 &&
            strcmp(mesh->names[d] + n_bytes, suffix) == 0) {
            return 1u << d;
        }
    }
    return 0;
}

/* A name stands for its dimension, or for the two halves of it. */
static uint32_t dims_of(const struct hsdp_mesh *mesh, const char *name, size_t n_bytes)
{
    uint32_t whole = dim_bit(mesh, name, n_bytes, "");
    uint32_t outer = dim_bit(mesh, name, n_bytes, "_replicate");
    uint32_t inner = dim_bit(mesh, name, n_bytes, "_shard");

    return whole != 0 || n_bytes == 0 || outer == 0 || inner == 0 ? whole : outer | inner;
}

/* "dp,cp" */
static int32_t dims_read(const struct reading *reading, struct selector *selector)
{
    const char *name = reading->text;

    for (;;) {
        size_t n_bytes = strcspn(name, ",[]");
        uint32_t dims = dims_of(reading->mesh, name, n_bytes);

        if (dims == 0 || (selector->dims & dims) != 0) {
            return refuse(reading, dims == 0 ? "a name is unknown or missing" : "a name twice");
        }
        selector->dims |= dims;
        name += n_bytes;
        if (*name == '\0') {
            return HSDP_OK;
        }
        if (*name != ',') {
            return refuse(reading, "coordinates follow one dimension alone");
        }
        name++;
    }
}

/* Keeps coordinates ascending, each once. */
static int32_t coord_add(const struct reading *reading, struct selector *selector, uint32_t coord)
{
    uint32_t at = 0;

    while (at < selector->n_coords && selector->coords[at] < coord) {
        at++;
    }
    if (at < selector->n_coords && selector->coords[at] == coord) {
        return HSDP_OK;
    }
    if (selector->n_coords == MAX_COORDS) {
        return refuse(reading, "too many coordinates");
    }
    memmove(&selector->coords[at + 1], &selector->coords[at],
            (selector->n_coords - at) * sizeof(selector->coords[0]));
    selector->coords[at] = coord;
    selector->n_coords++;
    return HSDP_OK;
}

/* One integer of "pp[0,-1]" at *text, which moves behind it. No locale has a say in it. */
static int32_t coord_read(const struct reading *reading, const char **text, int64_t size,
                          struct selector *selector)
{
    int is_negative = **text == '-';
    const char *digit = *text + is_negative;
    const char *first = digit;
    int64_t coord = 0;

    for (; *digit >= '0' && *digit <= '9'; digit++) {
        coord = coord * 10 + (*digit - '0');
        coord = coord > UINT32_MAX ? UINT32_MAX : coord; /* outside of every dimension */
    }
    if (digit == first) {
        return refuse(reading, "a coordinate is missing");
    }
    coord = is_negative ? size - coord : coord;
    if (coord < 0 || coord >= size) {
        return refuse(reading, "a coordinate is outside of its dimension");
    }
    *text = digit;
    return coord_add(reading, selector, (uint32_t)coord);
}

/* "pp[0,-1]", whose bracket is at `open` */
static int32_t coords_read(const struct reading *reading, const char *open,
                           struct selector *selector)
{
    const struct hsdp_mesh *mesh = reading->mesh;
    uint32_t dim = 0;

    selector->dims = dim_bit(mesh, reading->text, (size_t)(open - reading->text), "");
    if (selector->dims == 0) {
        return refuse(reading, "a name is unknown or missing");
    }
    while ((selector->dims >> dim & 1u) == 0) {
        dim++;
    }
    for (const char *at = open + 1;; at++) {
        int32_t status = coord_read(reading, &at, mesh->sizes[dim], selector);

        if (status != HSDP_OK) {
            return status;
        }
        if (strcmp(at, "]") == 0) {
            return HSDP_OK;
        }
        if (*at != ',') {
            return refuse(reading, "wanted is \"dp,cp\" or \"pp[0,-1]\"");
        }
    }
}

int32_t selector_read(const struct hsdp_mesh *mesh, const char *operation, const char *text,
                      struct selector *ret_selector, struct hsdp_error *reterr)
{
    const struct reading reading = {mesh, operation, text, reterr};
    struct selector selector = {0};
    const char *open;
    int32_t status = HSDP_OK;

    if (text == NULL) {
        return skeleton_fail(reterr, operation, HSDP_ERR_INVALID, "%s: selector is NULL",
                             operation);
    }
    open = text + strcspn(text, ",[]");
    if (*open == '[') {
        status = coords_read(&reading, open, &selector);
    } else if (*text != '\0') {
        status = dims_read(&reading, &selector);
    }
    if (status == HSDP_OK) {
        *ret_selector = selector;
    }
    return status;
}

/* ---------------------------------------------------------------------------------------- ranks */

static uint32_t coord_of(const struct hsdp_mesh *mesh, uint32_t rank, uint32_t dim)
{
    return rank / mesh->strides[dim] % mesh->sizes[dim];
}

uint32_t selector_n_ranks(const struct hsdp_mesh *mesh, const struct selector *selector)
{
    uint32_t n_ranks = 1;

    for (uint32_t d = 0; d < mesh->n_dims; d++) {
        n_ranks *= (selector->dims >> d & 1u) != 0 ? mesh->sizes[d] : 1;
    }
    return selector->n_coords != 0 ? selector->n_coords : n_ranks;
}

int selector_has(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank)
{
    for (uint32_t i = 0; i < selector->n_coords; i++) {
        if (selector_rank(mesh, selector, rank, i) == rank) {
            return 1;
        }
    }
    return selector->n_coords == 0;
}

uint32_t selector_rank(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank,
                       uint32_t index)
{
    if (selector->n_coords != 0) {
        index = selector->coords[index];
    }
    for (uint32_t d = mesh->n_dims; d-- > 0;) {
        if ((selector->dims >> d & 1u) != 0) {
            rank -= coord_of(mesh, rank, d) * mesh->strides[d];
            rank += index % mesh->sizes[d] * mesh->strides[d];
            index /= mesh->sizes[d];
        }
    }
    return rank;
}
