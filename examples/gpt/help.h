/* SPDX-License-Identifier: Apache-2.0 */
/* What hsdp-gpt --help prints. */
#ifndef GPT_HELP_H
#define GPT_HELP_H

/* Prints it to standard output; the plugin, where one is found, tells its defaults. */
void help_print(void);

#endif
