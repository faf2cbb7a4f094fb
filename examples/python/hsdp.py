# SPDX-License-Identifier: Apache-2.0
"""A host's side of libhsdp in Python: the headers of include/hsdp, by ctypes alone (3.8 or newer).

    plugin = hsdp.load()                       # HSDP_PLUGIN, HSDP_PLUGIN_PATH, or the installed one
    job = plugin.job.create(hsdp.JobSpec())    # one method for each function of each table
    plugin.job.connect(job)
    who = plugin.job.info(job)                 # outputs are returned, and are no arguments
    print(who.rank, who.world_ranks)

The headers say what each function does; here stands how to call it:

  * a failure raises hsdp.Error, whose text is the plugin's sentence;
  * strings are str, arrays are lists, settings are a dict: {"sharding_strategy": "hsdp"};
  * a stream may be left out;
  * a function that gives a ticket returns its number if it is called with ticket=True; else nobody
    waits for it, and unshard waits itself;
  * mesh.coords and group.members fill an array of yours: (ctypes.c_uint32 * n)();
  * a function that a plugin is too old for is no attribute of its table: ask hasattr().

A plugin is never unloaded, and destroy() is up to you: what it was made from may go first.

When several ranks fail at a time, hsdp-run --prefix keeps their tracebacks apart. A view that is
used where it may not be ends the program by a signal; python3 -X faulthandler says in which line.
"""
import ctypes
import math
import os
import stat
from ctypes import CFUNCTYPE, POINTER, byref, sizeof
from ctypes import c_char, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint8, c_uint16
from ctypes import c_uint32, c_uint64, c_void_p

# ---------------------------------------------------------------------------------------- constants

ABI_MAJOR = 1
ABI_MINOR = 0
ENTRY_SYMBOL = "hsdp_plugin_v1"
ADAMW_EXTENSION = "hsdp.adamw"

OK = 0
PENDING = 1
ERR_INVALID = -1
ERR_VERSION = -2
ERR_UNSUPPORTED = -3
ERR_NO_MEMORY = -4
ERR_TIMEOUT = -5
ERR_PEER_LOST = -6
ERR_MISMATCH = -7
ERR_ABORTED = -8
ERR_STATE = -9
ERR_UNAVAILABLE = -10
ERR_ADDRESS_IN_USE = -11
ERR_DEVICE = -12
ERR_FORKED = -13
ERR_BUSY = -14
ERR_NONFINITE = -15
ERR_NOT_MEMBER = -16
ERR_BUFFER_TOO_SMALL = -17
ERR_DRIFT = -18
ERR_DEFECT = -19
ERROR_MAX_RANKS = 16

DEVICE_CPU, DEVICE_CUDA = 1, 2
DTYPE_INT, DTYPE_UINT, DTYPE_FLOAT, DTYPE_BFLOAT = 0, 1, 2, 4
MESH_MAX_DIMS, DIM_NAME_MAX = 8, 31
MEMORY_DEVICE, MEMORY_PINNED = 0, 1
LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG = 0, 1, 2, 3
COLL_BARRIER, COLL_ALL_REDUCE, COLL_ALL_GATHER, COLL_REDUCE_SCATTER = 1, 2, 3, 4
COLL_ALL_TO_ALL, COLL_BROADCAST, COLL_SEND, COLL_RECV = 5, 6, 7, 8
REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN = 0, 1, 2, 3
PARAM_FROZEN, PARAM_COPY, PARAM_MAX_DIMS = 1, 2, 8
NO_SLOT = ALL_RANKS = 0xFFFFFFFF
SHARD_PARAM, SHARD_GRAD, SHARD_STEP = 0, 1, 2
VIEW_PARAM, VIEW_GRAD = 0, 1
FLAT_MASTER, FLAT_GRAD, FLAT_STATE = 0, 1, 16
USE_FORWARD, USE_BACKWARD, USE_BACKWARD_SET = 0, 1, 2
SCOPE_NONE, SCOPE_INNER, SCOPE_FULL = 0, 1, 2

