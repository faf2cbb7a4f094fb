/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: what each launcher's variables mean, on one host and on several; what is refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/launch.h"
#include "comm/launch_internal.h"
#include "ranks.h"
#include "suite.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define VARIABLES_MAX 12

/* Sets "KEY=VALUE" texts; all other variables of launchers are removed. */
static void environment_set(const char *const variables[VARIABLES_MAX])
{
    ranks_environment_clear();
    for (int i = 0; i < VARIABLES_MAX && variables[i] != NULL; i++) {
        char name[64];
        const char *equals = strchr(variables[i], '=');

        snprintf(name, sizeof(name), "%.*s", (int)(equals - variables[i]), variables[i]);
        setenv(name, equals + 1, 1);
    }
}

static int32_t read_all(struct launch *ret, uint16_t rendezvous_port, struct hsdp_error *err)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    int32_t status = launch_read(&spec, ret, err);

    return status == HSDP_OK ? launch_place_read(ret, false, rendezvous_port, err) : status;
}

/* ------------------------------------------------------------------- what is understood */

struct row {
    const char *variables[VARIABLES_MAX];
    uint32_t rank, world_ranks, local_rank, local_ranks, n_hosts;
    const char *node_key;
    const char *host;
    uint32_t first_port, n_ports;
};

#define TORCH4                                                                                     \
    "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1",                \
        "GROUP_WORLD_SIZE=2", "MASTER_ADDR=node0"
#define SLURM4                                                                                     \
    "SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1", "SLURM_STEP_ID=2", "SLURM_JOB_ID=100",  \
        "SLURM_NODEID=1"
#define OMPI4                                                                                      \
    "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=1",            \
        "OMPI_COMM_WORLD_LOCAL_SIZE=4"
#define AT_NODE0 "MASTER_ADDR=node0", "MASTER_PORT=29500"

/* 20000 + 17 * ((100 + 31 * 2) mod 700) */
#define SLURM_PORT 22754

