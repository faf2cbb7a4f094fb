/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter failures: checks that do not stand beside its list. */
#ifndef CONFORM_FAILURES_H
#define CONFORM_FAILURES_H

#include "scene.h"

void failures_abort_connect(struct conform *conform);
void failures_abort_wait(struct conform *conform);
void failures_abort_twice(struct conform *conform);
void failures_abort_unsaid(struct conform *conform);
void failures_abort_closed(struct conform *conform);
void failures_told_once(struct conform *conform);
void failures_never_told(struct conform *conform);
void failures_callback(struct conform *conform);

#endif /* CONFORM_FAILURES_H */