# ------------------------------------------------------------------------------------------ structs


def _to_c(value, c_type):
    """What ctypes does not convert by itself: str, list, dict of settings, callbacks."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        texts = [str(text) for text in value.values()]
        return Settings(keys=list(value), values=texts, n_settings=len(value))
    if isinstance(value, (list, tuple)):
        c_element = c_type._type_
        return (c_element * len(value))(*[_to_c(element, c_element) for element in value])
    if isinstance(value, Struct) and c_type is POINTER(type(value)):
        return ctypes.pointer(value)
    if callable(value) and not isinstance(value, c_type):
        return c_type(value)
    return value


class Struct(ctypes.Structure):
    """A struct of the ABI: fields by keyword, the others zero. It knows its struct_size."""

    def __init__(self, **fields):
        super().__init__()
        if self._fields_[0][0] == "struct_size":
            self.struct_size = sizeof(self)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        types = dict(self._fields_)
        if name not in types:  # ctypes would make an attribute of a misspelt field
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        try:
            super().__setattr__(name, _to_c(value, types[name]))
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.{name}: {error}") from None


class Tensor(Struct):
    """A view of memory, as DLPack has it. tensor() makes one of the host's, values() reads one."""

    _fields_ = [
        ("base", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("n_dims", c_int32),
        ("dtype_code", c_uint8),
        ("dtype_bits", c_uint8),
        ("dtype_lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class Settings(Struct):
    _fields_ = [
        ("keys", POINTER(c_char_p)),
        ("values", POINTER(c_char_p)),
        ("n_settings", c_uint64),
    ]


class ErrorInfo(Struct):
    """struct hsdp_error; Error is what is raised."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("status", c_int32),
        ("n_missing_ranks", c_uint32),
        ("ticket", c_uint64),
        ("sequence", c_uint64),
        ("waited_ms", c_uint64),
        ("missing_ranks", c_uint32 * ERROR_MAX_RANKS),
        ("operation", c_char * 32),
        ("group", c_char * 64),
        ("unit", c_char * 64),
        ("message", c_char * 512),
    ]


class MeshSpec(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dim_sizes", POINTER(c_int64)),
        ("dim_names", POINTER(c_char_p)),
        ("data_dims", c_char_p),
        ("n_dims", c_uint32),
        ("world_ranks", c_uint32),
        ("rank", c_uint32),
        ("ranks_per_node", c_uint32),
    ]


class MeshInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_dims", c_uint32),
        ("world_ranks", c_uint32),
        ("rank", c_uint32),
        ("n_data_ranks", c_uint32),
        ("ranks_per_node", c_uint32),
        ("reserved", c_uint32),
    ]


class JobSpec(Struct):
    """Keep it as long as the job when it has callbacks: they are Python's, and borrowed."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("settings", Settings),
        ("kv_put", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_uint64)),
        ("kv_get", CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_uint64, POINTER(c_uint64),
                             c_uint32)),
        ("memory_alloc", CFUNCTYPE(c_void_p, c_void_p, c_uint64, c_uint64, c_int32, c_void_p)),
        ("memory_free", CFUNCTYPE(None, c_void_p, c_void_p, c_uint64, c_int32, c_void_p)),
        ("log", CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
        ("on_abort", CFUNCTYPE(None, c_void_p, POINTER(ErrorInfo))),
        ("user", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("rank", c_uint32),
        ("world_ranks", c_uint32),
        ("local_rank", c_uint32),
        ("local_ranks", c_uint32),
    ]


class JobInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("rank", c_uint32),
        ("world_ranks", c_uint32),
        ("local_rank", c_uint32),
        ("local_ranks", c_uint32),
        ("n_tickets_open", c_uint64),
        ("timeout_ms", c_uint64),
        ("is_connected", c_uint32),
        ("reserved", c_uint32),
    ]


class CollSpec(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("input", POINTER(Tensor)),
        ("output", POINTER(Tensor)),
        ("send_elems", POINTER(c_uint64)),
        ("recv_elems", POINTER(c_uint64)),
        ("timeout_ms", c_uint64),
        ("kind", c_int32),
        ("reduce", c_int32),
        ("peer", c_uint32),
        ("reserved", c_uint32),
    ]


class GroupSpec(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("selector", c_char_p),
        ("timeout_ms", c_uint64),
    ]


class GroupInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("timeout_ms", c_uint64),
        ("n_bytes_sent", c_uint64),
        ("n_bytes_received", c_uint64),
        ("n_ranks", c_uint32),
        ("index", c_uint32),
        ("is_connected", c_uint32),
        ("reserved", c_uint32),
    ]


