# SPDX-License-Identifier: Apache-2.0
"""python_use.py: a host of examples/python/hsdp.py that calls what minimal.py does not."""
import array
import json
import sys
from ctypes import ArgumentError, c_uint32, sizeof

import hsdp


def expect(found, wanted):
    if found != wanted:
        sys.exit(f"{found!r} is not {wanted!r}")


def expect_error(status, text, function, *arguments):
    try:
        function(*arguments)
    except hsdp.Error as error:
        expect(error.status, status)
        if text not in str(error):
            sys.exit(f'"{error}" does not say "{text}"')
        return error
    return sys.exit(f"{text}: was not refused")


def expect_misuse(function, *arguments, **fields):
    try:
        function(*arguments, **fields)
    except (TypeError, AttributeError, ArgumentError):
        return
    sys.exit(f"{arguments} {fields}: was not refused")


def mesh_use(plugin, who):
    """Lists, pairs, strings, and arrays of the caller."""
    mesh = plugin.mesh.create(
        hsdp.MeshSpec(
            dim_names=["dp", "tp"],
            dim_sizes=[-1, 1],
            n_dims=2,
            world_ranks=who.world_ranks,
            rank=who.rank,
        )
    )
    expect(plugin.mesh.dim(mesh, 0), ("dp", who.world_ranks))
    expect(plugin.mesh.members(mesh, "dp", who.rank), list(range(who.world_ranks)))
    coords = (c_uint32 * hsdp.MESH_MAX_DIMS)()
    expect(plugin.mesh.coords(mesh, who.rank, coords, len(coords)), hsdp.OK)
    expect(coords[:2], [who.rank, 0])
    expect_misuse(plugin.mesh.coords, mesh, who.rank, [0, 0], 2)
    expect_misuse(plugin.mesh.coords, mesh, who.rank)
    expect_error(hsdp.ERR_INVALID, "xp", plugin.mesh.members, mesh, "xp", who.rank)
    expect_misuse(plugin.mesh.members, mesh, "dp")
    expect_misuse(plugin.mesh.members, mesh, "dp", 0, 1, 2)
    expect_misuse(plugin.job.connect, mesh)
    expect_misuse(hsdp.MeshSpec, dim_nams=["dp"])
    return mesh


def plan_use(plugin, mesh):
    plan = plugin.plan.create(mesh, {"sharding_strategy": "zero2", "slots": 3})
    dense = plugin.plan.add_class(
        plan, hsdp.ClassSpec(name="dense", settings={"param_dtype": "bf16"})
    )
    unit = plugin.plan.add_unit(plan, "block", dense)
    spec = hsdp.ParamSpec(name="w", shape=[3, 5], n_dims=2, unit=unit)
    expect(plugin.plan.add_param(plan, spec), 0)
    plugin.plan.finish(plan)
    expect(plugin.plan.setting(plan, "slots"), ("3", "host"))
    expect(plugin.plan.class_setting(plan, dense, "param_dtype"), ("bf16", "host"))
    expect(plugin.plan.param_find(plan, "w"), 0)
    expect(plugin.plan.param_info(plan, 0).shape[:2], [3, 5])
    expect(plugin.plan.unit_info(plan, 0).name, b"block")
    expect("units" in json.loads(plugin.plan.report(plan)), True)
    owned = [
        segment.n_elems
        for rank in range(plugin.mesh.info(plugin.plan.mesh(plan)).world_ranks)
        for segment in plugin.plan.segments(plan, unit, hsdp.SHARD_STEP, rank)
    ]
    expect(sum(owned), 15)
    return plan


def group_use(plugin, job, mesh, who):
    """An all-reduce of the host's own memory, and its ticket."""
    group = plugin.group.create(job, mesh, hsdp.GroupSpec(selector="dp"))
    plugin.group.connect(job)
    expect(plugin.group.info(group).n_ranks, who.world_ranks)
    members = (c_uint32 * who.world_ranks)()
    plugin.group.members(group, members, len(members))
    expect(list(members), list(range(who.world_ranks)))
    mine = array.array("f", [1.0 + who.rank, 0.5])
    total = array.array("f", [0.0, 0.0])
    coll = hsdp.CollSpec(
        kind=hsdp.COLL_ALL_REDUCE,
        reduce=hsdp.REDUCE_SUM,
        input=hsdp.tensor(mine, [2]),
        output=hsdp.tensor(total, [2]),
    )
    ticket = plugin.group.start(group, [coll], sizeof(coll), 1, ticket=True)
    expect(plugin.job.ticket_wait(job, ticket, 2**64 - 1), hsdp.OK)
    expect(list(total), [who.world_ranks * (who.world_ranks + 1) / 2, who.world_ranks / 2])
    plugin.group.destroy(group)