static const struct row rows[] = {
    /* nothing at all */
    {{NULL}, 0, 1, 0, 1, 0, "", "", 0, 0},
    /* torchrun, hsdp-run: the port and 16 more; not the agent's own; as far as ports go */
    {{TORCH4, "MASTER_PORT=29500"}, 5, 8, 1, 4, 2, "1", "node0", 29500, 17},
    {{TORCH4, "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=False"},
     5,
     8,
     1,
     4,
     2,
     "1",
     "node0",
     29500,
     17},
    {{TORCH4, "MASTER_PORT=29500", "TORCHELASTIC_USE_AGENT_STORE=True"},
     5,
     8,
     1,
     4,
     2,
     "1",
     "node0",
     29501,
     16},
    {{TORCH4, "MASTER_PORT=65535"}, 5, 8, 1, 4, 2, "1", "node0", 65535, 1},
    {{TORCH4, "MASTER_PORT=65530", "TORCHELASTIC_USE_AGENT_STORE=True"},
     5,
     8,
     1,
     4,
     2,
     "1",
     "node0",
     65531,
     5},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
      "GROUP_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"},
     1,
     2,
     1,
     2,
     1,
     "",
     "127.0.0.1",
     29500,
     17},
    /* hosts of unequal size: rank 5 of 2 + 3 + 2 */
    {{"RANK=5", "WORLD_SIZE=7", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", AT_NODE0},
     5,
     7,
     0,
     2,
     0,
     "",
     "node0",
     29500,
     17},
    /* ours tells nodes apart whatever the launcher */
    {{TORCH4, "MASTER_PORT=29500", "HSDP_NODE_RANK=0"}, 5, 8, 1, 4, 2, "0", "node0", 29500, 17},
    {{OMPI4, AT_NODE0, "HSDP_NODE_RANK=7"}, 5, 8, 1, 4, 0, "7", "node0", 29500, 17},
    /* mpirun */
    {{OMPI4, AT_NODE0}, 5, 8, 1, 4, 0, "", "node0", 29500, 17},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=1", "PMIX_RANK=1"},
     1,
     2,
     1,
     2,
     0,
     "",
     "",
     0,
     0},
    /* hydra, PALS */
    {{"PMI_RANK=5", "PMI_SIZE=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4", AT_NODE0},
     5,
     8,
     1,
     4,
     0,
     "",
     "node0",
     29500,
     17},
    {{"PMI_RANK=5", "PMI_SIZE=8", "PMI_LOCAL_RANK=1", "PMI_LOCAL_SIZE=4", AT_NODE0},
     5,
     8,
     1,
     4,
     0,
     "",
     "node0",
     29500,
     17},
    {{"PMI_RANK=1", "PMI_SIZE=2"}, 1, 2, 1, 2, 0, "", "", 0, 0},
    /* srun: equal nodes, unequal ones, only a number for each, one task on each; other variables */
    {{SLURM4, "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_TASKS_PER_NODE=4(x2)",
      "SLURM_STEP_NODELIST=node[07-08]"},
     5,
     8,
     1,
     4,
     2,
     "1",
     "node07",
     SLURM_PORT,
     17},
    {{"SLURM_PROCID=4", "SLURM_NTASKS=5", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "SLURM_NODEID=2",
      "SLURM_JOB_ID=699", "SLURM_STEP_TASKS_PER_NODE=2(x2),1", "SLURM_STEP_NODELIST=a,b,c"},
     4,
     5,
     0,
     1,
     3,
     "2",
     "a",
     20000 + 17 * 699,
     17},
    {{SLURM4, "SLURM_STEP_NUM_NODES=2", "SLURM_NTASKS_PER_NODE=4", "SLURM_JOB_NODELIST=x[3,1]"},
     5,
     8,
     1,
     4,
     2,
     "1",
     "x3",
     SLURM_PORT,
     17},
    {{SLURM4, "SLURM_TASKS_PER_NODE=4,4", "MASTER_ADDR=fd00::1", "SLURM_STEP_NODELIST=x[3,1]"},
     5,
     8,
     1,
     4,
     2,
     "1",
     "fd00::1",
     SLURM_PORT,
     17},
    {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "SLURM_NODEID=1",
      "SLURM_JOB_ID=700", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=x[3,1]",
      "MASTER_PORT=4000"},
     1,
     2,
     0,
     1,
     2,
     "1",
     "x3",
     4000,
     17},
    {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "SLURM_STEP_ID=0",
      "SLURM_STEP_NUM_NODES=1"},
     1,
     2,
     1,
     2,
     1,
     "",
     "",
     0,
     0},
    /* mpiexec inside of a step: its own variables; srun's PMI: srun's variables */
    {{SLURM4, "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
     1,
     2,
     1,
     2,
     0,
     "",
     "",
     0,
     0},
    {{SLURM4, "PMI_RANK=5", "PMI_SIZE=8", "SLURM_STEP_TASKS_PER_NODE=4(x2)", "MASTER_ADDR=h"},
     5,
     8,
     1,
     4,
     2,
     "1",
     "h",
     SLURM_PORT,
     17},
};

START_TEST(launch_read_of_each_launcher_is_understood)
{
    const struct row *row = &rows[_i];
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch launch;

    environment_set(row->variables);
    ck_assert_msg(read_all(&launch, 0, &err) == HSDP_OK, "row %d: %s", _i, err.message);
    ck_assert_uint_eq(launch.rank, row->rank);
    ck_assert_uint_eq(launch.world_ranks, row->world_ranks);
    ck_assert_uint_eq(launch.local_rank, row->local_rank);
    ck_assert_uint_eq(launch.local_ranks, row->local_ranks);
    ck_assert_uint_eq(launch.n_hosts, row->n_hosts);
    ck_assert_int_eq(launch.is_leader, row->local_rank == 0);
    ck_assert_int_eq(launch.is_one_host, row->local_ranks == row->world_ranks);
    ck_assert_str_eq(launch.node_key, row->node_key);
    ck_assert_str_eq(launch.place.host, row->host);
    ck_assert_uint_eq(launch.place.n_ports, row->n_ports);
    for (uint32_t i = 0; i < row->n_ports; i++) {
        ck_assert_uint_eq(launch.place.ports[i], row->first_port + i);
    }
}
END_TEST