class ClassSpec(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("replicated_over", c_char_p),
        ("reduced_over", c_char_p),
        ("settings", Settings),
    ]


class ParamSpec(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("tied_to", c_char_p),
        ("tied_over", c_char_p),
        ("block_elems", c_uint64),
        ("n_dims", c_uint32),
        ("unit", c_uint32),
        ("hyper_group", c_uint32),
        ("flags", c_uint32),
    ]


class PlanInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("param_bytes", c_uint64),
        ("master_bytes", c_uint64),
        ("grad_bytes", c_uint64),
        ("unsharded_bytes", c_uint64),
        ("grad_slot_bytes", c_uint64),
        ("n_state_elems", c_uint64),
        ("padding_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("n_classes", c_uint32),
        ("n_units", c_uint32),
        ("n_params", c_uint32),
        ("n_notes", c_uint32),
    ]


class ClassInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("strategy", c_char_p),
        ("param_dims", c_char_p),
        ("grad_dims", c_char_p),
        ("step_dims", c_char_p),
        ("reduce_dims", c_char_p),
        ("replicated_dims", c_char_p),
        ("divisor", c_uint32),
        ("reserved", c_uint32),
    ]


class UnitInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("class_index", c_uint32),
        ("first_param", c_uint32),
        ("n_params", c_uint32),
        ("n_buffers", c_uint32),
        ("divisor", c_uint32),
        ("param_slot", c_uint32),
        ("grad_slot", c_uint32),
        ("reserved", c_uint32),
    ]


class BufferInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_elems", c_uint64),
        ("n_padding_elems", c_uint64),
        ("param_shard_elems", c_uint64),
        ("grad_shard_elems", c_uint64),
        ("step_shard_elems", c_uint64),
        ("is_frozen", c_uint32),
        ("reserved", c_uint32),
    ]


class ParamInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("tied_over", c_char_p),
        ("n_elems", c_uint64),
        ("offset_elems", c_uint64),
        ("block_elems", c_uint64),
        ("n_dims", c_uint32),
        ("unit", c_uint32),
        ("buffer", c_uint32),
        ("storage", c_uint32),
        ("hyper_group", c_uint32),
        ("flags", c_uint32),
    ]


class Segment(Struct):
    _fields_ = [
        ("param", c_uint32),
        ("buffer", c_uint32),
        ("param_offset_elems", c_uint64),
        ("shard_offset_elems", c_uint64),
        ("n_elems", c_uint64),
    ]


class ModelInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("step", c_uint64),
        ("param_bytes", c_uint64),
        ("master_bytes", c_uint64),
        ("grad_bytes", c_uint64),
        ("grad_slot_bytes", c_uint64),
        ("unsharded_bytes", c_uint64),
        ("state_bytes", c_uint64),
        ("n_states", c_uint32),
        ("is_stepping", c_uint32),
        ("is_editing", c_uint32),
        ("reserved", c_uint32),
    ]


