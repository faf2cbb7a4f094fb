/* SPDX-License-Identifier: Apache-2.0 */
/* A second process that ends the run's processes when hsdp-run itself is killed. */
#ifndef RUN_KEEPER_H
#define RUN_KEEPER_H

#include <sys/types.h>

struct keeper {
    pid_t pid;
    int fd; /* its end of file tells the keeper that hsdp-run has died */
};

/* Answers 0, or complains and answers hsdp-run's exit status. */
int keeper_start(struct keeper *keeper, const char *mark);

/* Sends the keeper home and waits for it. */
void keeper_stop(struct keeper *keeper);

#endif /* RUN_KEEPER_H */
