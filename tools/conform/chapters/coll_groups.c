/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: who is in a group, how it starts, and what is refused. */

#include "collectives.h"

#define MAX_RANKS 4u

static const struct coll_dtype *const fp32 = &coll_dtypes[0];

static hsdp_group *group_ask(struct host *host, const char *selector)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    hsdp_group *group = NULL;

    spec.selector = selector;
    host_must(host, host->api->group->create(host->job, host->mesh, &spec, &group, &host->err));
    return group;
}

/* An all_reduce of one number in place. */
static struct hsdp_coll_spec sum_spec(struct coll_vector *vector, float *value)
{
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;

    coll_vector(vector, value, 1, fp32);
    spec.kind = HSDP_COLL_ALL_REDUCE;
    spec.input = spec.output = &vector->tensor;
    return spec;
}

static double group_sum(struct host *host, hsdp_group *group, double own)
{
    float value = (float)own;
    struct coll_vector vector;
    struct hsdp_coll_spec spec = sum_spec(&vector, &value);
    uint64_t ticket = 0;

    host_must(host, host->api->group->start(group, device_specs(&spec, sizeof(spec), 1),
                                            sizeof(spec), 1, NULL, &ticket, &host->err));
    host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
    device_land();
    return (double)value;
}

static struct hsdp_group_info info_of(struct host *host, hsdp_group *group)
{
    struct hsdp_group_info info = HSDP_GROUP_INFO_INIT;

    host_must(host, host->api->group->info(group, &info, &host->err));
    return info;
}

/* ------------------------------------------------------------------------------------- members */

void coll_one_rank(struct conform *conform)
{
    static const char *const selectors[] = {"cp", "ep", "pp", "cp,ep", ""};
    hsdp_group *groups[NUMBERS_N(selectors)];
    struct host host;

    numbers_join(conform, &host, "pp=1,dp=2,cp=1,ep=1", "");
    for (uint32_t i = 0; i < NUMBERS_N(selectors); i++) {
        groups[i] = group_ask(&host, selectors[i]);
    }
    host_must(&host, host.api->group->connect(host.job, &host.err));
    for (uint32_t i = 0; i < NUMBERS_N(selectors); i++) {
        const char *name = selectors[i][0] == '\0' ? "self" : selectors[i];
        uint32_t member = UINT32_MAX;
        struct hsdp_group_info info;

        numbers_note("group \"%s\"", selectors[i]);
        host_must(&host, host.api->group->members(groups[i], &member, 1, &host.err));
        numbers_expect(member == conform->rank, "its member is %u, not %u", member, conform->rank);
        host_expect_number(&host, "sum", 0, group_sum(&host, groups[i], 5.0), 5.0);
        info = info_of(&host, groups[i]);
        numbers_expect(info.n_ranks == 1 && info.index == 0, "%u ranks, index %u", info.n_ranks,
                       info.index);
        numbers_expect(info.n_bytes_sent == 0 && info.n_bytes_received == 0, "it causes traffic");
        numbers_expect(strcmp(info.name, name) == 0, "its name is \"%s\"", info.name);
        host.api->group->destroy(groups[i]);
    }
    host_close(&host);
}

/* Each rank adds up its number over several groups of one mesh, asked for in one order. */
void coll_derived(struct conform *conform)
{
    static const char *const selectors[] = {"dp", "ep", "dp,ep", "dp[0,-1]"};
    hsdp_group *groups[NUMBERS_N(selectors)];
    struct host host;

    numbers_join(conform, &host, "dp=2,ep=2", "");
    for (uint32_t i = 0; i < NUMBERS_N(selectors); i++) {
        groups[i] = group_ask(&host, selectors[i]);
    }
    host_must(&host, host.api->group->connect(host.job, &host.err));
    for (uint32_t i = 0; i < NUMBERS_N(selectors); i++) {
        double expected = i == 1   ? 4.0 * (host.rank / 2) + 1.0
                          : i == 2 ? 6.0
                                   : 2.0 * (host.rank % 2) + 2.0;

        numbers_note("group \"%s\"", selectors[i]);
        host_expect_number(&host, "sum", 0, group_sum(&host, groups[i], host.rank), expected);
    }
    for (uint32_t i = 0; i < NUMBERS_N(selectors); i++) {
        host.api->group->destroy(groups[i]);
    }
    host_close(&host);
}