class StepSpec(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("max_norm", c_double),
        ("norm_p", c_double),
        ("gradient_scale", c_double),
        ("weight", c_double),
        ("stream", c_void_p),
        ("error_if_nonfinite", c_uint32),
        ("has_weight", c_uint32),
    ]


class StepInfo(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("norm", c_double),
        ("clip", c_double),
        ("factor", c_double),
        ("weight", c_double),
        ("step", c_uint64),
        ("is_nonfinite", c_uint32),
        ("reserved", c_uint32),
    ]


class AdamwSpec(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("learning_rate", POINTER(c_double)),
        ("weight_decay", POINTER(c_double)),
        ("step", c_uint64),
        ("beta1", c_double),
        ("beta2", c_double),
        ("epsilon", c_double),
        ("stream", c_void_p),
        ("n_hyper_groups", c_uint32),
        ("reserved", c_uint32),
    ]


# Handles: pointers to what only the plugin knows, each of a type of its own.
Mesh = POINTER(type("hsdp_mesh", (ctypes.Structure,), {}))
Job = POINTER(type("hsdp_job", (ctypes.Structure,), {}))
Group = POINTER(type("hsdp_group", (ctypes.Structure,), {}))
Plan = POINTER(type("hsdp_plan", (ctypes.Structure,), {}))
Model = POINTER(type("hsdp_model", (ctypes.Structure,), {}))

# ---------------------------------------------------------------------------------------- functions


class Error(Exception):
    """A call that failed. Its text is the plugin's sentence; the fields are those of the header."""

    def __init__(self, info):
        super().__init__(info.message.decode(errors="replace"))
        self.status = info.status
        self.ticket = info.ticket
        self.sequence = info.sequence
        self.waited_ms = info.waited_ms
        self.n_missing_ranks = info.n_missing_ranks
        self.missing_ranks = info.missing_ranks[: min(info.n_missing_ranks, ERROR_MAX_RANKS)]
        self.operation = info.operation.decode(errors="replace")
        self.group = info.group.decode(errors="replace")
        self.unit = info.unit.decode(errors="replace")


class Call:
    """A call while it is made: what is left of its inputs, and its outputs so far."""

    def __init__(self, inputs, wants_ticket, n_room):
        self.inputs = list(inputs)
        self.outputs = []
        self.wants_ticket = wants_ticket
        self.n_room = n_room
        self.n_needed = c_uint64(0)


class In:
    """A parameter that the caller passes: by value, or a struct by its address."""

    def __init__(self, c_type):
        self.c_types = [POINTER(c_type) if issubclass(c_type, Struct) else c_type]

    def arguments(self, call):
        if not call.inputs:
            raise TypeError("too few arguments")
        return [_to_c(call.inputs.pop(0), self.c_types[0])]


class Room:
    """An array of the caller's that is filled: of a list only a copy would be."""

    def __init__(self, c_type):
        self.c_type = c_type
        self.c_types = [POINTER(c_type)]

    def arguments(self, call):
        array = call.inputs.pop(0) if call.inputs else None
        if not isinstance(array, ctypes.Array):
            raise TypeError(f"room for the result is an array: ({self.c_type.__name__} * n)()")
        return [array]


class Stream:
    """The stream of the device. None, or left out, it is the default stream."""

    c_types = [c_void_p]

    def arguments(self, call):
        return [call.inputs.pop(0) if call.inputs else None]


class Out:
    """A parameter that is returned."""

    def __init__(self, c_type):
        self.c_type = c_type
        self.c_types = [POINTER(c_type)]

    def arguments(self, call):
        output = self.c_type()
        call.outputs.append(output)
        return [byref(output)]


class Ticket(Out):
    """The number of the work that was started: returned if the caller asks for it, else NULL."""

    def __init__(self):
        super().__init__(c_uint64)

    def arguments(self, call):
        return super().arguments(call) if call.wants_ticket else [None]