def model_use(plugin, job, plan):
    """Another dtype, a state, and the optimizer of the extension."""
    model = plugin.model.create(job, plan)
    state = plugin.model.state_create(model, "exp_avg", "fp32")
    expect(plugin.model.state_info(model, state), ("exp_avg", "fp32"))
    full = array.array("f", [0.5] * 15)
    plugin.model.edit_begin(model)
    plugin.model.import_param(
        model, 0, hsdp.FLAT_MASTER, hsdp.tensor(full, [3, 5]), hsdp.ALL_RANKS
    )
    plugin.model.edit_end(model)
    ticket = plugin.unit.unshard(model, 0, hsdp.USE_FORWARD, ticket=True)
    expect(plugin.job.ticket_wait(job, ticket, 2**64 - 1), hsdp.OK)
    view = plugin.model.param_view(model, 0, hsdp.VIEW_PARAM)
    expect(set(hsdp.values(view)), {0x3F00})  # 1/2 in bf16
    plugin.unit.release(model, 0)
    opened = plugin.unit.backward_begin(model, [0], 1, hsdp.SCOPE_FULL)
    plugin.unit.skip(model, opened, 0)
    plugin.unit.backward_end(model, opened)
    plugin.step.begin(model, hsdp.StepSpec(max_norm=1.0))
    expect(plugin.step.result(model).norm, 0.0)
    spec = hsdp.AdamwSpec(learning_rate=[0.1], weight_decay=[0.0], n_hyper_groups=1)
    spec.beta1, spec.beta2, spec.epsilon = 0.9, 0.95, 1e-8
    plugin.adamw().step(model, spec)
    plugin.step.end(model)
    expect(plugin.diag.counter(job, "steps"), 1)
    expect(plugin.model.info(model).step, 1)
    return model


def failure_use(plugin, job, reasons):
    """An abort, the reason that every later call repeats, and the callback."""
    plugin.job.abort(job, "enough: \N{GREEK SMALL LETTER ALPHA}")
    error = expect_error(hsdp.ERR_ABORTED, "enough: \u03b1", plugin.group.connect, job)
    expect(error.operation, "group.connect")
    expect(error.missing_ranks, [])
    expect(len(reasons), 1)


def main():
    plugin = hsdp.load()
    expect(plugin.abi[0], hsdp.ABI_MAJOR)
    expect(json.loads(plugin.describe())["plugin_name"], plugin.name)
    expect(hasattr(plugin.unit, "unshard"), True)
    older = hsdp.Table(hsdp.DiagOps(struct_size=hsdp.DiagOps.counter.offset))
    expect([hasattr(older, "report"), hasattr(older, "counter")], [True, False])
    expect_error(hsdp.ERR_UNSUPPORTED, "hsdp.adamw", plugin.extension, "no.such.extension")
    reasons = []
    spec = hsdp.JobSpec(
        settings={"nccl_timeout_seconds": 20},
        on_abort=lambda user, reason: reasons.append(reason.contents.message),
    )
    job = plugin.job.create(spec)
    plugin.job.connect(job)
    who = plugin.job.info(job)
    expect(plugin.job.setting(job, "nccl_timeout_seconds"), ("20", "host"))
    expect(plugin.diag.counter_name(job, 0) != "", True)
    scalar = hsdp.tensor(array.array("d", [7.0]), [], (hsdp.DTYPE_FLOAT, 64))
    expect(list(hsdp.values(scalar)), [7.0])
    expect(len(hsdp.values(hsdp.tensor(bytearray(8), [0, 5]))), 0)
    expect(len(hsdp.values(hsdp.tensor(array.array("H", [0]), [1], (hsdp.DTYPE_BFLOAT, 16)))), 1)
    expect(len(hsdp.values(hsdp.tensor(array.array("q", [0]), [1], (hsdp.DTYPE_INT, 64)))), 1)
    expect_misuse(hsdp.tensor, array.array("d", [7.0]), [2])
    expect_misuse(hsdp.tensor, array.array("i", [7]), [1])
    expect_misuse(hsdp.tensor, array.array("f", [7.0]), [1], (hsdp.DTYPE_INT, 32))
    expect_misuse(hsdp.AdamwSpec, learning_rate=0.1)
    mesh = mesh_use(plugin, who)
    plan = plan_use(plugin, mesh)
    group_use(plugin, job, mesh, who)
    model = model_use(plugin, job, plan)
    expect(json.loads(plugin.diag.report(job, "error")), {"has_failed": False})
    expect(plugin.job.info(job).timeout_ms, 20000)
    if who.world_ranks == 1:
        failure_use(plugin, job, reasons)
    else:
        plugin.job.close(job)
    for destroy, thing in (
        (plugin.job.destroy, job),
        (plugin.mesh.destroy, mesh),
        (plugin.plan.destroy, plan),
        (plugin.model.destroy, model),
        (plugin.model.destroy, None),
    ):
        destroy(thing)
    if who.rank == 0:
        print("ok")


main()
