/* SPDX-License-Identifier: Apache-2.0 */
/* What a check does while it runs, in its rank: failing, skipping, meeting, judging calls. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "conform.h"
#include "slot.h"
#include "training/device.h"

#define CHECK_PATTERN 0xa5 /* what an error holds that nobody has written */

static struct slot_rank *rank_own(struct conform *conform)
{
    struct slot *slot = conform->slot;

    return &slot->ranks[conform->rank];
}

/* ------------------------------------------------------------------------------------ the end */

static _Noreturn void verdict_give(struct conform *conform, enum slot_verdict verdict,
                                   const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

static _Noreturn void verdict_give(struct conform *conform, enum slot_verdict verdict,
                                   const char *format, va_list args)
{
    struct slot *slot = conform->slot;
    uint32_t open = SLOT_OPEN;

    if (atomic_compare_exchange_strong(&slot->verdict, &open, SLOT_WRITING)) {
        slot->rank = conform->rank;
        vsnprintf(slot->message, sizeof(slot->message), format, args);
        atomic_store(&slot->verdict, verdict);
    }
    _exit(1);
}

void conform_fail(struct conform *conform, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    verdict_give(conform, SLOT_FAILED, format, args);
}

void conform_skip(struct conform *conform, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    verdict_give(conform, SLOT_SKIPPED, format, args);
}

void conform_expect_signal(struct conform *conform, int signal_number)
{
    if (signal_number != SIGKILL && signal_number != SIGSTOP) {
        signal(signal_number, SIG_DFL); /* a sanitizer would make an exit of it */
    }
    atomic_store(&rank_own(conform)->expected_signal, signal_number);
}

/* -------------------------------------------------------------------------------------- peers */

int32_t conform_process(struct conform *conform, uint32_t rank)
{
    struct slot *slot = conform->slot;
    int32_t process;

    conform_expect(conform, rank < conform->n_ranks,
                   "the kit asks for rank %" PRIu32 " of %" PRIu32, rank, conform->n_ranks);
    while ((process = atomic_load(&slot->ranks[rank].process)) == 0) {
        conform_sleep_ms(1);
    }
    return process;
}

/* Who has not come here, and still may. */
static uint32_t n_absent(struct conform *conform, uint32_t meeting)
{
    struct slot *slot = conform->slot;
    uint32_t n = 0;

    for (uint32_t rank = 0; rank < conform->n_ranks; rank++) {
        n += atomic_load(&slot->ranks[rank].n_meetings) < meeting &&
             atomic_load(&slot->ranks[rank].has_ended) == 0;
    }
    return n;
}

void conform_meet(struct conform *conform)
{
    uint32_t meeting = atomic_fetch_add(&rank_own(conform)->n_meetings, 1u) + 1u;

    atomic_store(&rank_own(conform)->is_meeting, 1u);
    while (n_absent(conform, meeting) > 0) {
        struct timespec a_while = {.tv_nsec = 200000};

        nanosleep(&a_while, NULL);
    }
    atomic_store(&rank_own(conform)->is_meeting, 0u);
}

uint64_t conform_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void conform_sleep_ms(uint32_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000u, .tv_nsec = (long)(ms % 1000u) * 1000000L};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* -------------------------------------------------------------------------------------- calls */

const char *conform_status_name(int32_t status)
{
    static const char *const names[] = {
        "HSDP_OK",     "INVALID",        "VERSION",          "UNSUPPORTED", "NO_MEMORY",
        "TIMEOUT",     "PEER_LOST",      "MISMATCH",         "ABORTED",     "STATE",
        "UNAVAILABLE", "ADDRESS_IN_USE", "DEVICE",           "FORKED",      "BUSY",
        "NONFINITE",   "NOT_MEMBER",     "BUFFER_TOO_SMALL", "DRIFT",       "DEFECT",
    };
    static char texts[4][40];
    static unsigned next;
    char *text = texts[next++ % 4];
    int64_t index = -(int64_t)status;

    if (status == HSDP_OK || status == HSDP_PENDING) {
        return status == HSDP_OK ? "HSDP_OK (0)" : "HSDP_PENDING (1)";
    }
    if (index > 0 && index < (int64_t)(sizeof(names) / sizeof(names[0]))) {
        snprintf(text, sizeof(texts[0]), "HSDP_ERR_%s (%" PRId32 ")", names[index], status);
    } else {
        snprintf(text, sizeof(texts[0]), "%" PRId32, status);
    }
    return text;
}

void conform_enter(struct conform *conform, const char *call)
{
    struct slot_rank *own = rank_own(conform);

    device_flush();
    memset(&conform->err, CHECK_PATTERN, sizeof(conform->err));
    conform->err.struct_size = sizeof(conform->err);
    atomic_store(&own->is_inside, 0u);
    snprintf(own->call, sizeof(own->call), "%s", call);
    atomic_store(&own->is_inside, 1u);
}

static int text_ends(const char *text, size_t max_bytes)
{
    return memchr(text, '\0', max_bytes) != NULL;
}

/* The message of an error, where there is one to show. */
static const char *sentence(const struct conform *conform, int32_t status)
{
    const struct hsdp_error *err = &conform->err;

    return err->status == status && text_ends(err->message, sizeof(err->message)) ? err->message
                                                                                  : "no message";
}

static int error_is_untouched(const struct hsdp_error *err)
{
    const unsigned char *bytes = (const unsigned char *)err;

    for (size_t i = sizeof(err->struct_size); i < sizeof(*err); i++) {
        if (bytes[i] != CHECK_PATTERN) {
            return 0;
        }
    }
    return err->struct_size == sizeof(*err);
}

void conform_check_ok(struct conform *conform, const char *call, int32_t found)
{
    atomic_store(&rank_own(conform)->is_inside, 0u);
    if (found == HSDP_ERR_UNSUPPORTED) {
        conform_unsupported(conform, call, sentence(conform, found));
    }
    conform_expect(conform, found == HSDP_OK, "%s: answers %s: %s", call,
                   conform_status_name(found), sentence(conform, found));
    conform_expect(
        conform, error_is_untouched(&conform->err),
        "%s: answers HSDP_OK, but has written to *reterr, which is left alone on success", call);
}

/* The members of an error that has been filled. */
static void error_check(struct conform *conform, const char *call, int32_t status)
{
    const struct hsdp_error *err = &conform->err;

    conform_expect(conform, err->struct_size == sizeof(*err),
                   "%s: has changed reterr->struct_size from %zu to %zu", call, sizeof(*err),
                   err->struct_size);
    conform_expect(conform, err->status == status, "%s: answers %s, but reterr->status is %s", call,
                   conform_status_name(status), conform_status_name(err->status));
    conform_expect(
        conform, text_ends(err->message, sizeof(err->message)) && err->message[0] != '\0',
        "%s: answers %s, but reterr->message is no sentence", call, conform_status_name(status));
    conform_expect(
        conform, text_ends(err->operation, sizeof(err->operation)) && err->operation[0] != '\0',
        "%s: answers %s, but reterr->operation is empty", call, conform_status_name(status));
    conform_expect(
        conform,
        text_ends(err->group, sizeof(err->group)) && text_ends(err->unit, sizeof(err->unit)),
        "%s: answers %s, but a text in *reterr does not end", call, conform_status_name(status));
    for (uint32_t i = 1; i < err->n_missing_ranks && i < HSDP_ERROR_MAX_RANKS; i++) {
        conform_expect(conform, err->missing_ranks[i] > err->missing_ranks[i - 1],
                       "%s: reterr->missing_ranks is not ascending", call);
    }
}

void conform_check_refused(struct conform *conform, const char *call, int32_t found,
                           int32_t expected)
{
    atomic_store(&rank_own(conform)->is_inside, 0u);
    if (found != expected) {
        conform_fail(conform, "%s: answers %s%s%s, where %s is promised", call,
                     conform_status_name(found), found < 0 ? ": " : "",
                     found < 0 ? sentence(conform, found) : "", conform_status_name(expected));
    }
    if (expected < 0) {
        error_check(conform, call, expected);
    }
}