class OutArray:
    """As many as there are, however many: returned as a list, characters as str."""

    def __init__(self, c_type, stride_bytes=None):
        self.c_type = c_type
        self.stride = [] if stride_bytes is None else [stride_bytes]
        self.c_types = [POINTER(c_type)] + [c_uint64] * len(self.stride)
        self.c_types += [c_uint64, POINTER(c_uint64)]

    def arguments(self, call):
        output = (self.c_type * call.n_room)()
        call.outputs.append(output)
        return [output] + self.stride + [call.n_room, byref(call.n_needed)]


def _from_c(output, n_needed):
    """An output as Python has it: a number, a str, a list, a struct or a handle."""
    if isinstance(output, ctypes.Array):
        return output.value.decode() if output._type_ is c_char else output[:n_needed]
    if isinstance(output, c_char_p):
        return output.value.decode()
    return getattr(output, "value", output)


class Function:
    """A function of a table: its parameters but for reterr, which becomes an exception."""

    def __init__(self, *parameters):
        self.parameters = [In(p) if isinstance(p, type) else p for p in parameters]
        c_types = [c_type for parameter in self.parameters for c_type in parameter.c_types]
        self.c_type = CFUNCTYPE(c_int32, *c_types, POINTER(ErrorInfo))

    def bind(self, pointer):
        def function(*inputs, ticket=False):
            status = ERR_BUFFER_TOO_SMALL
            call = Call(inputs, ticket, 0)
            while status == ERR_BUFFER_TOO_SMALL:  # there may be more of it from time to time
                err = ErrorInfo()
                call = Call(inputs, ticket, call.n_needed.value)
                arguments = [a for parameter in self.parameters for a in parameter.arguments(call)]
                if call.inputs:
                    raise TypeError("too many arguments")
                status = pointer(*arguments, byref(err))
            if status < 0:
                raise Error(err)
            outputs = [_from_c(output, call.n_needed.value) for output in call.outputs]
            if len(outputs) > 1:
                return tuple(outputs)
            return outputs[0] if outputs else status  # OK, or PENDING

        return function


class Destroy:
    """Gives an object back; None is accepted."""

    def __init__(self, handle):
        self.c_type = CFUNCTYPE(None, handle)

    def bind(self, pointer):
        return pointer


# ------------------------------------------------------------------------------------------- tables


def _table(name, **functions):
    """The C struct of a table: its size, and then its functions."""
    fields = [("struct_size", c_size_t)]
    fields += [(field, function.c_type) for field, function in functions.items()]
    return type(name, (ctypes.Structure,), {"_fields_": fields, "functions": functions})


MeshOps = _table(
    "MeshOps",
    create=Function(MeshSpec, Out(Mesh)),
    info=Function(Mesh, Out(MeshInfo)),
    dim=Function(Mesh, c_uint32, Out(c_char_p), Out(c_uint32)),
    coords=Function(Mesh, c_uint32, Room(c_uint32), c_uint64),
    members=Function(Mesh, c_char_p, c_uint32, OutArray(c_uint32)),
    destroy=Destroy(Mesh),
)

JobOps = _table(
    "JobOps",
    create=Function(JobSpec, Out(Job)),
    connect=Function(Job),
    close=Function(Job),
    destroy=Destroy(Job),
    abort=Function(Job, c_char_p),
    status=Function(Job),
    info=Function(Job, Out(JobInfo)),
    setting=Function(Job, c_char_p, Out(c_char_p), Out(c_char_p)),
    setting_set=Function(Job, c_char_p, c_char_p),
    phase_push=Function(Job, c_char_p, c_uint64),
    phase_pop=Function(Job),
    ticket_wait=Function(Job, c_uint64, c_uint64),
    ticket_order=Function(Job, c_uint64, Stream()),
)

GroupOps = _table(
    "GroupOps",
    create=Function(Job, Mesh, GroupSpec, Out(Group)),
    connect=Function(Job),
    info=Function(Group, Out(GroupInfo)),
    members=Function(Group, Room(c_uint32), c_uint64),
    start=Function(Group, CollSpec, c_uint64, c_uint64, Stream(), Ticket()),
    destroy=Destroy(Group),
)

