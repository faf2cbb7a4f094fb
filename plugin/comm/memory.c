/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of all ranks in one file without a name, which goes with the last process that has it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/job_internal.h"
#include "comm/wire.h"

#define OPERATION "share_memory"

struct request {
    uint64_t n_bytes;
    int32_t status;
    uint32_t reserved;
};

int32_t memory_file_create(const char *name, uint64_t n_bytes, int *ret_fd,
                           struct hsdp_error *reterr)
{
    struct rlimit limit;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) {
        return error_set(reterr, HSDP_ERR_NO_MEMORY, "job: no shared memory: %s", strerror(errno));
    }
    /* The kernel would answer with a signal that ends the host. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < n_bytes) {
        close(fd);
        return error_set(reterr, HSDP_ERR_NO_MEMORY,
                         "job: %" PRIu64 " bytes of shared memory are more than the limit on file "
                         "sizes (ulimit -f), %" PRIu64 " bytes",
                         n_bytes, (uint64_t)limit.rlim_cur);
    }
    /* Sealed, no rank can make it shorter under the feet of the others. */
    if (n_bytes > INT64_MAX || ftruncate(fd, (off_t)n_bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        error_set(reterr, HSDP_ERR_NO_MEMORY,
                  "job: cannot make %" PRIu64 " bytes of shared memory: %s", n_bytes,
                  strerror(errno));
        close(fd);
        return HSDP_ERR_NO_MEMORY;
    }
    *ret_fd = fd;
    return HSDP_OK;
}

void shared_memory_fini(struct shared_memory *memory)
{
    if (memory->fd >= 0) {
        close(memory->fd);
    }
    free(memory->offsets);
    free(memory->sizes);
    memset(memory, 0, sizeof(*memory));
    memory->fd = -1;
}

/* Every rank's part, one after the other; the total size. */
static int32_t parts_place(struct shared_memory *memory, const struct request *requests,
                           uint64_t *ret_total, struct hsdp_error *reterr)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t total = 0;

    for (uint32_t rank = 0; rank < memory->n_ranks; rank++) {
        uint64_t n_bytes = requests[rank].n_bytes;

        if (n_bytes > INT64_MAX / LAUNCH_MAX_RANKS - page_bytes) {
            return error_set(reterr, HSDP_ERR_NO_MEMORY,
                             OPERATION ": rank %" PRIu32 " asks for %" PRIu64 " bytes", rank,
                             n_bytes);
        }
        memory->offsets[rank] = total;
        memory->sizes[rank] = (n_bytes + page_bytes - 1) / page_bytes * page_bytes;
        total += memory->sizes[rank];
    }
    *ret_total = total;
    return HSDP_OK;
}

static int32_t parts_agree(struct hsdp_job *job, uint64_t n_bytes, struct shared_memory *memory,
                           uint64_t *ret_total, struct hsdp_error *reterr)
{
    struct request mine = {.n_bytes = n_bytes};
    struct request all[LAUNCH_MAX_RANKS];
    int32_t status;

    memory->n_ranks = job->launch.world_ranks;
    memory->offsets = calloc(memory->n_ranks, sizeof(*memory->offsets));
    memory->sizes = calloc(memory->n_ranks, sizeof(*memory->sizes));
    if (memory->offsets == NULL || memory->sizes == NULL) {
        mine.status = HSDP_ERR_NO_MEMORY; /* told to all, who would wait else */
    }
    status = job_exchange(job, OPERATION, &mine, sizeof(mine), all, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    for (uint32_t rank = 0; rank < memory->n_ranks; rank++) {
        if (all[rank].status != HSDP_OK) {
            return error_set(reterr, all[rank].status, OPERATION ": rank %" PRIu32 ": no memory",
                             rank);
        }
    }
    return parts_place(memory, all, ret_total, reterr);
}

/* A rank that has died meanwhile is found by the wait that follows. */
static void file_send(struct hsdp_job *job, int fd)
{
    struct wire_message message = {.kind = WIRE_MEMORY, .number = job->n_memories};

    for (uint32_t rank = 1; rank < job->launch.world_ranks; rank++) {
        wire_send_message(job->connections[rank], &message, fd);
    }
}

static int32_t file_receive(struct hsdp_job *job, int *ret_fd, struct hsdp_error *reterr)
{
    struct wire_message message;
    int fd = -1;
    int received = wire_receive_message(job->connections[0], &message, &fd);

    if (received == WIRE_RECEIVED && message.kind == WIRE_MEMORY &&
        message.number == job->n_memories && fd >= 0) {
        *ret_fd = fd;
        return HSDP_OK;
    }
    if (fd >= 0) {
        close(fd);
    }
    return error_set(reterr, HSDP_ERR_NO_MEMORY,
                     OPERATION ": the file did not arrive; too many open files?");
}

static int32_t file_share(struct hsdp_job *job, uint64_t n_bytes, int *ret_fd,
                          struct hsdp_error *reterr)
{
    bool is_root = job->launch.rank == 0;
    int32_t status = HSDP_OK;

    job->n_memories++;
    if (is_root) {
        status = memory_file_create("hsdp", n_bytes, ret_fd, reterr);
    }
    if (job->launch.world_ranks == 1) {
        return status;
    }
    if (is_root && status == HSDP_OK) {
        file_send(job, *ret_fd);
    }
    status = exchange_agree(job, OPERATION, status, reterr);
    if (status != HSDP_OK) {
        return status;
    }
    if (!is_root) {
        status = file_receive(job, ret_fd, reterr);
    }
    return exchange_agree(job, OPERATION, status, reterr);
}

int32_t job_share_memory(struct hsdp_job *job, uint64_t n_bytes, struct shared_memory *ret,
                         struct hsdp_error *reterr)
{
    struct shared_memory memory = {.fd = -1};
    struct hsdp_error err;
    uint64_t total = 0;
    int32_t status;

    status = parts_agree(job, n_bytes, &memory, &total, &err);
    if (status == HSDP_OK) {
        status = file_share(job, total, &memory.fd, &err);
    }
    if (status != HSDP_OK) {
        shared_memory_fini(&memory);
        if (reterr != NULL) {
            *reterr = err;
        }
        return status;
    }
    *ret = memory;
    return HSDP_OK;
}