void coll_members(struct conform *conform)
{
    static const char *const selectors[] = {"dp", "ep", "dp,ep", "ep,dp"};
    struct host host;

    numbers_join(conform, &host, "dp=2,ep=2", "");
    for (uint32_t i = 0; i < NUMBERS_N(selectors); i++) {
        hsdp_group *group = group_ask(&host, selectors[i]);
        uint32_t members[MAX_RANKS], expected[MAX_RANKS];
        struct hsdp_group_info info = info_of(&host, group);
        uint64_t n_expected = 0;

        numbers_note("group \"%s\"", selectors[i]);
        host_must(&host, host.api->mesh->members(host.mesh, selectors[i], host.rank, expected,
                                                 MAX_RANKS, &n_expected, &host.err));
        numbers_expect(info.n_ranks == n_expected, "it has %u ranks", info.n_ranks);
        host_must(&host, host.api->group->members(group, members, MAX_RANKS, &host.err));
        for (uint32_t m = 0; m < info.n_ranks; m++) {
            numbers_expect(members[m] == expected[m], "member %u is rank %u, of the mesh %u", m,
                           members[m], expected[m]);
        }
        numbers_expect(members[info.index] == host.rank, "index %u is not this rank", info.index);
        host.api->group->destroy(group);
    }
    host_must(&host, host.api->group->connect(host.job, &host.err));
    host_close(&host);
}

void coll_not_member(struct conform *conform)
{
    struct hsdp_group_spec spec = HSDP_GROUP_SPEC_INIT;
    hsdp_group *group = NULL;
    struct host host;

    numbers_join(conform, &host, "dp=4", "");
    spec.selector = "dp[0,-1]";
    if (host.rank == 1 || host.rank == 2) {
        numbers_refused(&host,
                        host.api->group->create(host.job, host.mesh, &spec, &group, &host.err),
                        HSDP_ERR_NOT_MEMBER);
        numbers_expect(group == NULL, "a handle was made");
    } else {
        group = group_ask(&host, spec.selector);
    }
    host_must(&host, host.api->group->connect(host.job, &host.err));
    if (group != NULL) {
        host_expect_number(&host, "sum", 0, group_sum(&host, group, host.rank), 3.0);
        numbers_expect(info_of(&host, group).is_connected == 1, "it is not connected");
    }
    host.api->group->destroy(group);
    spec.selector = "foo";
    numbers_refused(&host, host.api->group->create(host.job, host.mesh, &spec, &group, &host.err),
                    HSDP_ERR_INVALID);
    host_close(&host);
}

/* ----------------------------------------------------------------------------------- starting */

/* A sum, a gather, and a ring, in one call. */
void coll_several(struct conform *conform)
{
    float sum, input, gathered[MAX_RANKS] = {0}, received = 0.0f;
    struct hsdp_coll_spec specs[4];
    struct coll_vector vectors[4];
    struct coll coll;

    coll_open(conform, &coll, "dp=4", "dp");
    sum = input = (float)coll.index;
    specs[0] = sum_spec(&vectors[0], &sum);
    for (int i = 1; i < 4; i++) {
        specs[i] = (struct hsdp_coll_spec)HSDP_COLL_SPEC_INIT;
        specs[i].input = coll_vector(&vectors[1], &input, 1, fp32);
    }
    specs[1].kind = HSDP_COLL_ALL_GATHER;
    specs[1].output = coll_vector(&vectors[2], gathered, 4, fp32);
    specs[2].kind = HSDP_COLL_SEND;
    specs[2].peer = (coll.index + 3) % 4;
    specs[3].kind = HSDP_COLL_RECV;
    specs[3].input = NULL;
    specs[3].output = coll_vector(&vectors[3], &received, 1, fp32);
    specs[3].peer = (coll.index + 1) % 4;
    numbers_expect(coll_run(&coll, specs, 4), "collectives of fp32 are unsupported");
    host_expect_number(&coll.host, "sum", 0, (double)sum, 6.0);
    host_expect_number(&coll.host, "received", 0, (double)received, (coll.index + 1) % 4);
    for (uint32_t i = 0; i < 4; i++) {
        host_expect_number(&coll.host, "gathered", i, (double)gathered[i], i);
    }
    coll_close(&coll);
}

