/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of a build that has none: what a driver is given in its place, and refuses. */
#include "device/gpu_image.h"

const unsigned char gpu_image[] = "no device code";
const uint64_t gpu_image_bytes = sizeof(gpu_image);
const bool gpu_image_has_code = false;
const char gpu_image_archs[] = "nothing";
const int32_t gpu_image_min_driver = 0;