START_TEST(launch_place_read_of_a_setting_is_the_only_port)
{
    static const char *const variables[VARIABLES_MAX] = {TORCH4, "MASTER_PORT=29500"};
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch launch;

    environment_set(variables);
    ck_assert_int_eq(read_all(&launch, 7000, &err), HSDP_OK);
    ck_assert_uint_eq(launch.place.n_ports, 1);
    ck_assert_uint_eq(launch.place.ports[0], 7000);
    ck_assert(launch.place.is_fixed);
}
END_TEST

START_TEST(launch_place_read_with_a_store_needs_no_environment)
{
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch launch;

    ranks_environment_clear();
    setenv("MASTER_PORT", "none of ours", 1);
    spec.rank = 5;
    spec.world_ranks = 8;
    spec.local_rank = 1;
    spec.local_ranks = 4;
    ck_assert_int_eq(launch_read(&spec, &launch, &err), HSDP_OK);
    ck_assert_int_eq(launch_place_read(&launch, true, 0, &err), HSDP_OK);
    ck_assert_uint_eq(launch.place.n_ports, 0);
    ck_assert_int_eq(launch_place_read(&launch, true, 7000, &err), HSDP_OK);
    ck_assert_uint_eq(launch.place.ports[0], 7000);
    ck_assert(launch.place.is_fixed);
    ck_assert_int_eq(launch_place_read(&launch, false, 0, &err), HSDP_ERR_INVALID);
}
END_TEST

/* Ranks from the host, under a launcher: that one still tells the nodes apart. */
START_TEST(launch_read_of_a_spec_takes_the_node_from_the_launcher)
{
    static const char *const variables[VARIABLES_MAX] = {TORCH4, "MASTER_PORT=29500"};
    struct hsdp_job_spec spec = HSDP_JOB_SPEC_INIT;
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch launch;

    environment_set(variables);
    spec.rank = 2;
    spec.world_ranks = 4;
    spec.local_ranks = 2;
    ck_assert_int_eq(launch_read(&spec, &launch, &err), HSDP_OK);
    ck_assert_uint_eq(launch.rank, 2);
    ck_assert_uint_eq(launch.local_rank, 0);
    ck_assert_str_eq(launch.node_key, "1");
    spec.local_ranks = 0; /* all are here: there are no nodes to tell apart */
    ck_assert_int_eq(launch_read(&spec, &launch, &err), HSDP_OK);
    ck_assert_str_eq(launch.node_key, "");
}
END_TEST

/* ---------------------------------------------------------------------- what is refused */

