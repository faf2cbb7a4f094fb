/* SPDX-License-Identifier: Apache-2.0 */
/* Launch under srun: the lists of hosts and of tasks that Slurm writes, parsed strictly. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/launch_internal.h"

#define NUMBER_DIGITS 9u /* at most, so that no sum overflows */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits at *text, which goes behind them; false for none, for too many. */
static bool digits_take(const char **text, uint32_t *ret_value, size_t *ret_length)
{
    size_t length = 0;
    uint32_t value = 0;

    while (is_digit((*text)[length])) {
        if (length == NUMBER_DIGITS) {
            return false;
        }
        value = 10 * value + (uint32_t)((*text)[length] - '0');
        length++;
    }
    *text += length;
    *ret_value = value;
    *ret_length = length;
    return length > 0;
}

/* ------------------------------------------------------------------------------- tasks */

/* "2" or "2(x3)". */
static bool share_take(const char **text, uint32_t *ret_tasks, uint32_t *ret_nodes)
{
    size_t length;

    *ret_nodes = 1;
    if (!digits_take(text, ret_tasks, &length)) {
        return false;
    }
    if (**text != '(') {
        return true;
    }
    if ((*text)[1] != 'x') {
        return false;
    }
    *text += 2;
    if (!digits_take(text, ret_nodes, &length) || *ret_nodes == 0 || **text != ')') {
        return false;
    }
    (*text)++;
    return true;
}

static bool tasks_take(const char *text, uint32_t node, struct slurm_tasks *ret)
{
    memset(ret, 0, sizeof(*ret));
    for (;;) {
        uint32_t n_tasks;
        uint32_t n_nodes;

        if (!share_take(&text, &n_tasks, &n_nodes) || n_tasks == 0 ||
            n_nodes > INT32_MAX - ret->n_nodes) {
            return false;
        }
        if (node >= ret->n_nodes && node - ret->n_nodes < n_nodes) {
            ret->n_local_tasks = n_tasks;
        }
        ret->n_nodes += n_nodes;
        ret->n_tasks += (uint64_t)n_tasks * n_nodes;
        if (*text == '\0') {
            return true;
        }
        if (*text++ != ',') {
            return false;
        }
    }
}

int32_t slurm_tasks_parse(const char *name, const char *list, uint32_t node,
                          struct slurm_tasks *ret, struct hsdp_error *reterr)
{
    struct slurm_tasks tasks;

    if (!tasks_take(list, node, &tasks)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: \"%.128s\" is not a list of tasks on each node, such as \"2(x3),1\"",
                         name, list);
    }
    *ret = tasks;
    return HSDP_OK;
}

static int32_t tasks_check(const char *name, const struct slurm_tasks *tasks, uint32_t node,
                           const struct launch *launch, struct hsdp_error *reterr)
{
    const char *list = getenv(name);

    if (tasks->n_tasks != launch->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is \"%.128s\", %" PRIu64 " tasks, but SLURM_NTASKS is %" PRIu32,
                         name, list, tasks->n_tasks, launch->world_ranks);
    }
    if (launch->n_hosts != 0 && tasks->n_nodes != launch->n_hosts) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is \"%.128s\", %" PRIu32 " nodes, but SLURM_STEP_NUM_NODES is "
                         "%" PRIu32,
                         name, list, tasks->n_nodes, launch->n_hosts);
    }
    if (tasks->n_local_tasks == 0) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: SLURM_NODEID is %" PRIu32 ", but %s is \"%.128s\", %" PRIu32
                         " nodes: they count from 0",
                         node, name, list, tasks->n_nodes);
    }
    return HSDP_OK;
}

static int32_t tasks_read(const char *name, struct launch *ret, struct hsdp_error *reterr)
{
    struct slurm_tasks tasks;
    uint32_t node = 0;
    int32_t status = HSDP_OK;

    if (getenv("SLURM_NODEID") != NULL) {
        status = launch_variable_read("SLURM_NODEID", 0, INT32_MAX, &node, reterr);
    }
    if (status == HSDP_OK) {
        status = slurm_tasks_parse(name, getenv(name), node, &tasks, reterr);
    }
    if (status == HSDP_OK) {
        status = tasks_check(name, &tasks, node, ret, reterr);
    }
    if (status != HSDP_OK) {
        return status;
    }
    if (tasks.n_nodes > 1 && getenv("SLURM_NODEID") == NULL) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: %s is \"%.128s\", %" PRIu32 " nodes, but SLURM_NODEID is not set",
                         name, getenv(name), tasks.n_nodes);
    }
    ret->n_hosts = tasks.n_nodes;
    ret->local_ranks = tasks.n_local_tasks;
    return HSDP_OK;
}

