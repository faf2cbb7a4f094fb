/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors: parsing them, and counting off the ranks that they pick. */
#include "plan/selector.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* What a parse is about, for its errors. */
struct parse {
    const struct hsdp_mesh *mesh;
    const char *what;
    const char *text;
    struct hsdp_error *reterr;
};

/* A name stands for its dimension, or for the two halves that it was split into. */
static uint32_t name_dims(const struct hsdp_mesh *mesh, const char *name, uint64_t n_bytes)
{
    char half[HSDP_DIM_NAME_MAX + 16];
    int dim = mesh_dim_find(mesh, name, n_bytes);
    int outer;
    int inner;

    if (dim >= 0) {
        return 1u << dim;
    }
    if (n_bytes == 0 || n_bytes > HSDP_DIM_NAME_MAX) {
        return 0;
    }
    outer = snprintf(half, sizeof(half), "%.*s_replicate", (int)n_bytes, name);
    outer = mesh_dim_find(mesh, half, (uint64_t)outer);
    inner = snprintf(half, sizeof(half), "%.*s_shard", (int)n_bytes, name);
    inner = mesh_dim_find(mesh, half, (uint64_t)inner);
    return outer >= 0 && inner >= 0 ? 1u << outer | 1u << inner : 0;
}

static int32_t grammar_refuse(const struct parse *parse, const char *why)
{
    return error_set(parse->reterr, HSDP_ERR_INVALID,
                     "%s \"%.64s\": %s; wanted is \"dp,cp\" or \"pp[0,-1]\"", parse->what,
                     parse->text, why);
}

static int32_t name_refuse(const struct parse *parse, const char *name, uint64_t n_bytes)
{
    char known[HSDP_MESH_MAX_DIMS * (HSDP_DIM_NAME_MAX + 2)];
    int shown = n_bytes > 40 ? 40 : (int)n_bytes;

    mesh_dims_text(parse->mesh, UINT32_MAX, known, sizeof(known));
    return error_set(parse->reterr, HSDP_ERR_INVALID,
                     "%s \"%.64s\": unknown dimension \"%.*s\"; known: %s", parse->what,
                     parse->text, shown, name, known);
}

static int32_t dims_parse(const struct parse *parse, struct selector *selector)
{
    const char *name = parse->text;

    for (;;) {
        uint64_t n_bytes = strcspn(name, ",[]");
        uint32_t dims = name_dims(parse->mesh, name, n_bytes);

        if (n_bytes == 0) {
            return grammar_refuse(parse, "a name is missing");
        }
        if (dims == 0) {
            return name_refuse(parse, name, n_bytes);
        }
        if ((selector->dims & dims) != 0) {
            return error_set(parse->reterr, HSDP_ERR_INVALID,
                             "%s \"%.64s\": dimension %.*s is named twice", parse->what,
                             parse->text, (int)n_bytes, name);
        }
        selector->dims |= dims;
        name += n_bytes;
        if (*name != ',') {
            return *name == '\0' ? HSDP_OK
                                 : grammar_refuse(parse, "coordinates follow one dimension alone");
        }
        name++;
    }
}

/* Keeps coords ascending and unique: on a dimension of one rank, [0,-1] is once the same. */
static int32_t coord_add(const struct parse *parse, struct selector *selector, uint32_t coord)
{
    uint32_t at = selector->n_coords;

    while (at > 0 && selector->coords[at - 1] >= coord) {
        at--;
        if (selector->coords[at] == coord) {
            return HSDP_OK;
        }
    }
    if (selector->n_coords == SELECTOR_MAX_COORDS) {
        return error_set(parse->reterr, HSDP_ERR_INVALID, "%s \"%.64s\": more than %u coordinates",
                         parse->what, parse->text, SELECTOR_MAX_COORDS);
    }
    memmove(&selector->coords[at + 1], &selector->coords[at],
            (selector->n_coords - at) * sizeof(selector->coords[0]));
    selector->coords[at] = coord;
    selector->n_coords++;
    return HSDP_OK;
}

/* Reads one integer at *text and moves behind it. */
static int32_t coord_parse(const struct parse *parse, const char **text, uint32_t dim,
                           struct selector *selector)
{
    const char *digits = **text == '-' ? *text + 1 : *text;
    uint64_t n_digits = strspn(digits, "0123456789");
    int64_t size = parse->mesh->sizes[dim];
    int64_t coord = 0;