static const struct {
    const char *variables[VARIABLES_MAX];
    int32_t status;
    const char *parts[2];
} refusals[] = {
    /* numbers that do not fit each other */
    {{"RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", AT_NODE0},
     HSDP_ERR_INVALID,
     {"rank 0 has local rank 1", "has to be local rank 0"}},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", AT_NODE0},
     HSDP_ERR_INVALID,
     {"rank 1 has local rank 0", "all 2 ranks are on this host"}},
    {{"RANK=4", "WORLD_SIZE=8", "LOCAL_RANK=0"},
     HSDP_ERR_INVALID,
     {"LOCAL_RANK is 0 and RANK is 4", "LOCAL_WORLD_SIZE is not set"}},
    {{"RANK=4", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4"},
     HSDP_ERR_INVALID,
     {"4 of 8 ranks", "LOCAL_RANK is not set"}},
    {{"RANK=4", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4", "LOCAL_RANK=4"},
     HSDP_ERR_INVALID,
     {"LOCAL_RANK: \"4\"", "0 to 3"}},
    {{"RANK=4", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=9"},
     HSDP_ERR_INVALID,
     {"LOCAL_WORLD_SIZE: \"9\"", "1 to 8"}},
    {{"RANK=4", "WORLD_SIZE=8", "GROUP_WORLD_SIZE=2"},
     HSDP_ERR_INVALID,
     {"GROUP_WORLD_SIZE says 2 hosts", "LOCAL_WORLD_SIZE is not set"}},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=2"},
     HSDP_ERR_INVALID,
     {"2 of 2 ranks are on this host", "2 hosts"}},
    {{"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=1"},
     HSDP_ERR_INVALID,
     {"2 of 4 ranks are on this host", "1 host"}},
    {{"RANK=2", "WORLD_SIZE=4", "GROUP_WORLD_SIZE=5"},
     HSDP_ERR_INVALID,
     {"GROUP_WORLD_SIZE: \"5\"", "1 to 4"}},
    {{"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=2",
      "GROUP_RANK=2"},
     HSDP_ERR_INVALID,
     {"GROUP_RANK is 2", "2 hosts"}},
    {{"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     HSDP_ERR_INVALID,
     {"2 of 8 ranks", "OMPI_COMM_WORLD_LOCAL_RANK is not set"}},
    {{"PMI_RANK=1", "PMI_SIZE=8", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=0"},
     HSDP_ERR_INVALID,
     {"MPI_LOCALNRANKS: \"0\"", "1 to 8"}},
    /* where rank 0 is, and at which port */
    {{OMPI4}, HSDP_ERR_UNAVAILABLE, {"4 of 8 ranks are on this host", "mpirun -x MASTER_ADDR"}},
    {{"PMI_RANK=5", "PMI_SIZE=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4"},
     HSDP_ERR_UNAVAILABLE,
     {"where rank 0 is: set MASTER_ADDR", "-genv MASTER_ADDR"}},
    {{TORCH4}, HSDP_ERR_UNAVAILABLE, {"at which port ranks meet: set MASTER_PORT", "kv_put"}},
    {{"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_PORT=1"},
     HSDP_ERR_UNAVAILABLE,
     {"where rank 0 is: set MASTER_ADDR", "kv_put"}},
    {{TORCH4, "MASTER_PORT=65535", "TORCHELASTIC_USE_AGENT_STORE=True"},
     HSDP_ERR_UNAVAILABLE,
     {"65535", "HSDP_RENDEZVOUS_PORT"}},
    {{TORCH4, "MASTER_PORT=65536"}, HSDP_ERR_INVALID, {"MASTER_PORT: \"65536\"", "1 to 65535"}},
    {{TORCH4, "MASTER_PORT=1", "TORCHELASTIC_USE_AGENT_STORE=yes"},
     HSDP_ERR_INVALID,
     {"TORCHELASTIC_USE_AGENT_STORE: \"yes\"", "True nor False"}},
    {{"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR="},
     HSDP_ERR_INVALID,
     {"MASTER_ADDR: \"\"", "name or address"}},
    {{"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a host"},
     HSDP_ERR_INVALID,
     {"MASTER_ADDR: \"a host\"", "name or address"}},
    /* srun */
    {{SLURM4, "SLURM_STEP_TASKS_PER_NODE=4(x3)"},
     HSDP_ERR_INVALID,
     {"SLURM_STEP_TASKS_PER_NODE is \"4(x3)\", 12 tasks", "SLURM_NTASKS is 8"}},
    {{SLURM4, "SLURM_STEP_TASKS_PER_NODE=4(x2)", "SLURM_STEP_NUM_NODES=3"},
     HSDP_ERR_INVALID,
     {"\"4(x2)\", 2 nodes", "SLURM_STEP_NUM_NODES is 3"}},
    {{SLURM4, "SLURM_STEP_TASKS_PER_NODE=8"},
     HSDP_ERR_INVALID,
     {"SLURM_NODEID is 1", "\"8\", 1 nodes"}},
    {{"SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_LOCALID=1", "SLURM_STEP_ID=2",
      "SLURM_TASKS_PER_NODE=4(x2)"},
     HSDP_ERR_INVALID,
     {"SLURM_TASKS_PER_NODE is \"4(x2)\", 2 nodes", "SLURM_NODEID is not set"}},
    {{SLURM4, "SLURM_STEP_NUM_NODES=2"},
     HSDP_ERR_INVALID,
     {"8 on 2 nodes", "SLURM_STEP_TASKS_PER_NODE is not set"}},
    {{SLURM4, "SLURM_STEP_NUM_NODES=2", "SLURM_NTASKS_PER_NODE=3"},
     HSDP_ERR_INVALID,
     {"8 on 2 nodes", "3 on each"}},
    {{SLURM4, "SLURM_STEP_NUM_NODES=2", "SLURM_NTASKS_PER_NODE=4"},
     HSDP_ERR_UNAVAILABLE,
     {"where rank 0 is", "MASTER_ADDR"}},
    {{SLURM4, "SLURM_STEP_TASKS_PER_NODE=4,4", "SLURM_STEP_NODELIST=n[3-1]"},
     HSDP_ERR_INVALID,
     {"SLURM_STEP_NODELIST: \"n[3-1]\"", "list of hosts"}},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0", "SLURM_STEP_ID=0", "SLURM_NODEID=1",
      "SLURM_JOB_ID=1", "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=a,b"},
     HSDP_ERR_UNAVAILABLE,
     {"rank 0 is on node 1", "set MASTER_ADDR"}},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_ID=x", "SLURM_JOB_ID=1"},
     HSDP_ERR_INVALID,
     {"SLURM_STEP_ID: \"x\"", "whole number"}},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_STEP_ID=0", "SLURM_JOB_ID=x"},
     HSDP_ERR_INVALID,
     {"SLURM_JOB_ID: \"x\"", "whole number"}},
};

