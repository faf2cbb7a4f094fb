/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 says of each step. */
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS     40
#define STAMP_BYTES   32
#define GIGABYTE      (1024.0 * 1024.0 * 1024.0)
#define JSON_EXACT    "%.17g" /* reads back as the same fp64 */
#define CLEAR_LINE    "\r\033[K"
#define GROUPED_BYTES 32

static void stamp_write(char ret_stamp[STAMP_BYTES], const struct tm *now)
{
    strftime(ret_stamp, STAMP_BYTES, "%Y-%m-%d %H:%M:%S", now);
}

/* 294083 becomes 294,083. */
static void number_group(char ret_text[GROUPED_BYTES], uint64_t number)
{
    char digits[GROUPED_BYTES];
    const int n_digits = snprintf(digits, sizeof(digits), "%" PRIu64, number);
    size_t length = 0;

    for (int i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0) {
            ret_text[length++] = ',';
        }
        ret_text[length++] = digits[i];
    }
    ret_text[length] = '\0';
}

void report_line(char ret_line[REPORT_LINE_BYTES], const struct report_step *step,
                 const struct tm *now)
{
    char stamp[STAMP_BYTES], speed[GROUPED_BYTES];

    stamp_write(stamp, now);
    number_group(speed, (uint64_t)(step->tokens_per_second + 0.5));
    snprintf(ret_line, REPORT_LINE_BYTES,
             "%s | INFO | step %08" PRIu64 "/%08" PRIu64 " | step-time %.3f sec"
             " | communication-time %.3f sec | optimizer-time %.3f sec | cross-entropy-loss %.4f | "
             "learning-rate %.6e | gradient-norm %.4f"
             " | tokens-per-second %s | peak-memory %.2f GB",
             stamp, step->step, step->n_steps, step->seconds, step->communication_seconds,
             step->optimizer_seconds, step->loss, step->learning_rate, step->gradient_norm, speed,
             (double)step->peak_bytes / GIGABYTE);
}

/* JSON has no word for infinity and NaN. */
static void json_number(FILE *out, const char *name, double value)
{
    if (isfinite(value)) {
        fprintf(out, "\"%s\": " JSON_EXACT ", ", name, value);
    } else {
        fprintf(out, "\"%s\": null, ", name);
    }
}

static void json_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            fputc('\\', out);
        }
        fputc((unsigned char)*at < 0x20 ? ' ' : *at, out);
    }
    fputc('"', out);
}

int report_json(FILE *out, const struct report_step *step)
{
    fprintf(out, "{\"step\": %" PRIu64 ", ", step->step);
    json_number(out, "cross_entropy_loss", step->loss);
    json_number(out, "gradient_norm", step->gradient_norm);
    json_number(out, "learning_rate", step->learning_rate);
    if (step->has_validation) {
        json_number(out, "validation_loss", step->validation_loss);
    }
    if (step->has_digest) {
        fprintf(out, "\"parameters_digest\": \"%016" PRIx64 "\", ", step->parameters_digest);
    }
    fprintf(out,
            "\"step_seconds\": %.6f, \"compute_seconds\": %.6f, \"communication_seconds\": %.6f, "
            "\"optimizer_seconds\": %.6f, \"tokens_per_second\": %.1f, ",
            step->seconds, step->compute_seconds, step->communication_seconds,
            step->optimizer_seconds, step->tokens_per_second);
    fprintf(out,
            "\"peak_memory_bytes\": %" PRIu64 ", \"memory\": {\"parameters\": %" PRIu64
            ", \"gradients\": %" PRIu64 ", \"optimizer\": %" PRIu64 ", \"unsharded\": %" PRIu64
            "}, \"traffic\": {",
            step->peak_bytes, step->parameter_bytes, step->gradient_bytes, step->optimizer_bytes,
            step->unsharded_bytes);
    for (size_t i = 0; i < step->n_traffic; i++) {
        fputs(i == 0 ? "" : ", ", out);
        json_text(out, step->traffic[i].group);
        fprintf(out, ": %" PRIu64, step->traffic[i].n_bytes);
    }
    fputs("}}\n", out);
    return fflush(out) == 0 && !ferror(out) ? 0 : -1;
}

void report_bar(FILE *terminal, uint64_t step, uint64_t n_steps)
{
    char cells[BAR_CELLS + 1];
    const size_t n_full = (size_t)((double)step / (double)n_steps * BAR_CELLS);

    memset(cells, '.', BAR_CELLS);
    memset(cells, '#', n_full);
    cells[BAR_CELLS] = '\0';
    fprintf(terminal, CLEAR_LINE "[%s] %" PRIu64 "/%" PRIu64, cells, step, n_steps);
    fflush(terminal);
}

void report_bar_clear(FILE *terminal)
{
    fputs(CLEAR_LINE, terminal);
}

struct tm report_clock(void)
{
    const time_t now = time(NULL);
    struct tm local;

    localtime_r(&now, &local);
    return local;
}

void report_note(FILE *out, const struct tm *now, const char *level, const char *text)
{
    char stamp[STAMP_BYTES];

    stamp_write(stamp, now);
    if (isatty(fileno(out))) {
        report_bar_clear(out);
    }
    fprintf(out, "%s | %s | %s\n", stamp, level, text);
}
