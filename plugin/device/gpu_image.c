/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of this build; of one without nvcc a text that a driver refuses in its place. */
#include "device/gpu_image.h"

#ifdef GPU_IMAGE_FILE
/* C has no way to include bytes; the assembler has. */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl gpu_image\n"
        ".hidden gpu_image\n"
        "gpu_image:\n"
        ".incbin \"" GPU_IMAGE_FILE "\"\n"
        "gpu_image_end:\n"
        ".balign 8\n"
        ".globl gpu_image_bytes\n"
        ".hidden gpu_image_bytes\n"
        "gpu_image_bytes:\n"
        ".8byte gpu_image_end - gpu_image\n"
        ".popsection\n");

const bool gpu_image_has_code = true;
const char gpu_image_archs[] = GPU_IMAGE_ARCHS;
const int32_t gpu_image_min_driver = GPU_IMAGE_MIN_DRIVER;
#else
const unsigned char gpu_image[] = "no device code";
const uint64_t gpu_image_bytes = sizeof(gpu_image);
const bool gpu_image_has_code = false;
const char gpu_image_archs[] = "nothing";
const int32_t gpu_image_min_driver = 0;
#endif
