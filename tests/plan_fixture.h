/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes and plans in a line each, for the suites that need many. */
#ifndef TESTS_PLAN_FIXTURE_H
#define TESTS_PLAN_FIXTURE_H

#include <check.h>
#include <stdint.h>

#include "plan/plan.h"

/* No setting of whoever runs the tests may reach one; every plan made here begins with it. */
void fixture_clear_environment(void);

/* A mesh of "dp=4,cp=2", where a name in capitals is not data and becomes small: "PP=2,dp=4". */
struct hsdp_mesh *fixture_mesh(const char *dims, uint32_t rank);

/* A plan on a mesh made by fixture_mesh, with settings "key=value key=value" ("" = none). */
struct hsdp_plan *fixture_plan(const char *dims, uint32_t rank, const char *settings);

/* The status and error of the same, when it should fail. */
int32_t fixture_plan_refused(const char *dims, const char *settings, struct hsdp_error *reterr);

/* A class with default replication and settings; a unit of class 0; a parameter "[2,3]". */
uint32_t fixture_class(struct hsdp_plan *plan, const char *name, const char *settings);
uint32_t fixture_unit(struct hsdp_plan *plan, const char *name);
uint32_t fixture_param(struct hsdp_plan *plan, uint32_t unit, const char *name, const char *shape);

/* A parameter's spec of a shape text; the sizes live in `shape`, which has room for 8. */
struct hsdp_param_spec fixture_param_spec(uint32_t unit, const char *name, const char *text,
                                          int64_t *shape);

/* A finished plan of one class and one unit "u" with parameters "p0", "p1", ... of n shapes. */
struct hsdp_plan *fixture_finished(const char *dims, uint32_t rank, const char *settings,
                                   const char *const *shapes, uint32_t n_shapes);

void fixture_finish(struct hsdp_plan *plan);

/* The next of a repeatable row of numbers, 0..n-1. */
uint32_t fixture_random(uint64_t *state, uint32_t n);

/* Random dimensions of at most 64 ranks, dp and up to three more; text of fixture_mesh. */
void fixture_random_dims(uint64_t *state, char *ret_text, uint64_t max_bytes);

#endif /* TESTS_PLAN_FIXTURE_H */
