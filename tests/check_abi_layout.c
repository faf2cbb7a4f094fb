/* SPDX-License-Identifier: Apache-2.0 */
/* The headers as a host sees them: the layout of DLPack's tensor, and names that are frozen. */
#include <check.h>
#include <stddef.h>
#include <string.h>

#include "hsdp/adamw.h"
#include "hsdp/hsdp.h"
#include "suite.h"

#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#define HAVE_DLPACK 1
#endif
#endif

#ifndef HAVE_DLPACK
/* What DLPack publishes, where its header is not installed. */
typedef struct {
    void *data;
    struct {
        int32_t device_type;
        int32_t device_id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code;
        uint8_t bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;

enum { kDLCPU = 1, kDLCUDA = 2, kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4 };
#endif

START_TEST(tensor_lies_as_in_dlpack)
{
    ck_assert_uint_eq(sizeof(struct hsdp_tensor), sizeof(DLTensor));
    ck_assert_uint_eq(offsetof(struct hsdp_tensor, base), offsetof(DLTensor, data));
    ck_assert_uint_eq(offsetof(struct hsdp_tensor, device_type), offsetof(DLTensor, device));
    ck_assert_uint_eq(offsetof(struct hsdp_tensor, n_dims), offsetof(DLTensor, ndim));
    ck_assert_uint_eq(offsetof(struct hsdp_tensor, dtype_code), offsetof(DLTensor, dtype));
    ck_assert_uint_eq(offsetof(struct hsdp_tensor, shape), offsetof(DLTensor, shape));
    ck_assert_uint_eq(offsetof(struct hsdp_tensor, strides), offsetof(DLTensor, strides));
    ck_assert_uint_eq(offsetof(struct hsdp_tensor, byte_offset), offsetof(DLTensor, byte_offset));
}
END_TEST

/* One written through the other: what lies within device and dtype, too. */
START_TEST(tensor_reads_as_in_dlpack)
{
    const struct hsdp_tensor ours = {.device_type = HSDP_DEVICE_CUDA,
                                     .device_id = 3,
                                     .n_dims = 5,
                                     .dtype_code = HSDP_DTYPE_BFLOAT,
                                     .dtype_bits = 16,
                                     .dtype_lanes = 7};
    DLTensor theirs;

    memcpy(&theirs, &ours, sizeof(theirs));
    ck_assert_int_eq(theirs.device.device_type, kDLCUDA);
    ck_assert_int_eq(theirs.device.device_id, 3);
    ck_assert_int_eq(theirs.ndim, 5);
    ck_assert_uint_eq(theirs.dtype.code, kDLBfloat);
    ck_assert_uint_eq(theirs.dtype.bits, 16);
    ck_assert_uint_eq(theirs.dtype.lanes, 7);
}
END_TEST

START_TEST(numbers_are_those_of_dlpack)
{
    ck_assert_int_eq(HSDP_DEVICE_CPU, kDLCPU);
    ck_assert_int_eq(HSDP_DEVICE_CUDA, kDLCUDA);
    ck_assert_int_eq(HSDP_DTYPE_INT, kDLInt);
    ck_assert_int_eq(HSDP_DTYPE_UINT, kDLUInt);
    ck_assert_int_eq(HSDP_DTYPE_FLOAT, kDLFloat);
    ck_assert_int_eq(HSDP_DTYPE_BFLOAT, kDLBfloat);
}
END_TEST

START_TEST(names_are_frozen)
{
    ck_assert_str_eq(HSDP_ENTRY_SYMBOL, "hsdp_plugin_v1");
    ck_assert_str_eq(HSDP_ADAMW_EXTENSION, "hsdp.adamw");
}
END_TEST

Suite *module_suite(void)
{
    Suite *suite = suite_create("abi_layout");
    TCase *all = tcase_create("layout");

    tcase_add_test(all, tensor_lies_as_in_dlpack);
    tcase_add_test(all, tensor_reads_as_in_dlpack);
    tcase_add_test(all, numbers_are_those_of_dlpack);
    tcase_add_test(all, names_are_frozen);
    suite_add_tcase(suite, all);
    return suite;
}
