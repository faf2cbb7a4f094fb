/* SPDX-License-Identifier: Apache-2.0 */
/* Chapter hygiene: what its two files share. */
#ifndef CONFORM_HYGIENE_H
#define CONFORM_HYGIENE_H

#include "scene.h"

/* A folder of this rank, to be removed by whoever has made it. */
struct hygiene_folder {
    char path[128];
};

void hygiene_folder_make(struct conform *conform, struct hygiene_folder *ret);

/** Loads a plugin and makes its tables those of the check. */
hsdp_plugin *hygiene_load(struct conform *conform, const char *path);
/** A job from connect to close, with a model, a step and a barrier. */
void hygiene_train(struct conform *conform, const struct scene_spec *spec);
/** The plugin loaded, such a job, the plugin unloaded. */
void hygiene_cycle(struct conform *conform);

void hygiene_busy_run(struct conform *conform);
void hygiene_fork_run(struct conform *conform);
void hygiene_files_run(struct conform *conform);
void hygiene_killed_run(struct conform *conform);

#endif /* CONFORM_HYGIENE_H */