PlanOps = _table(
    "PlanOps",
    create=Function(Mesh, Settings, Out(Plan)),
    add_class=Function(Plan, ClassSpec, Out(c_uint32)),
    add_unit=Function(Plan, c_char_p, c_uint32, Out(c_uint32)),
    add_param=Function(Plan, ParamSpec, Out(c_uint32)),
    finish=Function(Plan),
    info=Function(Plan, Out(PlanInfo)),
    mesh=Function(Plan, Out(Mesh)),
    setting=Function(Plan, c_char_p, Out(c_char_p), Out(c_char_p)),
    class_setting=Function(Plan, c_uint32, c_char_p, Out(c_char_p), Out(c_char_p)),
    class_info=Function(Plan, c_uint32, Out(ClassInfo)),
    unit_info=Function(Plan, c_uint32, Out(UnitInfo)),
    buffer_info=Function(Plan, c_uint32, c_uint32, Out(BufferInfo)),
    param_info=Function(Plan, c_uint32, Out(ParamInfo)),
    param_find=Function(Plan, c_char_p, Out(c_uint32)),
    segments=Function(Plan, c_uint32, c_int32, c_uint32, OutArray(Segment, sizeof(Segment))),
    writer=Function(Plan, c_uint32, c_int32, c_uint32, Out(c_uint32)),
    report=Function(Plan, OutArray(c_char)),
    destroy=Destroy(Plan),
)

ModelOps = _table(
    "ModelOps",
    create=Function(Job, Plan, Out(Model)),
    info=Function(Model, Out(ModelInfo)),
    param_view=Function(Model, c_uint32, c_int32, Out(Tensor)),
    flat_view=Function(Model, c_uint32, c_uint32, c_int32, Out(Tensor)),
    state_create=Function(Model, c_char_p, c_char_p, Out(c_uint32)),
    state_info=Function(Model, c_uint32, Out(c_char_p), Out(c_char_p)),
    edit_begin=Function(Model, Stream()),
    edit_end=Function(Model, Stream()),
    import_param=Function(Model, c_uint32, c_int32, Tensor, c_uint32, Stream()),
    export_param=Function(Model, c_uint32, c_int32, Tensor, c_uint32, Stream()),
    sync=Function(Model, Stream()),
    destroy=Destroy(Model),
)

UnitOps = _table(
    "UnitOps",
    unshard=Function(Model, c_uint32, c_int32, Stream(), Ticket()),
    release=Function(Model, c_uint32, Stream()),
    grad_add=Function(Model, c_uint32, Tensor, Stream()),
    backward_begin=Function(Model, POINTER(c_uint32), c_uint64, c_int32, Out(c_uint64)),
    reduce=Function(Model, c_uint64, c_uint32, Stream(), Ticket()),
    skip=Function(Model, c_uint64, c_uint32, Stream(), Ticket()),
    backward_end=Function(Model, c_uint64, Stream(), Ticket()),
)

StepOps = _table(
    "StepOps",
    begin=Function(Model, StepSpec, Ticket()),
    result=Function(Model, Out(StepInfo)),
    factor_view=Function(Model, Out(Tensor)),
    end=Function(Model, Stream(), Ticket()),
    discard=Function(Model, Stream()),
)

DiagOps = _table(
    "DiagOps",
    report=Function(Job, c_char_p, OutArray(c_char)),
    counter=Function(Job, c_char_p, Out(c_uint64)),
    counter_name=Function(Job, c_uint64, Out(c_char_p)),
)

AdamwOps = _table("AdamwOps", step=Function(Model, AdamwSpec))


