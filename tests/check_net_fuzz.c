/* SPDX-License-Identifier: Apache-2.0 */
/* Channel: random and altered bytes in random cuts, some hundred thousand times, from a seed. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "channel_pair.h"
#include "net_fuzz.h"
#include "suite.h"

#define BLOCKS    16
#define BLOCK_NS  UINT64_C(300000000)
#define MIN_CASES 50u /* of a block, also on a busy machine */
#define MAX_BYTES 400u

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t seed_of(int block)
{
    const char *text = getenv("HSDP_TEST_SEED");

    return (text == NULL ? 1 : strtoull(text, NULL, 10)) * 1000003u + (uint64_t)block;
}

/* Mostly operations that go on, so that there is something to disturb: see net_fuzz.c. */
static uint64_t case_draw(uint64_t *state, uint8_t *ret_bytes)
{
    uint64_t n_bytes = random_next(state) % MAX_BYTES;
    uint64_t n_calm = random_next(state) % 32; /* undisturbed first operations */

    for (uint64_t i = 0; i < n_bytes; i++) {
        ret_bytes[i] = (uint8_t)random_next(state);
    }
    for (uint64_t i = 0; i < n_calm && 3 * i + 3 < n_bytes; i++) {
        ret_bytes[3 * i + 1] = (uint8_t)i; /* to the one, to the other */
        ret_bytes[3 * i + 2] = 5;          /* carry */
    }
    if (n_bytes > 0 && random_next(state) % 8 != 0) {
        ret_bytes[0] = 3; /* equal tokens */
    }
    return n_bytes;
}

START_TEST(channel_feed_anything_is_survived)
{
    uint64_t state = seed_of(_i);
    uint64_t until_ns = clock_now_ns() + BLOCK_NS;
    uint8_t bytes[MAX_BYTES];
    uint32_t n_cases;

    for (n_cases = 0; n_cases < MIN_CASES || clock_now_ns() < until_ns; n_cases++) {
        uint64_t n_bytes = case_draw(&state, bytes);

        net_fuzz_run(bytes, n_bytes);
    }
}
END_TEST

/* Pure noise after a handshake that went well, of both ends. */
START_TEST(channel_feed_noise_after_the_handshake_is_garbage)
{
    uint64_t state = seed_of(_i);
    struct pair pair;
    uint8_t noise[600];

    for (uint32_t n = 0; n < MIN_CASES; n++) {
        pair_init(&pair, 1, 1);
        pair_run(&pair, random_next(&state) % 40);
        ck_assert(channel_is_joined(&pair.server));
        for (uint32_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (uint8_t)random_next(&state);
        }
        noise[1] &= 1; /* a length that may be right, often */
        noise[2] = noise[3] = 0;
        pair_feed(&pair.server, &pair.server_log, noise, sizeof(noise), random_next(&state) % 99);
        pair_feed(&pair.client, &pair.client_log, noise, sizeof(noise), random_next(&state) % 99);
        ck_assert_int_eq(pair.server.end, NET_END_GARBAGE);
        ck_assert_int_eq(pair.client.end, NET_END_GARBAGE);
        pair_fini(&pair);
    }
}
END_TEST

/* What the random cases rest on: the calm ones do join and say something. */
START_TEST(net_fuzz_calm_case_joins)
{
    uint8_t bytes[64] = {3};
    struct pair pair;

    for (uint32_t i = 0; i < 15; i++) {
        bytes[3 * i + 1] = (uint8_t)i;
        bytes[3 * i + 2] = 5;
    }
    net_fuzz_run(bytes, 46);
    pair_init(&pair, 1, 1);
    for (uint32_t i = 0; i < 15; i++) {
        if (i % 2 == 0) {
            pair_to_server(&pair, 0);
        } else {
            pair_to_client(&pair, 0);
        }
    }
    ck_assert(channel_is_joined(&pair.client) && channel_is_joined(&pair.server));
    pair_fini(&pair);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("net_fuzz");
    TCase *tcase = tcase_create("net_fuzz");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, channel_feed_anything_is_survived, 0, BLOCKS);
    tcase_add_loop_test(tcase, channel_feed_noise_after_the_handshake_is_garbage, 0, BLOCKS);
    tcase_add_test(tcase, net_fuzz_calm_case_joins);
    suite_add_tcase(suite, tcase);
    return suite;
}
