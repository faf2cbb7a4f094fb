/* SPDX-License-Identifier: Apache-2.0 */
/* Token: what is one, and what is refused. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/token.h"
#include "suite.h"

#define HEX32 "00112233445566778899aabbccddeeff"

static char path[64];

static void path_setup(void)
{
    int fd;

    snprintf(path, sizeof(path), "check_net_token.XXXXXX");
    fd = mkstemp(path); /* mode 0600 */
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void path_teardown(void)
{
    unlink(path);
}

static void file_write(const char *bytes, size_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, n_bytes), (ssize_t)n_bytes);
    close(fd);
}

struct content {
    const char *bytes;
    size_t n_bytes;
    const char *refusal; /* NULL: it is a token, whose byte 1 is 0x11 */
};

#define HEX64 HEX32 HEX32

static const struct content contents[] = {
    {"0\x11"
     "23456789abcdefghijklmnopqrstuv",
     32, NULL},
    {HEX64, 64, NULL},
    {HEX64 "\n", 65, NULL},
    {HEX64 "\r\n", 66, NULL},
    {"00112233445566778899AABBCCDDEEFF" HEX32, 64, NULL},
    {"", 0, "holds 0 bytes"},
    {"0123456789abcdef0123456789abcde", 31, "holds 31 bytes"},
    {"0123456789abcdef0123456789abcdef\n", 33, "holds 33 bytes"},
    {HEX64 "\n\n", 66, "holds 66 bytes"},
    {HEX64 "0", 65, "holds 65 bytes"},
    {HEX64 HEX64, 128, "holds at least 67 bytes"},
    {HEX32 "00112233445566778899aabbccddeefg", 64, "not all are hexadecimal"},
    {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 32, "is all zeros"},
    {"0000000000000000000000000000000000000000000000000000000000000000", 64, "is all zeros"},
};

static void content_expect(const struct content *row, const char *from)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint8_t token[NET_TOKEN_BYTES] = {0};
    int32_t status = token_read(from, token, &err);

    if (row->refusal == NULL) {
        ck_assert_msg(status == HSDP_OK, "%s", err.message);
        ck_assert_uint_eq(token[1], 0x11);
    } else {
        ck_assert_int_eq(status, HSDP_ERR_INVALID);
        ck_assert_msg(strstr(err.message, row->refusal) != NULL, "%s", err.message);
        ck_assert_uint_eq(token[1], 0);
    }
}

START_TEST(token_read_file_is_a_token_or_named)
{
    file_write(contents[_i].bytes, contents[_i].n_bytes);
    content_expect(&contents[_i], path);
}
END_TEST

START_TEST(token_read_pipe_is_a_token_or_named)
{
    char name[32];
    int fds[2];

    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(write(fds[1], contents[_i].bytes, contents[_i].n_bytes),
                     (ssize_t)contents[_i].n_bytes);
    close(fds[1]);
    snprintf(name, sizeof(name), "fd:%d", fds[0]);
    content_expect(&contents[_i], name);
    ck_assert_int_eq(fcntl(fds[0], F_GETFD), 0); /* left open */
    close(fds[0]);
}
END_TEST

/* A second job of the process finds it, too. */
START_TEST(token_read_descriptor_of_a_file_can_be_read_again)
{
    char name[32];
    int fd;

    file_write(contents[1].bytes, contents[1].n_bytes);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(name, sizeof(name), "fd:%d", fd);
    content_expect(&contents[1], name);
    content_expect(&contents[1], name);
    close(fd);
}
END_TEST

static const mode_t open_modes[] = {0604, 0640, 0602, 0620, 0644, 0601};

START_TEST(token_read_file_that_others_may_use_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint8_t token[NET_TOKEN_BYTES];
    char mode[16];

    file_write(contents[1].bytes, contents[1].n_bytes);
    ck_assert_int_eq(chmod(path, open_modes[_i]), 0);
    ck_assert_int_eq(token_read(path, token, &err), HSDP_ERR_INVALID);
    snprintf(mode, sizeof(mode), "mode %04o", (unsigned)open_modes[_i]);
    ck_assert_msg(strstr(err.message, mode) != NULL, "%s", err.message);
}
END_TEST

START_TEST(token_read_file_of_another_user_is_refused)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint8_t token[NET_TOKEN_BYTES];

    file_write(contents[1].bytes, contents[1].n_bytes);
    if (chown(path, 12345, (gid_t)-1) != 0) {
        printf("skipped: only root can give a file away\n");
        return;
    }
    ck_assert_int_eq(token_read(path, token, &err), HSDP_ERR_INVALID);
    ck_assert_msg(strstr(err.message, "belongs to user 12345") != NULL, "%s", err.message);
}
END_TEST

static const char *const nowhere[] = {"no/such/file", "fd:",   "fd:x",
                                      "fd:-1",        "fd:1x", "fd:9999999"};

START_TEST(token_read_no_such_file_is_unavailable)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint8_t token[NET_TOKEN_BYTES];

    ck_assert_int_eq(token_read(nowhere[_i], token, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_msg(strstr(err.message, nowhere[_i]) != NULL, "%s", err.message);
}
END_TEST

START_TEST(token_read_closed_descriptor_is_unavailable)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint8_t token[NET_TOKEN_BYTES];

    ck_assert_int_eq(token_read("fd:777", token, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_msg(strstr(err.message, "Bad file descriptor") != NULL, "%s", err.message);
}
END_TEST

START_TEST(token_read_pipe_without_an_end_is_given_up)
{
    struct hsdp_error err = HSDP_ERROR_INIT;
    uint8_t token[NET_TOKEN_BYTES];
    char name[32];
    int fds[2];

    ck_assert_int_eq(pipe(fds), 0);
    snprintf(name, sizeof(name), "fd:%d", fds[0]);
    ck_assert_int_eq(token_read(name, token, &err), HSDP_ERR_UNAVAILABLE);
    ck_assert_msg(strstr(err.message, "after 5 s") != NULL, "%s", err.message);
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("net_token");
    TCase *tcase = tcase_create("net_token");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, path_setup, path_teardown);
    tcase_add_loop_test(tcase, token_read_file_is_a_token_or_named, 0, N_OF(contents));
    tcase_add_loop_test(tcase, token_read_pipe_is_a_token_or_named, 0, N_OF(contents));
    tcase_add_test(tcase, token_read_descriptor_of_a_file_can_be_read_again);
    tcase_add_loop_test(tcase, token_read_file_that_others_may_use_is_refused, 0, N_OF(open_modes));
    tcase_add_test(tcase, token_read_file_of_another_user_is_refused);
    tcase_add_loop_test(tcase, token_read_no_such_file_is_unavailable, 0, N_OF(nowhere));
    tcase_add_test(tcase, token_read_closed_descriptor_is_unavailable);
    tcase_add_test(tcase, token_read_pipe_without_an_end_is_given_up);
    suite_add_tcase(suite, tcase);
    return suite;
}