/* A spec of a host that is newer, zero where this version knows nothing. */
struct long_spec {
    struct hsdp_coll_spec spec;
    uint64_t more[3];
};

void coll_strides(struct conform *conform)
{
    int64_t strides[] = {1}, wide[] = {2};
    float memory[6] = {9.0f, 1.0f, 2.0f, 9.0f, 9.0f, 9.0f};
    struct long_spec specs[2] = {{.spec = HSDP_COLL_SPEC_INIT}, {.spec = HSDP_COLL_SPEC_INIT}};
    struct coll_vector vectors[2];
    struct host *host;
    struct coll coll;
    uint64_t ticket = 0;

    coll_open(conform, &coll, "dp=2", "dp");
    host = &coll.host;
    for (uint32_t i = 0; i < 2; i++) {
        struct hsdp_tensor *tensor = coll_vector(&vectors[i], memory, 1, fp32);

        tensor->byte_offset = (i + 1) * sizeof(float);
        tensor->strides = strides;
        specs[i].spec.struct_size = sizeof(specs[i]);
        specs[i].spec.kind = HSDP_COLL_ALL_REDUCE;
        specs[i].spec.input = specs[i].spec.output = tensor;
    }
    host_must(host,
              host->api->group->start(coll.group, device_specs(&specs[0].spec, sizeof(specs[0]), 2),
                                      sizeof(specs[0]), 2, NULL, &ticket, &host->err));
    host_must(host, host->api->job->ticket_wait(host->job, ticket, UINT64_MAX, &host->err));
    device_land();
    for (uint32_t i = 0; i < 6; i++) {
        host_expect_number(host, "memory", i, (double)memory[i], i == 1 ? 2.0 : i == 2 ? 4.0 : 9.0);
    }
    specs[0].more[2] = 1;
    numbers_refused(host,
                    host->api->group->start(coll.group,
                                            device_specs(&specs[0].spec, sizeof(specs[0]), 2),
                                            sizeof(specs[0]), 2, NULL, &ticket, &host->err),
                    HSDP_ERR_UNSUPPORTED);
    specs[0].more[2] = 0;
    vectors[0].n_elems = 2;
    vectors[0].tensor.strides = wide;
    numbers_refused(host,
                    host->api->group->start(coll.group,
                                            device_specs(&specs[0].spec, sizeof(specs[0]), 1),
                                            sizeof(specs[0]), 1, NULL, &ticket, &host->err),
                    HSDP_ERR_UNSUPPORTED);
    coll_close(&coll);
}

void coll_tickets(struct conform *conform)
{
    float values[3];
    struct coll_vector vectors[3];
    uint64_t tickets[3];
    struct host *host;
    struct coll coll;

    coll_open(conform, &coll, "dp=2", "dp");
    host = &coll.host;
    for (uint32_t i = 0; i < 3; i++) {
        struct hsdp_coll_spec spec = sum_spec(&vectors[i], &values[i]);

        values[i] = (float)(coll.index + i);
        host_must(host, host->api->group->start(coll.group, device_specs(&spec, sizeof(spec), 1),
                                                sizeof(spec), 1, NULL, i == 1 ? NULL : &tickets[i],
                                                &host->err));
    }
    host_must(host, host->api->job->ticket_wait(host->job, tickets[2], UINT64_MAX, &host->err));
    host_must(host, host->api->job->ticket_wait(host->job, tickets[0], UINT64_MAX, &host->err));
    host_must(host, host->api->job->ticket_wait(host->job, tickets[0], 0, &host->err)); /* again */
    host_must(host, host->api->job->ticket_wait(host->job, 0, 0, &host->err));
    numbers_refused(host, host->api->job->ticket_wait(host->job, UINT64_MAX - 1, 0, &host->err),
                    HSDP_ERR_INVALID);
    device_land();
    host_expect_number(host, "first sum", 0, (double)values[0], 1.0);
    host_expect_number(host, "third sum", 0, (double)values[2], 5.0);
    coll_close(&coll); /* the farewell waits for what was not waited for */
}

