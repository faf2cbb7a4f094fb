/* SPDX-License-Identifier: Apache-2.0 */
/* The number type of the model: float in the trainer, double where a test checks the gradients. */
#ifndef GPT_REAL_H
#define GPT_REAL_H

#include <cblas.h>

#ifdef GPT_DOUBLE
typedef double real;
#define real_gemm cblas_dgemm
#else
typedef float real;
#define real_gemm cblas_sgemm
#endif

#endif
