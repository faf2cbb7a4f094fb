/* SPDX-License-Identifier: Apache-2.0 */
/* Prints all faults, a line each: name, chapter, check, what is wrong, with tabs between them. */
#include <stdio.h>

#include "wrong.h"

int main(void)
{
    for (int list = 0; list < WRONG_N_LISTS; list++) {
        for (uint32_t i = 0; i < wrong_lists[list]->n_faults; i++) {
            const struct wrong_fault *fault = &wrong_lists[list]->faults[i];

            printf("%s\t%s\t%s\t%s\n", fault->name, fault->chapter, fault->check, fault->what);
        }
    }
    return 0;
}
