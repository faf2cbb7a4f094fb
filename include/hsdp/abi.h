/* SPDX-License-Identifier: Apache-2.0 */
/* The border: version, status, error, tensor, settings, and the root table of a plugin. */
#ifndef HSDP_ABI_H
#define HSDP_ABI_H

/*
 * A plugin is a shared object that exports one function, hsdp_plugin_v1(). It answers with a
 * struct hsdp_api whose members are tables of functions, one table per header of this folder. A
 * host needs nothing else: it never links against a plugin, and one compiled host works with every
 * plugin of the same ABI major version. Pointers and size_t have 64 bits, little endian.
 *
 * Rules that hold for every table, said once:
 *
 * Versions   Fields and functions are only ever appended. Every struct that can grow starts with
 *            `size_t struct_size`, which the caller sets (use the HSDP_*_INIT initializers); of an
 *            array whose elements have none the caller says their size. A plugin reads and writes
 *            no byte past it. Shorter than the plugin's own: the missing fields count as zero, and
 *            zero always means "as before". Longer: accepted if the bytes that the plugin does not
 *            know are zero, else HSDP_ERR_UNSUPPORTED. Below the size of ABI 1.0, or above 64 KiB:
 *            HSDP_ERR_VERSION. An output struct longer than the plugin knows is zeroed behind what
 *            it knows. Test for an appended function with HSDP_HAS(). Reserved fields and unknown
 *            flag bits are zero, else HSDP_ERR_UNSUPPORTED. A number that stands for a choice (of
 *            kind, use, scope, view, ...) and that the plugin does not know is HSDP_ERR_INVALID.
 * Errors     Every function that can fail returns int32_t: HSDP_OK (0), a positive status that
 *            means "not finished", or a negative HSDP_ERR_*; of one that a host does not know,
 *            from a newer plugin, the sign tells enough. Its last parameter `reterr` may be
 *            NULL; otherwise it is filled on failure and left alone on success (it is also left
 *            alone if its own struct_size is not acceptable). On failure all other outputs are
 *            untouched, but for the size or count that HSDP_ERR_BUFFER_TOO_SMALL comes with, and
 *            there is nothing to free. An argument that is NULL where nothing says that it may
 *            be, and an index that is none, are HSDP_ERR_INVALID; an array may be NULL where its
 *            count is 0. When several things are wrong, the error is any one of them.
 * Failure    Only HSDP_ERR_TIMEOUT, _PEER_LOST, _MISMATCH and _DEVICE, and job->abort(), fail a
 *            job as a whole; so does, whatever its status, what keeps the nodes of a job from
 *            speaking to each other, and a callback that fails. Calls that wait just then return
 *            with the first reason's own status. From then on views are undefined and every call
 *            that takes the job, or anything made from it, returns HSDP_ERR_ABORTED with that
 *            reason; only those that just tell (info, setting, members, status, diag) still
 *            answer. All other errors leave everything as it was before the call.
 * Borrowing  Strings, arrays and structs that the host passes are borrowed for the call; what must
 *            last is copied. Tensors say for themselves how long their memory is. Callbacks of a
 *            job and their `user` are used until its destroy() has returned. Parameters named
 *            ret_... are outputs; a function writes to nothing else.
 * Strings    UTF-8, NUL-terminated. Numbers in text are decimal, whatever the locale.
 * Ownership  What `create` returned is given back to `destroy`, which accepts NULL, never waits
 *            for another rank, and may be called in any order: an object keeps alive what it was
 *            made from.
 * Threads    A job and everything made from it may be used by one thread at a time; a second one
 *            gets HSDP_ERR_BUSY. It need not always be the same thread; 128 KiB of stack do.
 *            job->abort, job->status and all of diag may be called by any thread at any time. Pure
 *            objects (mesh, plan) may be read by many threads at once. Callbacks of the host run
 *            only on a thread that is inside a call of the plugin, except on_abort. A callback
 *            calls nothing of the plugin but job->abort, job->status and diag; on_abort, only the
 *            last two.
 * Process    A plugin is a guest: it writes nothing to standard output and standard error, and
 *            leaves the environment, signal handlers, rounding mode, current folder, locale and
 *            limits of the process as they are. No thread, descriptor or mapping outlives the
 *            last destroy. No file outlives the run, also where ranks were killed, but those of
 *            flight_dir. Two copies of a plugin in one process do not meet.
 * Fork       In a child of the process that made it, a job answers HSDP_ERR_FORKED, and destroy
 *            frees the child's own memory only; peers are not told anything.
 * Streams    An opaque pointer to the device's stream (cudaStream_t); NULL is the default stream
 *            and the only one on a CPU (another: HSDP_ERR_INVALID). Calls that move data take the
 *            stream on which the host has written or will read, and do their part in its order. A
 *            plugin leaves the thread's current device as it was.
 * Tickets    Work that outlives its call is a ticket, a number of the job (job.h). ret_ticket may
 *            be NULL where nobody will wait; at unshard, whose result the host is about to read,
 *            NULL orders `stream` behind it (on a CPU: the call waits). A call that gives a
 *            ticket makes neither the host nor the stream wait for that work; it may wait,
 *            bounded, for memory that earlier work still uses (see Blocks). Work goes on inside of
 *            any later call on the job; a host that computes for long lends time with
 *            job->ticket_wait(job, 0, 0, NULL).
 * Collective "Collective over X" means that every rank of X makes the call, in the same order
 *            relative to the other collective calls over X. Everything else is local. Ranks that
 *            wait for each other in different calls get HSDP_ERR_MISMATCH, with who is in what,
 *            without waiting for the deadline. What one rank cannot do, for an argument, memory or
 *            units in use, is an error on all that make the call together: its status, its number
 *            and its sentence; nothing has happened then, on any. What all ranks know alike, that
 *            no edit is open, or a step, is refused by each at once, without the others. A call
 *            that waits for nobody (edit_end, step.begin, unshard, reduce, start) refuses for its
 *            rank alone, which may make it again; the others learn of it where they wait.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HSDP_ABI_MAJOR 1u /* another number: another entry symbol, another set of headers */
