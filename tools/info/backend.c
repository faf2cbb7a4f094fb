/* SPDX-License-Identifier: Apache-2.0 */
/* What backend=auto becomes on this node, concluded from what describe() says of transports. */
#include "backend.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

struct sentence {
    char text[2048];
};

static void sentence_add(struct sentence *sentence, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void sentence_add(struct sentence *sentence, const char *format, ...)
{
    size_t n_bytes = strlen(sentence->text);
    va_list args;

    va_start(args, format);
    vsnprintf(sentence->text + n_bytes, sizeof(sentence->text) - n_bytes, format, args);
    va_end(args);
}

/* "shm", "shm or nccl"; how many there are. */
static size_t usable_add(struct sentence *sentence, const json_t *transports)
{
    size_t n_usable = 0;

    for (size_t i = 0; i < json_array_size(transports); i++) {
        const json_t *transport = json_array_get(transports, i);

        if (json_is_true(json_object_get(transport, "usable"))) {
            sentence_add(sentence, "%s%s", n_usable++ == 0 ? "" : " or ",
                         member_text(transport, "name"));
        }
    }
    return n_usable;
}

static void unusable_add(struct sentence *sentence, const json_t *transports)
{
    const char *before = "; not ";

    for (size_t i = 0; i < json_array_size(transports); i++) {
        const json_t *transport = json_array_get(transports, i);

        if (!json_is_true(json_object_get(transport, "usable"))) {
            sentence_add(sentence, "%s%s (%s)", before, member_text(transport, "name"),
                         member_text(transport, "reason"));
            before = ", ";
        }
    }
}

/* The plugin's own words about the setting, which say what it prefers. */
static const char *meaning_find(const json_t *description)
{
    const json_t *settings = json_object_get(description, "settings");

    for (size_t i = 0; i < json_array_size(settings); i++) {
        const json_t *setting = json_array_get(settings, i);

        if (strcmp(member_text(setting, "key"), "backend") == 0) {
            return member_text(setting, "meaning");
        }
    }
    return "";
}

json_t *backend_conclude(const json_t *description)
{
    const json_t *transports = json_object_get(description, "transports");
    struct sentence usable = {""};
    struct sentence all = {""};
    size_t n_usable = usable_add(&usable, transports);

    if (json_array_size(transports) == 0) {
        return NULL;
    }
    sentence_add(&all, "backend auto becomes %s here", n_usable == 0 ? "nothing" : usable.text);
    if (n_usable > 1) {
        sentence_add(&all, " (%s)", meaning_find(description));
    }
    unusable_add(&all, transports);
    return report_text(all.text);
}
