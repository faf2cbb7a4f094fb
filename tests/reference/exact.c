/* SPDX-License-Identifier: Apache-2.0 */
/* Exact sums: each part keeps what the rounding of a sum has lost. */
#include "exact.h"

#include <math.h>

void exact_add(struct exact *exact, double value)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < exact->n; i++) {
        double large = fabs(value) < fabs(exact->parts[i]) ? exact->parts[i] : value;
        double small = fabs(value) < fabs(exact->parts[i]) ? value : exact->parts[i];
        double lost;

        value = large + small;
        lost = small - (value - large);
        if (lost != 0.0) {
            exact->parts[n++] = lost;
        }
    }
    exact->parts[n++] = value;
    exact->n = n;
}

double exact_sum(const struct exact *exact)
{
    uint64_t n = exact->n;
    double sum = n > 0 ? exact->parts[--n] : 0.0;
    double lost = 0.0;

    while (n > 0 && lost == 0.0) {
        double large = sum, small = exact->parts[--n];

        sum = large + small;
        lost = small - (sum - large);
    }
    /* Half a unit was lost, and more behind it in the same direction: the tie is none. */
    if (n > 0 &&
        ((lost < 0.0 && exact->parts[n - 1] < 0.0) || (lost > 0.0 && exact->parts[n - 1] > 0.0))) {
        double twice = 2.0 * lost;
        double next = sum + twice;

        if (twice == next - sum) {
            sum = next;
        }
    }
    return sum;
}