START_TEST(launch_read_of_what_does_not_fit_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch launch;

    environment_set(refusals[_i].variables);
    ck_assert_int_eq(read_all(&launch, 0, &err), refusals[_i].status);
    for (size_t i = 0; i < COUNT(refusals[_i].parts); i++) {
        ck_assert_msg(strstr(err.message, refusals[_i].parts[i]) != NULL, "no '%s' in: %s",
                      refusals[_i].parts[i], err.message);
    }
}
END_TEST

/* Every variable that holds a number, with what is none. */
static const char *const number_keys[][2] = {
    {"GROUP_RANK", "torch"},
    {"GROUP_WORLD_SIZE", "torch"},
    {"HSDP_NODE_RANK", "torch"},
    {"HSDP_ATTEMPT", "torch"},
    {"TORCHELASTIC_RESTART_COUNT", "torch"},
    {"SLURM_PROCID", "slurm"},
    {"SLURM_NTASKS", "slurm"},
    {"SLURM_LOCALID", "slurm"},
    {"SLURM_NODEID", "slurm"},
    {"SLURM_STEP_NUM_NODES", "slurm"},
    {"SLURM_RESTART_COUNT", "slurm"},
};

static const char *const bad_numbers[] = {
    "", "true", "30s", "0x1f", " 30", "1.5", "99999999999999999999", "-5", "+3", "3 ",
};

START_TEST(launch_read_of_a_bad_number_names_key_and_text)
{
    static const char *const torch[VARIABLES_MAX] = {TORCH4, "MASTER_PORT=29500"};
    static const char *const slurm[VARIABLES_MAX] = {SLURM4, "SLURM_STEP_TASKS_PER_NODE=4(x2)",
                                                     "SLURM_STEP_NUM_NODES=2", "MASTER_ADDR=h"};
    const char *const *key = number_keys[(size_t)_i / COUNT(bad_numbers)];
    const char *text = bad_numbers[(size_t)_i % COUNT(bad_numbers)];
    struct hsdp_error err = HSDP_ERROR_INIT;
    struct launch_identity identity;
    struct launch launch;
    char expected[64];
    bool is_known;
    int32_t status;

    environment_set(strcmp(key[1], "torch") == 0 ? torch : slurm);
    setenv(key[0], text, 1);
    status = read_all(&launch, 0, &err);
    if (status == HSDP_OK) {
        status = launch_identity_read(&launch, &identity, &is_known, &err);
    }
    ck_assert_int_eq(status, HSDP_ERR_INVALID);
    snprintf(expected, sizeof(expected), "%s: \"%s\"", key[0], text);
    ck_assert_msg(strstr(err.message, expected) != NULL, "no '%s' in: %s", expected, err.message);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("launch");
    TCase *tcase = tcase_create("launch");

    tcase_add_loop_test(tcase, launch_read_of_each_launcher_is_understood, 0, (int)COUNT(rows));
    tcase_add_test(tcase, launch_place_read_of_a_setting_is_the_only_port);
    tcase_add_test(tcase, launch_place_read_with_a_store_needs_no_environment);
    tcase_add_test(tcase, launch_read_of_a_spec_takes_the_node_from_the_launcher);
    tcase_add_loop_test(tcase, launch_read_of_what_does_not_fit_is_refused, 0,
                        (int)COUNT(refusals));
    tcase_add_loop_test(tcase, launch_read_of_a_bad_number_names_key_and_text, 0,
                        (int)(COUNT(number_keys) * COUNT(bad_numbers)));
    suite_add_tcase(suite, tcase);
    return suite;
}