class Api(ctypes.Structure):
    """struct hsdp_api, the root table."""

    functions = {
        "describe": Function(OutArray(c_char)),
        "extension": Function(c_char_p, Out(c_void_p)),
    }
    _fields_ = [
        ("struct_size", c_size_t),
        ("abi_major", c_uint32),
        ("abi_minor", c_uint32),
        ("plugin_name", c_char_p),
        ("plugin_version", c_char_p),
        ("mesh", POINTER(MeshOps)),
        ("job", POINTER(JobOps)),
        ("group", POINTER(GroupOps)),
        ("plan", POINTER(PlanOps)),
        ("model", POINTER(ModelOps)),
        ("unit", POINTER(UnitOps)),
        ("step", POINTER(StepOps)),
        ("diag", POINTER(DiagOps)),
        ("describe", functions["describe"].c_type),
        ("extension", functions["extension"].c_type),
    ]


class Table:
    """The functions of a C table as methods; what the plugin's own is too short for is missing."""

    def __init__(self, c_table):
        for name, function in c_table.functions.items():
            field = getattr(type(c_table), name)
            if field.offset + field.size <= c_table.struct_size:
                setattr(self, name, function.bind(getattr(c_table, name)))


class Plugin(Table):
    """A loaded plugin: describe(), and the tables of the ABI."""

    def __init__(self, path, api):
        super().__init__(api)
        self.path = path
        self.name = api.plugin_name.decode()
        self.version = api.plugin_version.decode()
        self.abi = (api.abi_major, api.abi_minor)
        self.mesh = Table(api.mesh.contents)
        self.job = Table(api.job.contents)
        self.group = Table(api.group.contents)
        self.plan = Table(api.plan.contents)
        self.model = Table(api.model.contents)
        self.unit = Table(api.unit.contents)
        self.step = Table(api.step.contents)
        self.diag = Table(api.diag.contents)

    def adamw(self):
        """The table of the extension hsdp.adamw."""
        ops = self.extension(ADAMW_EXTENSION)
        return Table(ctypes.cast(ops, POINTER(AdamwOps)).contents)


# ------------------------------------------------------------------------------------------- loader

# Where packages and make install put plugins, unless they were told otherwise.
PLUGIN_DIRS = ("/usr/local/lib/hsdp", "/usr/lib/hsdp")


def _refuse(status, text):
    raise Error(ErrorInfo(status=status, operation="load", message=text[:500]))


def _find(strategy):
    """The first file there is of hsdp_<strategy>.so and hsdp.so in the folders."""
    names = ["hsdp.so"]
    if strategy and strategy.replace("_", "").replace("-", "").isalnum():
        names.insert(0, f"hsdp_{strategy}.so")
    folders = [folder for folder in os.environ.get("HSDP_PLUGIN_PATH", "").split(":") if folder]
    folders += PLUGIN_DIRS
    for folder in folders:
        for name in names:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    return _refuse(
        ERR_UNAVAILABLE,
        f"loader: found no {' or '.join(names)}; set HSDP_PLUGIN to its path or HSDP_PLUGIN_PATH "
        f"to its folder; looked in {', '.join(folders)}",
    )


def _check_trust(path):
    """Code that anybody may have changed is not loaded."""
    real = os.path.realpath(path)
    for place in (os.path.dirname(path), real, os.path.dirname(real)):
        info = os.stat(place)
        is_sticky = stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX
        if info.st_mode & stat.S_IWOTH and not is_sticky:
            _refuse(ERR_UNAVAILABLE, f"{path}: anybody can change it: {place} is writable by all")
        if info.st_uid not in (0, os.getuid()):
            _refuse(ERR_UNAVAILABLE, f"{path}: {place} belongs to user {info.st_uid}, a stranger")


