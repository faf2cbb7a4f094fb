/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: what is touched at once is there, and what is not there is an error and no signal. */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/pages.h"
#include "suite.h"

#define N_PAGES 64u

/* Where it is set, the system populates nothing when asked, as before Linux 5.14. */
static bool is_old_system;

int madvise(void *base, size_t n_bytes, int advice)
{
    if (is_old_system && advice >= 22 /* MADV_POPULATE_READ */) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, base, n_bytes, advice);
}

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Shared memory of this process, of which `fd` has n_file_bytes. */
static uint8_t *file_map(uint64_t n_bytes, uint64_t n_file_bytes, int flags)
{
    int fd = memfd_create("check_pages", MFD_CLOEXEC);
    void *base;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)n_file_bytes), 0);
    base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    close(fd);
    return base;
}

static uint32_t pages_resident(uint8_t *base)
{
    unsigned char resident[N_PAGES];
    uint32_t n = 0;

    ck_assert_int_eq(mincore(base, N_PAGES * page_bytes(), resident), 0);
    for (uint32_t i = 0; i < N_PAGES; i++) {
        n += resident[i] & 1u;
    }
    return n;
}

START_TEST(populate_brings_in_every_page_that_the_range_touches)
{
    uint8_t *base = file_map(N_PAGES * page_bytes(), N_PAGES * page_bytes(), MAP_SHARED);
    bool is_written = _i % 2 == 1;

    is_old_system = _i >= 2;
    ck_assert_uint_eq(pages_resident(base), 0);
    ck_assert_int_eq(pages_populate(base + page_bytes() - 1, page_bytes() + 2, is_written), 0);
    ck_assert_uint_eq(pages_resident(base), 3);
    ck_assert_int_eq(pages_populate(base + 5 * page_bytes(), 0, is_written), 0);
    ck_assert_uint_eq(pages_resident(base), 3);
}
END_TEST

START_TEST(populate_leaves_bytes_as_they_are)
{
    uint8_t *base = pages_map(N_PAGES * page_bytes());

    is_old_system = _i >= 2;
    ck_assert_ptr_nonnull(base);
    memset(base, 7, 100);
    ck_assert_int_eq(pages_populate(base, N_PAGES * page_bytes(), _i % 2 == 1), 0);
    for (uint64_t i = 0; i < N_PAGES * page_bytes(); i++) {
        ck_assert(base[i] == (i < 100 ? 7 : 0));
    }
}
END_TEST

static uint8_t *guarded; /* a page that cannot be written yet */

/* Between reading a byte and writing it back: a peer's write to the same page. */
static void peer_write(int signal)
{
    (void)signal;
    mprotect(guarded, page_bytes(), PROT_READ | PROT_WRITE);
    guarded[0] = 7;
}

/* A peer sums into pages that their rank, which had no gradient, is only about to populate. */
START_TEST(populate_loses_nothing_that_is_written_meanwhile)
{
    struct sigaction action = {.sa_handler = peer_write};

    is_old_system = true;
    guarded = pages_map(page_bytes());
    ck_assert_ptr_nonnull(guarded);
    ck_assert_int_eq(mprotect(guarded, page_bytes(), PROT_READ), 0);
    ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
    ck_assert_int_eq(pages_populate(guarded, page_bytes(), true), 0);
    ck_assert_uint_eq(guarded[0], 7);
}
END_TEST

static long faults_now(void)
{
    struct rusage usage;

    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

START_TEST(populated_memory_takes_no_faults)
{
    uint8_t *base = pages_map(N_PAGES * page_bytes());
    long n_cold = faults_now();
    long n_warm;

    memset(base, 1, N_PAGES / 2 * page_bytes());
    n_cold = faults_now() - n_cold;
    ck_assert_int_eq(pages_populate(base, N_PAGES * page_bytes(), true), 0);
    n_warm = faults_now();
    memset(base, 2, N_PAGES * page_bytes());
    n_warm = faults_now() - n_warm;
    ck_assert_int_ge(n_cold, N_PAGES / 2); /* the counter counts */
    ck_assert_int_lt(n_warm, n_cold);
}
END_TEST

/* Before Linux 5.14 there is nothing to ask, and a signal. */
static bool is_asked(void)
{
    void *base = pages_map(page_bytes());

    return madvise(base, page_bytes(), 23 /* MADV_POPULATE_WRITE */) == 0;
}

START_TEST(populate_of_what_is_not_there_is_an_error)
{
    uint8_t *base = file_map(N_PAGES * page_bytes(), page_bytes(), MAP_SHARED);

    if (!is_asked()) {
        return;
    }
    ck_assert_int_eq(pages_populate(base, 2 * page_bytes(), _i == 1), EFAULT);
    ck_assert_int_eq(munmap(base + page_bytes(), page_bytes()), 0);
    ck_assert_int_eq(pages_populate(base, 2 * page_bytes(), _i == 1), ENOMEM);
    ck_assert_int_eq(pages_populate(base, page_bytes(), _i == 1), 0);
}
END_TEST

START_TEST(map_of_more_than_there_are_addresses_says_so)
{
    errno = 0;
    ck_assert_ptr_null(pages_map(UINT64_C(1) << 60));
    ck_assert_int_eq(errno, ENOMEM);
}
END_TEST

/* Large enough for huge pages, which take nothing before they are touched. */
START_TEST(map_takes_up_nothing_at_first)
{
    uint8_t *base = pages_map(UINT64_C(1) << 30);

    ck_assert_ptr_nonnull(base);
    ck_assert_uint_eq(pages_resident(base), 0);
    base[0] = 1;
    ck_assert_uint_ge(pages_resident(base), 1);
    ck_assert_int_eq(munmap(base, UINT64_C(1) << 30), 0);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("pages");
    TCase *tcase = tcase_create("pages");

    tcase_add_loop_test(tcase, populate_brings_in_every_page_that_the_range_touches, 0, 4);
    tcase_add_loop_test(tcase, populate_leaves_bytes_as_they_are, 0, 4);
    tcase_add_test(tcase, populate_loses_nothing_that_is_written_meanwhile);
    tcase_add_test(tcase, populated_memory_takes_no_faults);
    tcase_add_loop_test(tcase, populate_of_what_is_not_there_is_an_error, 0, 2);
    tcase_add_test(tcase, map_of_more_than_there_are_addresses_says_so);
    tcase_add_test(tcase, map_takes_up_nothing_at_first);
    suite_add_tcase(suite, tcase);
    return suite;
}
