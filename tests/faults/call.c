/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: writing each one down, with what it answered and when. */
#include <string.h>
#include <time.h>

#include "faults/host.h"
#include "faults/inject.h"

uint64_t host_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Also to the end when signals arrive. */
void host_sleep_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000u),
                            .tv_nsec = (long)(us % 1000000u) * 1000L};

    while (nanosleep(&left, &left) != 0) {
    }
}

void host_note_fault(struct host *host)
{
    atomic_store(&host->own->fault_ns, host_now_ns());
}

static struct call_record *call_last(const struct host *host)
{
    uint32_t n_calls = record_n_calls(host->own);

    return n_calls == 0 ? NULL : &host->own->calls[n_calls - 1];
}

static uint64_t call_timeout_ms(const struct host *host, enum call_kind kind)
{
    if (kind == CALL_CONNECT) {
        return host->trial->init_ms;
    }
    if (kind == CALL_COLLECTIVE && host->trial->group_ms != 0 && host->job == 0) {
        return host->trial->group_ms;
    }
    return host->timeout_ms;
}

/* True when the fault belongs to the call that is about to be made. */
static bool call_is_due(struct host *host, enum call_kind kind)
{
    if (kind >= CALL_N_KINDS) {
        return false;
    }
    host->n_of_kind[kind]++;
    return host->is_victim && !host->has_fired && host->trial->moment != MOMENT_TIME &&
           kind == host->trial->at_call && host->n_of_kind[kind] == host->at_occurrence;
}

bool call_begin(struct host *host, enum call_kind kind, const char *name)
{
    uint32_t n_calls = atomic_load(&host->own->n_calls);
    struct call_record *call;

    if (n_calls >= RECORD_MAX_CALLS) {
        return false;
    }
    if (call_is_due(host, kind)) {
        host->has_fired = true;
        fault_fire(host);
        if (host->is_leaving) {
            return false;
        }
    }
    call = &host->own->calls[n_calls];
    call->name = name;
    call->kind = kind;
    call->job = host->job;
    call->timeout_ms = call_timeout_ms(host, kind);
    call->is_local = host->is_local;
    call->wanted = host->wanted;
    call->start_ns = host_now_ns();
    atomic_store(&host->own->n_calls, n_calls + 1);
    host->err = (struct hsdp_error)HSDP_ERROR_INIT;
    atomic_fetch_add(&host->n_inside, 1u);
    return true;
}

bool call_end(struct host *host, int32_t status)
{
    struct call_record *call = call_last(host);

    if (inject_failed_ns() != 0 && atomic_load(&host->own->fault_ns) == 0) {
        inject_disarm();
        atomic_store(&host->own->fault_ns, inject_failed_ns());
    }
    while (host->is_threaded && host->trial->kind == FAULT_BUSY &&
           atomic_load(&host->n_visited) < atomic_load(&host->n_inside)) {
        host_sleep_us(20);
    }
    call->status = status;
    call->error = host->err;
    call->end_ns = host_now_ns();
    host->wanted = HSDP_OK;
    if (host->is_local) {
        host->is_local = false;
        return status < 0;
    }
    host->n_failures += record_has_failed(call);
    return !record_has_failed(call);
}

bool call_is_again(const struct host *host)
{
    struct call_record *call = call_last(host);

    if (!host->is_threaded || host->trial->kind != FAULT_BUSY || call->status != HSDP_ERR_BUSY) {
        return false;
    }
    call->end_ns = 0; /* the one record stands for both */
    return true;
}