def load(path=None, strategy=None):
    """Finds and loads a plugin, as hsdp_plugin_load of loader.h does, and agrees on the version.

    `path` is the only candidate where it is given; so is the environment's HSDP_PLUGIN. Else a
    plugin made for `strategy` is preferred.
    """
    path = os.path.abspath(path or os.environ.get("HSDP_PLUGIN") or _find(strategy))
    try:
        _check_trust(path)
        library = ctypes.CDLL(path)
    except OSError as error:
        text = error.strerror or str(error)  # dlopen's begins with the path, too
        _refuse(ERR_UNAVAILABLE, text if text.startswith(path) else f"{path}: {text}")
    if not hasattr(library, ENTRY_SYMBOL):
        _refuse(ERR_UNAVAILABLE, f"{path}: is no plugin of ABI 1: it has no symbol {ENTRY_SYMBOL}")
    entry = library[ENTRY_SYMBOL]
    entry.restype = c_int32
    entry.argtypes = [c_uint32, c_uint32, POINTER(POINTER(Api)), POINTER(ErrorInfo)]
    api = POINTER(Api)()
    err = ErrorInfo()
    if entry(ABI_MAJOR, ABI_MINOR, byref(api), byref(err)) < 0:
        _refuse(err.status, f"{path}: {err.message.decode(errors='replace')}")
    end_of_1_0 = Api.extension.offset + Api.extension.size
    if not api or api.contents.struct_size < end_of_1_0 or api.contents.abi_major != ABI_MAJOR:
        _refuse(ERR_VERSION, f"{path}: accepted ABI {ABI_MAJOR}, but has no such table")
    return Plugin(path, api.contents)


# ------------------------------------------------------------------------------------------ tensors

# How memoryview and array call each dtype. 16-bit floats are numbers of 16 bits to them.
FORMATS = {
    (DTYPE_FLOAT, 64): "d",
    (DTYPE_FLOAT, 32): "f",
    (DTYPE_FLOAT, 16): "H",
    (DTYPE_BFLOAT, 16): "H",
    (DTYPE_INT, 64): "q",
    (DTYPE_INT, 32): "i",
    (DTYPE_INT, 8): "b",
    (DTYPE_UINT, 8): "B",
}


def values(tensor):
    """The elements of a tensor as a flat memoryview on its memory: nothing is copied.

    What may be read and written when stands in model.h. Parameter views may only be read, and end
    the program when they are written: take values(view).toreadonly(). With NumPy,
    numpy.asarray(values(view)) is an array on the same memory.
    """
    n_elems = math.prod(tensor.shape[: tensor.n_dims])
    n_bytes = n_elems * tensor.dtype_bits // 8
    memory = (c_char * n_bytes).from_address((tensor.base or 0) + tensor.byte_offset)
    return memoryview(memory).cast("B").cast(FORMATS[tensor.dtype_code, tensor.dtype_bits])


def _check_format(memory, dtype):
    """Doubles that are taken for floats would be other numbers. Bytes may be anything."""
    view = memoryview(memory)
    is_kind = view.itemsize == 2 or (view.format[-1] in "fd") == (dtype[0] == DTYPE_FLOAT)
    if view.itemsize > 1 and not (view.itemsize * 8 == dtype[1] and is_kind):
        raise TypeError(
            f"the memory has elements of format {view.format!r}, {view.itemsize} bytes each; "
            f"(dtype_code, dtype_bits) is {dtype}"
        )


def tensor(memory, shape, dtype=(DTYPE_FLOAT, 32)):
    """A tensor on memory of the host that can be written: an array.array, a NumPy array, ...

    Its elements are of that dtype, or bytes. 16-bit floats may be any elements of 16 bits.
    """
    _check_format(memory, dtype)
    n_bytes = math.prod(shape) * dtype[1] // 8
    found = Tensor(device_type=DEVICE_CPU, n_dims=len(shape), shape=list(shape))
    found.dtype_code, found.dtype_bits = dtype
    found.dtype_lanes = 1
    found.base = ctypes.addressof((c_char * n_bytes).from_buffer(memory))
    found.__dict__["memory"] = memory  # lives as long as the tensor
    return found
