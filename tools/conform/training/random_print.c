/* SPDX-License-Identifier: Apache-2.0 */
/* Random cases of training: what was drawn, for who looks for a fault. */
#include <stdio.h>

#include "random_case.h"

void random_case_print(const struct random_case *random)
{
    static const char *const steps[] = {"plain", "discard", "nonfinite", "copy", "sync"};

    printf("mesh: %s, stages that hold '*': 0x%x\n", random->dims, random->holders);
    for (int run = 0; run < RANDOM_RUNS; run++) {
        printf("run %d: %s\n       %s\n", run, random->settings[run], random->units[run]);
    }
    printf("scopes:");
    for (uint32_t i = 0; i < random->n_batches; i++) {
        printf(" %s", host_scopes[random->scopes[i]]);
    }
    printf("\nsteps:");
    for (uint32_t i = 0; i < random->n_steps; i++) {
        printf(" %s", steps[random->steps[i]]);
    }
    printf("\nnorm_p %g max_norm %g scale %g%s%s%s%s%s%s\n", random->norm_p, random->max_norm,
           random->scale, random->is_exact ? ", exact" : "", random->has_chunks ? ", chunks" : "",
           random->has_absent ? ", absent" : "", random->has_late ? ", late" : "",
           random->has_weight ? ", weight" : "", random->promises_bits ? ", same bits" : "");
    fflush(stdout);
}
