/* SPDX-License-Identifier: Apache-2.0 */
/* The file with the secret of a job of several hosts (--make-token, --token-file). */
#ifndef RUN_TOKEN_H
#define RUN_TOKEN_H

/* Writes 32 random bytes to a new file that only its owner may read. Answers hsdp-run's status. */
int token_make(const char *path);

/*
 * Whether path is such a file. Answers -1 and its absolute name, to be freed, or complains and
 * answers hsdp-run's status.
 */
int token_find(const char *path, char **ret_path);

#endif /* RUN_TOKEN_H */
