/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that cross the border: the rules of "Versions" in hsdp/abi.h. */
#ifndef REFERENCE_INTAKE_H
#define REFERENCE_INTAKE_H

#include "error.h"

/* A size beyond is garbage: no header will ever have such a struct. */
#define MOST_STRUCT_BYTES 65536u

/*
 * One kind of struct. first_bytes is a number, not a sizeof: when fields are appended to the public
 * header, known_bytes grows with it, and the size of ABI 1.0 stays.
 *
 *     static const struct intake spec_intake = {"spec", 48, sizeof(struct hsdp_mesh_spec)};
 */
struct intake {
    const char *argument; /* for the sentence of an error */
    size_t first_bytes;   /* of ABI 1.0 */
    size_t known_bytes;   /* of the headers that this plugin was compiled with */
};

/** Checks that the host's struct is there and at least as long as in ABI 1.0. */
int32_t intake_check(const struct call *call, const struct intake *intake, const void *theirs);

/**
 * Copies the host's struct to one of known_bytes. What an older host does not have is zero.
 *
 * Errors: those of intake_check; HSDP_ERR_UNSUPPORTED where a newer host sets what is not known.
 */
int32_t intake_take(const struct call *call, const struct intake *intake, const void *theirs,
                    void *ret_ours);

/** Asks for zero in a reserved field, which a newer host may have given a meaning. */
int32_t intake_reserved(const struct call *call, const struct intake *intake, uint32_t reserved);

/**
 * Copies a result to the host's struct, which intake_check has accepted: as far as it reaches, and
 * zeros behind what is known.
 */
void intake_give(const struct intake *intake, const void *ours, void *ret_theirs);

#endif /* REFERENCE_INTAKE_H */
