/* SPDX-License-Identifier: Apache-2.0 */
/* A file as bytes. */
#include "dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rng.h"

/* Reads exactly n_bytes; a file that ends earlier was cut while we read it. */
static int bytes_read(int fd, uint8_t *bytes, size_t n_bytes, const char *path,
                      struct fault *ret_fault)
{
    size_t done = 0;

    while (done < n_bytes) {
        const ssize_t got = read(fd, bytes + done, n_bytes - done);

        if (got == 0) {
            return fault_set(ret_fault, FAULT_PLACE, "dataset %s: it ended after %zu of %zu bytes",
                             path, done, n_bytes);
        }
        if (got < 0 && errno != EINTR) {
            return fault_set(ret_fault, FAULT_PLACE, "dataset %s: cannot be read: %s", path,
                             strerror(errno));
        }
        done += got < 0 ? 0 : (size_t)got;
    }
    return 0;
}

static int file_open(const char *path, int *ret_fd, size_t *ret_bytes, struct fault *ret_fault)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return fault_set(ret_fault, FAULT_PLACE, "dataset %s: cannot be read: %s", path,
                         strerror(errno));
    }
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(fd);
        return fault_set(ret_fault, FAULT_PLACE, "dataset %s: not a regular file", path);
    }
    *ret_fd = fd;
    *ret_bytes = (size_t)about.st_size;
    return 0;
}

/* Splits the file, and refuses one that cannot give a sample. */
static int parts_split(struct dataset *dataset, size_t n_bytes, const struct dataset_spec *spec,
                       struct fault *ret_fault)
{
    const size_t sample = spec->sequence_length + 1;

    dataset->n_validation = n_bytes / 10;
    dataset->n_train = n_bytes - dataset->n_validation;
    if (dataset->n_train < sample) {
        return fault_set(
            ret_fault, FAULT_PLACE,
            "dataset %s: %zu bytes are too few for sequence_length %zu; the first nine "
            "tenths must hold %zu",
            spec->path, n_bytes, spec->sequence_length, sample);
    }
    if (spec->needs_validation && dataset->n_validation < sample) {
        return fault_set(ret_fault, FAULT_PLACE,
                         "dataset %s: %zu bytes are too few for sequence_length %zu; the held-out "
                         "tenth must hold %zu, or validation_interval be 0",
                         spec->path, n_bytes, spec->sequence_length, sample);
    }
    return 0;
}

int dataset_load(struct dataset *ret_dataset, const struct dataset_spec *spec,
                 struct fault *ret_fault)
{
    struct dataset dataset = {.sequence_length = spec->sequence_length,
                              .key = rng_key(spec->seed, "dataset")};
    size_t n_bytes = 0;
    int fd = -1, status;

    status = file_open(spec->path, &fd, &n_bytes, ret_fault);
    if (status != 0) {
        return status;
    }
    status = parts_split(&dataset, n_bytes, spec, ret_fault);
    if (status != 0) {
        goto out;
    }
    dataset.bytes = malloc(n_bytes);
    if (dataset.bytes == NULL) {
        status = fault_set(ret_fault, FAULT_RUN, "dataset %s: no memory for %zu bytes", spec->path,
                           n_bytes);
        goto out;
    }
    status = bytes_read(fd, dataset.bytes, n_bytes, spec->path, ret_fault);
    if (status != 0) {
        goto out;
    }
    *ret_dataset = dataset;
    dataset.bytes = NULL; /* handed over */

out:
    free(dataset.bytes);
    close(fd);
    return status;
}

void dataset_fini(struct dataset *dataset)
{
    free(dataset->bytes);
    dataset->bytes = NULL;
}

static void sample_copy(const struct dataset *dataset, size_t offset, uint8_t *ret_inputs,
                        uint8_t *ret_targets)
{
    memcpy(ret_inputs, dataset->bytes + offset, dataset->sequence_length);
    memcpy(ret_targets, dataset->bytes + offset + 1, dataset->sequence_length);
}

void dataset_sample(const struct dataset *dataset, uint64_t number, uint8_t *ret_inputs,
                    uint8_t *ret_targets)
{
    const size_t n_offsets = dataset->n_train - dataset->sequence_length;

    sample_copy(dataset, rng_below(dataset->key, number, n_offsets), ret_inputs, ret_targets);
}

size_t dataset_n_held_out(const struct dataset *dataset)
{
    return dataset->n_validation == 0 ? 0 : (dataset->n_validation - 1) / dataset->sequence_length;
}

void dataset_held_out(const struct dataset *dataset, size_t number, uint8_t *ret_inputs,
                      uint8_t *ret_targets)
{
    sample_copy(dataset, dataset->n_train + number * dataset->sequence_length, ret_inputs,
                ret_targets);
}