#define HSDP_ABI_MINOR 0u /* plus one each time something is appended */

/* ------------------------------------------------------------------------------- status values */

#define HSDP_OK                 0
#define HSDP_PENDING            1     /* not finished when the wait ended; the work goes on */
#define HSDP_ERR_INVALID        (-1)  /* an argument or setting breaks its documented range */
#define HSDP_ERR_VERSION        (-2)  /* struct_size or ABI version not acceptable */
#define HSDP_ERR_UNSUPPORTED    (-3)  /* legal, but not built here; or a newer field is set */
#define HSDP_ERR_NO_MEMORY      (-4)  /* host or device memory */
#define HSDP_ERR_TIMEOUT        (-5)  /* a deadline passed; the missing ranks are named */
#define HSDP_ERR_PEER_LOST      (-6)  /* a process died or left; known before the deadline */
#define HSDP_ERR_MISMATCH       (-7)  /* ranks disagree; both sides are named */
#define HSDP_ERR_ABORTED        (-8)  /* the job failed earlier; the first reason is repeated */
#define HSDP_ERR_STATE          (-9)  /* right call, wrong moment; the text says what was due */
#define HSDP_ERR_UNAVAILABLE    (-10) /* library, device, address or name not there */
#define HSDP_ERR_ADDRESS_IN_USE (-11) /* the meeting point is held by somebody else */
#define HSDP_ERR_DEVICE         (-12) /* a device library said no; the call is named */
#define HSDP_ERR_FORKED         (-13) /* used in a child of the process that made it */
#define HSDP_ERR_BUSY           (-14) /* a second thread entered a job */
#define HSDP_ERR_NONFINITE      (-15) /* the gradient norm is inf or NaN, and the host asked */
#define HSDP_ERR_NOT_MEMBER     (-16) /* legal selector, but this rank is outside of it */
/* The size needed is in the call's count or size output. */
#define HSDP_ERR_BUFFER_TOO_SMALL (-17)

#define HSDP_ERR_DRIFT  (-18) /* replicas hold different values: verify=step:N, see step.h */
#define HSDP_ERR_DEFECT (-19) /* this plugin computes something wrong: verify=wrap, see model.h */

/* --------------------------------------------------------------------------------------- error */

#define HSDP_ERROR_MAX_RANKS 16u

/**
 * What went wrong. Owned by the caller; filled only when a call fails.
 *
 * Missing ranks are those that really did not come. A rank that was waited for may wait for another
 * by itself: then the message tells the way ("no sign of rank 1, which waits in step for rank 2,
 * which is stopped"), and missing_ranks has those at its end, here 2. Ranks that wait for each
 * other in a circle are a deadlock: then it has those that the operation itself waited for.
 *
 * Since: 1.0
 */