void coll_counted(struct conform *conform)
{
    float memory[64] = {0};
    struct coll_vector vector;
    struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
    struct hsdp_group_info info;
    struct coll coll;

    coll_open(conform, &coll, "dp=2", "dp");
    coll_vector(&vector, memory, 64, fp32);
    spec.kind = coll.index == 0 ? HSDP_COLL_SEND : HSDP_COLL_RECV;
    spec.input = coll.index == 0 ? &vector.tensor : NULL;
    spec.output = coll.index == 0 ? NULL : &vector.tensor;
    spec.peer = 1 - coll.index;
    numbers_expect(coll_run(&coll, &spec, 1), "send and recv of fp32 are unsupported");
    info = info_of(&coll.host, coll.group);
    numbers_expect(info.n_bytes_sent == (coll.index == 0 ? sizeof(memory) : 0) &&
                       info.n_bytes_received == (coll.index == 0 ? 0 : sizeof(memory)),
                   "rank %u has sent %u bytes and received %u, of %u from rank 0 to 1",
                   conform->rank, (unsigned)info.n_bytes_sent, (unsigned)info.n_bytes_received,
                   (unsigned)sizeof(memory));
    coll_close(&coll);
}

/* ------------------------------------------------------------------------------------- refusals */

/* What a group of one rank cannot get wrong; nothing has started, and the group works on. */
void coll_wrong_specs(struct conform *conform)
{
    static const struct {
        int32_t kind;
        uint64_t n_input, n_output;
        uint32_t peer;
        bool has_counts;
    } rows[] = {
        {HSDP_COLL_ALL_GATHER, 2, 3, 0, false}, {HSDP_COLL_REDUCE_SCATTER, 3, 2, 0, false},
        {HSDP_COLL_ALL_TO_ALL, 3, 3, 0, false}, {HSDP_COLL_ALL_TO_ALL, 2, 2, 0, true},
        {HSDP_COLL_BROADCAST, 2, 2, 2, false},  {HSDP_COLL_SEND, 2, 0, 2, false},
    };
    static const uint64_t counts[] = {1, 2};
    float memory[8] = {0};
    struct coll coll;
    struct host *host;

    coll_open(conform, &coll, "dp=2", "dp");
    host = &coll.host;
    for (uint32_t i = 0; i < NUMBERS_N(rows); i++) {
        struct hsdp_coll_spec spec = HSDP_COLL_SPEC_INIT;
        struct coll_vector from, to;

        numbers_note("row %u, kind %d", i, (int)rows[i].kind);
        spec.kind = rows[i].kind;
        spec.peer = rows[i].peer;
        spec.input = coll_vector(&from, memory, rows[i].n_input, fp32);
        spec.output = rows[i].kind == HSDP_COLL_SEND
                          ? NULL
                          : coll_vector(&to, memory + 4, rows[i].n_output, fp32);
        spec.send_elems = spec.recv_elems = rows[i].has_counts ? counts : NULL;
        numbers_refused(host,
                        host->api->group->start(coll.group, device_specs(&spec, sizeof(spec), 1),
                                                sizeof(spec), 1, NULL, NULL, &host->err),
                        HSDP_ERR_INVALID);
    }
    numbers_note("%s", "");
    host_expect_number(host, "sum", 0, group_sum(host, coll.group, 1.0), 2.0);
    coll_close(&coll);
}
