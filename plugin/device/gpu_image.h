/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of this build: the image that the driver loads. */
#ifndef DEVICE_GPU_IMAGE_H
#define DEVICE_GPU_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

/* All devices' code in one image, as cuModuleLoadData takes it. */
extern const unsigned char gpu_image[];
extern const uint64_t gpu_image_bytes;

/* False of a build without nvcc: the image is only a text then, which no device takes. */
extern const bool gpu_image_has_code;

extern const char gpu_image_archs[];       /* "sm_80 sm_90"; what else there is begins with ptx_ */
extern const int32_t gpu_image_min_driver; /* 13000: what it takes to load this code */

#endif /* DEVICE_GPU_IMAGE_H */