    if (n_digits == 0) {
        return grammar_refuse(parse, "a coordinate is missing");
    }
    for (uint64_t i = 0; i < n_digits; i++) {
        coord = coord * 10 + (digits[i] - '0');
        coord = coord > UINT32_MAX ? UINT32_MAX : coord; /* outside of every dimension */
    }
    if (**text == '-') {
        coord = size - coord;
    }
    if (coord < 0 || coord >= size) {
        return error_set(parse->reterr, HSDP_ERR_INVALID,
                         "%s \"%.64s\": coordinate %.*s is outside of dimension %s, which has "
                         "%" PRId64 " ranks",
                         parse->what, parse->text,
                         n_digits > 20 ? 20 : (int)(digits + n_digits - *text), *text,
                         parse->mesh->names[dim], size);
    }
    *text = digits + n_digits;
    return coord_add(parse, selector, (uint32_t)coord);
}

static int32_t coords_parse(const struct parse *parse, const char *open, struct selector *selector)
{
    int dim = mesh_dim_find(parse->mesh, parse->text, (uint64_t)(open - parse->text));
    const char *at = open + 1;

    if (dim < 0) {
        return name_refuse(parse, parse->text, (uint64_t)(open - parse->text));
    }
    selector->dims = 1u << dim;
    for (;;) {
        int32_t status = coord_parse(parse, &at, (uint32_t)dim, selector);

        if (status != HSDP_OK) {
            return status;
        }
        if (*at == ']') {
            return at[1] == '\0' ? HSDP_OK : grammar_refuse(parse, "text follows the ']'");
        }
        if (*at != ',') {
            return grammar_refuse(parse, "a ',' or ']' is missing");
        }
        at++;
    }
}

int32_t selector_parse(const struct hsdp_mesh *mesh, const char *what, const char *text,
                       struct selector *ret, struct hsdp_error *reterr)
{
    const struct parse parse = {mesh, what, text, reterr};
    struct selector selector = {0};
    const char *open;
    int32_t status = HSDP_OK;

    if (text == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID, "%s: there is no text", what);
    }
    open = text + strcspn(text, ",[]");
    if (*open == '[') {
        status = coords_parse(&parse, open, &selector);
    } else if (text[0] != '\0') {
        status = dims_parse(&parse, &selector);
    }
    if (status == HSDP_OK) {
        *ret = selector;
    }
    return status;
}

int32_t selector_dims(const struct hsdp_mesh *mesh, const char *what, const char *text,
                      uint32_t *ret_dims, struct hsdp_error *reterr)
{
    struct selector selector;
    int32_t status;

    status = selector_parse(mesh, what, text, &selector, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (selector.n_coords != 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s \"%.64s\": coordinates are not allowed here, only whole dimensions",
                         what, text);
    }
    *ret_dims = selector.dims;
    return HSDP_OK;
}

void selector_write(const struct hsdp_mesh *mesh, const struct selector *selector,
                    struct text *text)
{
    char dims[HSDP_MESH_MAX_DIMS * (HSDP_DIM_NAME_MAX + 1)];

    mesh_dims_text(mesh, selector->dims, dims, sizeof(dims));
    text_add(text, "%s", dims);
    for (uint32_t i = 0; i < selector->n_coords; i++) {
        text_add(text, "%s%" PRIu32, i == 0 ? "[" : ",", selector->coords[i]);
    }
    text_add(text, "%s", selector->n_coords == 0 ? "" : "]");
}

/* ---------------------------------------------------------------------------------- ranks */

static uint32_t coords_dim(const struct selector *selector)
{
    return (uint32_t)__builtin_ctz(selector->dims); /* coordinates go with exactly one */
}

uint32_t selector_n_ranks(const struct hsdp_mesh *mesh, const struct selector *selector)
{
    return selector->n_coords != 0 ? selector->n_coords : mesh_span(mesh, selector->dims);
}

uint32_t selector_rank(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank,
                       uint32_t index)
{
    assert(index < selector_n_ranks(mesh, selector));
    if (selector->n_coords != 0) {
        index = selector->coords[index];
    }
    return mesh_peer(mesh, selector->dims, rank, index);
}

int64_t selector_index(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank)
{
    uint32_t coord;

    if (selector->n_coords == 0) {
        return mesh_index(mesh, selector->dims, rank);
    }
    coord = mesh_coord(mesh, rank, coords_dim(selector));
    for (uint32_t i = 0; i < selector->n_coords; i++) {
        if (selector->coords[i] == coord) {
            return i;
        }
    }
    return -1;
}