struct hsdp_error {
    size_t struct_size;       /* sizeof(struct hsdp_error) */
    int32_t status;           /* the value that the call returned */
    uint32_t n_missing_ranks; /* how many ranks are missing; the first 16 of them are below */
    uint64_t ticket;          /* the operation that failed; 0 = none */
    uint64_t sequence;        /* its number among those of its kind and group, from 1; 0 = none */
    uint64_t waited_ms;       /* how long this rank had waited, milliseconds */
    uint32_t missing_ranks[HSDP_ERROR_MAX_RANKS]; /* world ranks, ascending */
    char operation[32]; /* the call, "model.create", or what waited: "reduce"; never empty */
    char group[64];     /* name of the group; "" = none */
    char unit[64];      /* name of the unit; "" = none */
    char message[512];  /* one sentence with the values, never empty */
};

/* -------------------------------------------------------------------------------------- tensor */

#define HSDP_DEVICE_CPU  1 /* the values of DLPack's DLDeviceType */
#define HSDP_DEVICE_CUDA 2

#define HSDP_DTYPE_INT    0 /* the values of DLPack's DLDataTypeCode */
#define HSDP_DTYPE_UINT   1
#define HSDP_DTYPE_FLOAT  2
#define HSDP_DTYPE_BFLOAT 4

/**
 * A view of memory, layout-identical to DLPack's DLTensor and therefore frozen for ever (so it has
 * no struct_size, and arrays of it are allowed).
 *
 * Shapes: `shape` holds n_dims sizes in elements; n_dims 0 is a scalar of one element.
 * Ownership: in a view that the plugin returns, `base`, `shape` and `strides` belong to the
 * plugin and live as long as the object that was asked. In one that the host passes, all of it is
 * borrowed: for the call, or until the call's ticket is done.
 *
 * Since: 1.0
 */
struct hsdp_tensor {
    void *base;          /* start of the allocation; the first element is at base + byte_offset */
    int32_t device_type; /* HSDP_DEVICE_* */
    int32_t device_id;
    int32_t n_dims;
    uint8_t dtype_code;   /* HSDP_DTYPE_* */
    uint8_t dtype_bits;   /* fp32 32, bf16 16, fp16 16 */
    uint16_t dtype_lanes; /* 1 */
    int64_t *shape;
    int64_t *strides; /* in elements. From the host, NULL = row-major and contiguous; in views that
                         the plugin returns, never NULL unless n_dims is 0 (DLPack 1.2) */
    uint64_t byte_offset;
};

/* ------------------------------------------------------------------------------------ settings */

/**
 * Key/value text, for example {"sharding_strategy", "hsdp"}. Frozen for ever.
 *
 * Unknown keys, a key twice, keys that belong elsewhere, and values outside of their range are
 * HSDP_ERR_INVALID with a sentence that lists what is allowed. A key that is absent takes its
 * value from the environment variable HSDP_<KEY IN CAPITALS>, else its documented default; in a
 * class, from the plan. The effective value and where it came from can be read back (job->setting,
 * plan->setting, plan->class_setting).
 *
 * Since: 1.0
 */
struct hsdp_settings {
    const char *const *keys;   /* n_settings names; NULL when n_settings is 0 */
    const char *const *values; /* n_settings texts */
    uint64_t n_settings;
};

/* ------------------------------------------------------------------------------------- handles */

typedef struct hsdp_mesh hsdp_mesh;   /* named dimensions over ranks: mesh.h */
typedef struct hsdp_job hsdp_job;     /* one rank's membership of a run: job.h */
typedef struct hsdp_group hsdp_group; /* ranks that communicate: group.h */
typedef struct hsdp_plan hsdp_plan;   /* what is sharded how: plan.h */
typedef struct hsdp_model hsdp_model; /* a plan on a connected job: model.h */

/* ---------------------------------------------------------------------------------- root table */

struct hsdp_mesh_ops;
struct hsdp_job_ops;
struct hsdp_group_ops;
struct hsdp_plan_ops;
struct hsdp_model_ops;
struct hsdp_unit_ops;
struct hsdp_step_ops;
struct hsdp_diag_ops;

/**
 * What a plugin offers. Lives as long as the plugin is loaded; no member is NULL.
 *
 * Since: 1.0
 */
struct hsdp_api {
    size_t struct_size; /* the plugin's size of this table */
    uint32_t abi_major;
    uint32_t abi_minor;         /* the plugin's, which may be older or newer than the host's */
    const char *plugin_name;    /* for reports: "libhsdp", ... */
    const char *plugin_version; /* of the implementation, not of the ABI */
    const struct hsdp_mesh_ops *mesh;
    const struct hsdp_job_ops *job;
    const struct hsdp_group_ops *group;
    const struct hsdp_plan_ops *plan;
    const struct hsdp_model_ops *model;
    const struct hsdp_unit_ops *unit;
    const struct hsdp_step_ops *step;
    const struct hsdp_diag_ops *diag;

