/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of a host; between host.c and host_text.c. */
#ifndef CONFORM_HOST_TEXT_H
#define CONFORM_HOST_TEXT_H

#include "host.h"

#define HOST_MAX_SETTINGS 16

/* Settings, and the text that they point into. */
struct host_settings {
    struct hsdp_settings settings;
    const char *keys[HOST_MAX_SETTINGS];
    const char *values[HOST_MAX_SETTINGS];
    char text[512];
};

/* Fills dims and n_ranks. */
void host_dims_read(struct host *host, const char *text);

/* Those of "key=value key=value" that belong to a job, or to a plan. */
void host_settings_read(struct host_settings *ret, const char *text, bool is_of_job);

/* "dp,ep"; ret_text has room for 64 bytes. */
void host_data_dims(const struct host *host, char *ret_text);

/* Adds classes, units and parameters to host->plan. */
void host_units_add(struct host *host, const char *text);

#endif /* CONFORM_HOST_TEXT_H */
