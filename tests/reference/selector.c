/* SPDX-License-Identifier: Apache-2.0 */
/* Selectors: reading them, and listing the ranks that they pick. The grammar is in hsdp/mesh.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "mesh.h"

/* What is being read. */
struct reading {
    const struct hsdp_mesh *mesh;
    const char *what;
    const char *text;
};

static int32_t text_refuse(const struct call *call, const struct reading *reading, const char *why)
{
    return error_raise(call, HSDP_ERR_INVALID,
                       "%s \"%.64s\": %s; it is like \"dp,cp\" or \"pp[0,-1]\"", reading->what,
                       reading->text, why);
}

/* The dimension of a name; of "x", where it was split, x_replicate and x_shard. */
static uint32_t name_dims(const struct hsdp_mesh *mesh, const char *name, size_t n)
{
    char half[HSDP_DIM_NAME_MAX + 16];
    int d = mesh_find(mesh, name, n);
    int outer;
    int inner;

    if (d >= 0) {
        return 1u << d;
    }
    if (n == 0 || n > HSDP_DIM_NAME_MAX) {
        return 0;
    }
    snprintf(half, sizeof(half), "%.*s_replicate", (int)n, name);
    outer = mesh_find(mesh, half, strlen(half));
    snprintf(half, sizeof(half), "%.*s_shard", (int)n, name);
    inner = mesh_find(mesh, half, strlen(half));
    return outer >= 0 && inner >= 0 ? 1u << outer | 1u << inner : 0;
}

static int32_t name_refuse(const struct call *call, const struct reading *reading, const char *name,
                           size_t n)
{
    char known[DIMS_TEXT_BYTES];

    mesh_dims_write(reading->mesh, ALL_DIMS, known);
    return error_raise(call, HSDP_ERR_INVALID,
                       "%s \"%.64s\": there is no dimension \"%.*s\"; there are: %s", reading->what,
                       reading->text, n > 40 ? 40 : (int)n, name, known);
}

static int32_t dims_read(const struct call *call, const struct reading *reading, uint32_t *ret_dims)
{
    const char *name = reading->text;

    for (;;) {
        size_t n = strcspn(name, ",[]");
        uint32_t dims = name_dims(reading->mesh, name, n);

        if (n == 0) {
            return text_refuse(call, reading, "a name is missing");
        }
        if (dims == 0) {
            return name_refuse(call, reading, name, n);
        }
        if ((*ret_dims & dims) != 0) {
            return text_refuse(call, reading, "a dimension is named twice");
        }
        *ret_dims |= dims;
        name += n;
        if (*name == '\0') {
            return HSDP_OK;
        }
        if (*name != ',') {
            return text_refuse(call, reading, "coordinates belong to one dimension alone");
        }
        name++;
    }
}

/* ---------------------------------------------------------------------------------- coordinates */

/* Reads one coordinate and moves behind it; false if there is none. Too large is UINT32_MAX. */
static bool coord_read(const char **text, uint32_t size, int64_t *ret_coord)
{
    bool is_from_end = **text == '-';
    const char *digits = is_from_end ? *text + 1 : *text;
    size_t n_digits = strspn(digits, "0123456789");
    int64_t number = 0;

    for (size_t i = 0; i < n_digits; i++) {
        number = number * 10 + (digits[i] - '0');
        number = number > UINT32_MAX ? UINT32_MAX : number;
    }
    *text = digits + n_digits;
    *ret_coord = is_from_end ? (int64_t)size - number : number;
    return n_digits > 0;
}

/* Puts a coordinate where it belongs. */
static int32_t coord_add(const struct call *call, const struct reading *reading, uint32_t coord,
                         struct selector *selector)
{
    uint32_t at = 0;

    while (at < selector->n_coords && selector->coords[at] < coord) {
        at++;
    }
    if (at < selector->n_coords && selector->coords[at] == coord) {
        return HSDP_OK;
    }
    if (selector->n_coords == MOST_COORDS) {
        return text_refuse(call, reading, "there are more than 64 coordinates");
    }
    for (uint32_t i = selector->n_coords; i > at; i--) {
        selector->coords[i] = selector->coords[i - 1];
    }
    selector->coords[at] = coord;
    selector->n_coords++;
    return HSDP_OK;
}

/* Reads what stands behind the '['. */
static int32_t coords_read(const struct call *call, const struct reading *reading, uint32_t d,
                           const char *text, struct selector *selector)
{
    uint32_t size = reading->mesh->sizes[d];

    for (;;) {
        int64_t coord;
        int32_t status;

        if (!coord_read(&text, size, &coord)) {
            return text_refuse(call, reading, "a coordinate is missing");
        }
        if (coord < 0 || coord >= size) {
            return error_raise(call, HSDP_ERR_INVALID,
                               "%s \"%.64s\": a coordinate is outside of dimension %s, which has "
                               "%" PRIu32 " ranks",
                               reading->what, reading->text, reading->mesh->names[d], size);
        }
        status = coord_add(call, reading, (uint32_t)coord, selector);
        if (status != HSDP_OK || strcmp(text, "]") == 0) {
            return status;
        }
        if (*text != ',') {
            return text_refuse(call, reading, "a ',' is missing, or the ']' at the end");
        }
        text++;
    }
}

/* -------------------------------------------------------------------------------------- reading */

int32_t selector_read(const struct call *call, const struct hsdp_mesh *mesh, const char *what,
                      const char *text, struct selector *ret)
{
    const struct reading reading = {mesh, what, text};
    size_t n = strcspn(text, ",[]");
    struct selector selector = {.dims = 0};
    int32_t status = HSDP_OK;

    if (text[n] == '[') {
        int d = mesh_find(mesh, text, n);

        if (d < 0) {
            return name_refuse(call, &reading, text, n);
        }
        selector.dims = 1u << d;
        status = coords_read(call, &reading, (uint32_t)d, text + n + 1, &selector);
    } else if (text[0] != '\0') {
        status = dims_read(call, &reading, &selector.dims);
    }
    if (status == HSDP_OK) {
        *ret = selector;
    }
    return status;
}

int32_t selector_read_dims(const struct call *call, const struct hsdp_mesh *mesh, const char *what,
                           const char *text, uint32_t *ret_dims)
{
    const struct reading reading = {mesh, what, text};
    struct selector selector;
    int32_t status = selector_read(call, mesh, what, text, &selector);

    if (status == HSDP_OK && selector.n_coords != 0) {
        return text_refuse(call, &reading, "whole dimensions are wanted here");
    }
    if (status == HSDP_OK) {
        *ret_dims = selector.dims;
    }
    return status;
}

bool selector_picks(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank)
{
    uint32_t d = 0;

    if (selector->n_coords == 0) {
        return true;
    }
    while (!dims_have(selector->dims, d)) { /* coordinates belong to exactly one */
        d++;
    }
    for (uint32_t i = 0; i < selector->n_coords; i++) {
        if (selector->coords[i] == mesh_coord(mesh, rank, d)) {
            return true;
        }
    }
    return false;
}

uint64_t selector_list(const struct hsdp_mesh *mesh, const struct selector *selector, uint32_t rank,
                       uint32_t *ret_ranks, uint64_t max_ranks)
{
    uint64_t n_ranks = 0;

    for (uint32_t i = 0; i < mesh_count(mesh, selector->dims); i++) {
        uint32_t peer = mesh_peer(mesh, selector->dims, rank, i);

        if (!selector_picks(mesh, selector, peer)) {
            continue;
        }
        if (n_ranks < max_ranks) {
            ret_ranks[n_ranks] = peer;
        }
        n_ranks++;
    }
    return n_ranks;
}