/* Where Slurm lists no tasks: the same number on each node, or there is one node. */
static int32_t tasks_divide(struct launch *ret, struct hsdp_error *reterr)
{
    uint32_t n_tasks = 0;
    int32_t status = HSDP_OK;

    if (ret->n_hosts <= 1) {
        return HSDP_OK;
    }
    if (getenv("SLURM_NTASKS_PER_NODE") != NULL) {
        status = launch_variable_read("SLURM_NTASKS_PER_NODE", 1, INT32_MAX, &n_tasks, reterr);
    } else if (ret->n_hosts == ret->world_ranks) {
        n_tasks = 1; /* no node of a step is without a task */
    }
    if (status != HSDP_OK) {
        return status;
    }
    if ((uint64_t)n_tasks * ret->n_hosts != ret->world_ranks) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "job: SLURM_NTASKS is %" PRIu32 " on %" PRIu32 " nodes "
                         "(SLURM_STEP_NUM_NODES), %" PRIu32 " on each (SLURM_NTASKS_PER_NODE), and "
                         "SLURM_STEP_TASKS_PER_NODE is not set",
                         ret->world_ranks, ret->n_hosts, n_tasks);
    }
    ret->local_ranks = n_tasks;
    return HSDP_OK;
}

int32_t slurm_locals_read(struct launch *ret, struct hsdp_error *reterr)
{
    if (getenv("SLURM_STEP_TASKS_PER_NODE") != NULL) {
        return tasks_read("SLURM_STEP_TASKS_PER_NODE", ret, reterr);
    }
    if (getenv("SLURM_TASKS_PER_NODE") != NULL) {
        return tasks_read("SLURM_TASKS_PER_NODE", ret, reterr);
    }
    return tasks_divide(ret, reterr);
}

/* ------------------------------------------------------------------------------- hosts */

static bool is_name_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == '_';
}

/* A host's name as it is put together; what does not fit is remembered. */
struct name {
    char *chars;
    size_t length;
    bool is_done; /* the first host is complete: what follows is only checked */
};

static bool name_add(struct name *name, const char *chars, size_t n)
{
    if (name->is_done) {
        return true;
    }
    if (n >= LAUNCH_HOST_BYTES - name->length) {
        return false;
    }
    memcpy(name->chars + name->length, chars, n);
    name->length += n;
    name->chars[name->length] = '\0';
    return true;
}

/* "[01-03,7]" behind its bracket: its first number belongs to the name. */
static bool brackets_take(const char **text, struct name *name)
{
    bool is_first = true;

    for (;;) {
        const char *start = *text;
        uint32_t first;
        uint32_t last;
        size_t length;

        if (!digits_take(text, &first, &length) || (is_first && !name_add(name, start, length))) {
            return false;
        }
        is_first = false;
        if (**text == '-') {
            (*text)++;
            if (!digits_take(text, &last, &length) || last < first) {
                return false;
            }
        }
        if (**text == ']') {
            (*text)++;
            return true;
        }
        if (*(*text)++ != ',') {
            return false;
        }
    }
}

static bool hosts_take(const char *text, struct name *name)
{
    size_t n_parts = 0; /* of the host that is being read */

    for (;;) {
        if (is_name_char(*text)) {
            if (!name_add(name, text, 1)) {
                return false;
            }
            text++;
        } else if (*text == '[') {
            text++;
            if (!brackets_take(&text, name)) {
                return false;
            }
        } else if (n_parts > 0 && (*text == ',' || *text == '\0')) {
            name->is_done = true;
            n_parts = 0;
            if (*text++ == '\0') {
                return true;
            }
            continue;
        } else {
            return false;
        }
        n_parts++;
    }
}

int32_t slurm_first_host(const char *name, const char *list, char ret_host[LAUNCH_HOST_BYTES],
                         struct hsdp_error *reterr)
{
    char host[LAUNCH_HOST_BYTES] = "";
    struct name first = {.chars = host};

    if (!hosts_take(list, &first)) {
        return error_set(reterr, HSDP_ERR_INVALID,
                         "%s: \"%.128s\" is not a list of hosts, such as \"node[01-03,7],login\"",
                         name, list);
    }
    memcpy(ret_host, host, sizeof(host));
    return HSDP_OK;
}
