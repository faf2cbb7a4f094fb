/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: the host's own collectives; see hsdp/group.h. */
#ifndef COMM_GROUP_H
#define COMM_GROUP_H

#include "comm/job.h"
#include "hsdp/group.h"
#include "plan/mesh.h"

struct hsdp_group;

int32_t group_create(struct hsdp_job *job, const struct hsdp_mesh *mesh,
                     const struct hsdp_group_spec *spec, struct hsdp_group **ret_group,
                     struct hsdp_error *reterr);
int32_t group_connect(struct hsdp_job *job, struct hsdp_error *reterr);
int32_t group_info(const struct hsdp_group *group, struct hsdp_group_info *ret_info,
                   struct hsdp_error *reterr);
int32_t group_members(const struct hsdp_group *group, uint32_t *ret_ranks, uint64_t max_ranks,
                      struct hsdp_error *reterr);
/** specs is an array of full-size structs (the border has taken them in); n_specs >= 1. */
int32_t group_start(struct hsdp_group *group, const struct hsdp_coll_spec *specs, uint64_t n_specs,
                    void *stream, uint64_t *ret_ticket, struct hsdp_error *reterr);
void group_destroy(struct hsdp_group *group);
struct hsdp_job *group_job(const struct hsdp_group *group);

#endif /* COMM_GROUP_H */