    /**
     * Describes the plugin without a job. Loads no library and calls none, starts nothing, asks no
     * device: a host may call it at any time.
     *
     * Shapes: JSON text with its NUL in ret_text, which is max_bytes long; *ret_bytes is the size
     * needed, also on HSDP_ERR_BUFFER_TOO_SMALL. An object with the members
     *
     *     plugin_name, plugin_version   texts, as in this table
     *     abi_major, abi_minor          numbers, as in this table
     *     strategies   a list of objects: name; aliases, a list of names; parameters_sharded_over,
     *                  gradients_sharded_over and optimizer_sharded_over: "nothing", "inner" (I in
     *                  plan.h) or "all" (R)
     *     transports   a list of objects: name; usable, true or false; reason, where it is false
     *     extensions   a list of names
     *     settings     a list of objects: key; homes, a list of "job", "plan", "class"; type, one
     *                  of "choice", "integer", "selector", "path", "list"; choices, of a choice or
     *                  a list; min and max, of an integer; default, or default_rule in words;
     *                  meaning
     *
     * and, where they apply,
     *
     *     cpu_paths    a list of objects: name, usable and reason, as of transports
     *
     * and in a transport max_ranks; n_devices, by the files of the system; libraries, a list of
     * objects: name, which dlopen takes; setting, which gives another one; path, where it is
     * found; file_version, as that file is called; min_version; symbols, the functions that it
     * must have; newer_symbols, a list of objects, the functions that are used where a version has
     * them: name, since, instead. Whether a library works only those can say who load it:
     * hsdp-info does.
     *
     * A plugin may add members and values; a reader passes over those that it does not know.
     * Errors: HSDP_ERR_BUFFER_TOO_SMALL; pass NULL and 0 to learn the size.
     * Threads: any.
     */
    int32_t (*describe)(char *ret_text, uint64_t max_bytes, uint64_t *ret_bytes,
                        struct hsdp_error *reterr);

    /**
     * Finds an optional table by name, for example HSDP_ADAMW_EXTENSION.
     *
     * Ownership: *ret_ops lives as long as the plugin; cast it to the table of that name.
     * Errors: HSDP_ERR_UNSUPPORTED for a name that this plugin does not know; the text lists
     * those it does.
     * Threads: any.
     */
    int32_t (*extension)(const char *name, const void **ret_ops, struct hsdp_error *reterr);
};

/**
 * The one symbol of ABI major 1; its signature is frozen for ever. A host passes the version it
 * was compiled with (HSDP_ABI_MAJOR, HSDP_ABI_MINOR). Any minor of major 1 is accepted: the host
 * tests for what was appended later with HSDP_HAS(). It never crashes, whatever the numbers are.
 *
 * Errors: HSDP_ERR_VERSION when host_major is not 1, with both versions in the text;
 * HSDP_ERR_INVALID when ret_api is NULL.
 * Threads: any.
 * Since: 1.0
 */
typedef int32_t (*hsdp_plugin_v1_fn)(uint32_t host_major, uint32_t host_minor,
                                     const struct hsdp_api **ret_api, struct hsdp_error *reterr);

#define HSDP_ENTRY_SYMBOL "hsdp_plugin_v1"

/**
 * True if `entry` (a function or field appended after 1.0) exists in `*table`: if its offset and
 * its size together are at most the table's struct_size.
 *
 * Since: 1.0
 */
#define HSDP_HAS(table, entry)                                                                     \
    ((table)->struct_size >=                                                                       \
     (size_t)((const char *)&(table)->entry - (const char *)(table)) + sizeof((table)->entry))

#ifdef __cplusplus
} /* extern "C" */

/* C++17 has no designated initializers, and a positional one warns under -Wextra. */
template <class T> static inline T hsdp_init_()
{
    T value = T();
    value.struct_size = sizeof(T);
    return value;
}
#define HSDP_INIT_(T) hsdp_init_<struct T>()
#else
#define HSDP_INIT_(T)                                                                              \
    {                                                                                              \
        .struct_size = sizeof(struct T)                                                            \
    }
#endif

#define HSDP_ERROR_INIT HSDP_INIT_(hsdp_error)

#endif /* HSDP_ABI_H */
