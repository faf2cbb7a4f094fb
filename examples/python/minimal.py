#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole host in Python: two linear layers, one step of gradient descent over all ranks, checked.

    minimal.py [STRATEGY]                          on one rank
    hsdp-run -n 4 python3 minimal.py [STRATEGY]    on four

y = sum of w[1][e] * w[0][e] * x, loss = y^2 / 2. All w[0] start as 1/2, all w[1] as 1/4, and rank r
has x = r + 1. The gradient of w[i][e] is y * w[1 - i][e] * x: it grows with x^2, whose mean over R
ranks is (R + 1) * (2 * R + 1) / 6.
"""
import array
import sys

import hsdp

N = 8
FIRST = (0.5, 0.25)
RATE = 1 / 64


def layers_wrap(plugin, job, strategy):
    """What is sharded how: ranks in one dimension, one class, and each layer a unit."""
    who = plugin.job.info(job)
    mesh = plugin.mesh.create(
        hsdp.MeshSpec(
            dim_names=["dp"],  # data parallel
            dim_sizes=[-1],  # as many as there are ranks
            n_dims=1,
            world_ranks=who.world_ranks,
            rank=who.rank,
        )
    )
    plan = plugin.plan.create(mesh, {"sharding_strategy": strategy})
    dense = plugin.plan.add_class(plan, hsdp.ClassSpec(name="dense"))
    for name in ("layer0", "layer1"):
        unit = plugin.plan.add_unit(plan, name, dense)
        plugin.plan.add_param(plan, hsdp.ParamSpec(name=name, shape=[N], n_dims=1, unit=unit))
    plugin.plan.finish(plan)
    model = plugin.model.create(job, plan)
    plugin.plan.destroy(plan)
    plugin.mesh.destroy(mesh)
    return model


def layers_fill(plugin, model):
    """Every rank has the same values here, so nothing is sent."""
    plugin.model.edit_begin(model)
    for i in range(2):
        full = array.array("f", [FIRST[i]] * N)
        plugin.model.import_param(
            model, i, hsdp.FLAT_MASTER, hsdp.tensor(full, [N]), hsdp.ALL_RANKS
        )
    plugin.model.edit_end(model)


def layers_view(plugin, model):
    """The values of the two layers, and of their gradients. Addresses never change: ask once."""
    view = plugin.model.param_view
    w = [hsdp.values(view(model, i, hsdp.VIEW_PARAM)).toreadonly() for i in range(2)]
    grad = [hsdp.values(view(model, i, hsdp.VIEW_GRAD)) for i in range(2)]
    return w, grad


def microbatch_run(plugin, model, w, grad, x):
    """Layers are whole while they are used; gradients are handed over layer by layer."""
    unit = plugin.unit
    unit.unshard(model, 0, hsdp.USE_FORWARD)
    unit.unshard(model, 1, hsdp.USE_FORWARD)
    y = sum(w[1][e] * w[0][e] * x for e in range(N))
    opened = unit.backward_begin(model, [1, 0], 2, hsdp.SCOPE_FULL)
    for i in (1, 0):
        unit.unshard(model, i, hsdp.USE_BACKWARD_SET)
        for e in range(N):
            grad[i][e] = y * w[1 - i][e] * x
        unit.reduce(model, opened, i)
        unit.release(model, i)  # the backward use
    unit.backward_end(model, opened)
    unit.release(model, 0)  # the forward uses
    unit.release(model, 1)


def step_run(plugin, model):
    """Each rank moves its own shards against the mean gradient."""
    plugin.step.begin(model, hsdp.StepSpec())
    factor = plugin.step.result(model).factor
    for i in range(2):
        shard = hsdp.values(plugin.model.flat_view(model, i, 0, hsdp.FLAT_MASTER))
        mean = hsdp.values(plugin.model.flat_view(model, i, 0, hsdp.FLAT_GRAD))
        for e, gradient in enumerate(mean):
            shard[e] -= RATE * factor * gradient
    plugin.step.end(model)


def layers_check(plugin, model, w, n_ranks):
    """The closed form holds for every element, on every rank."""
    squares = (n_ranks + 1) * (2 * n_ranks + 1) / 6
    for i in range(2):
        wanted = FIRST[i] - RATE * N * FIRST[0] * FIRST[1] * FIRST[1 - i] * squares
        plugin.unit.unshard(model, i, hsdp.USE_FORWARD)
        for e, found in enumerate(w[i]):
            if not abs(found - wanted) <= 1e-6:
                sys.exit(f"minimal.py: w[{i}][{e}] is {found}, not {wanted}")
        plugin.unit.release(model, i)


def main(strategy="fsdp"):
    plugin = hsdp.load()
    job = plugin.job.create(hsdp.JobSpec())  # hsdp-run, torchrun, ... say who we are
    plugin.job.connect(job)
    who = plugin.job.info(job)
    model = layers_wrap(plugin, job, strategy)
    layers_fill(plugin, model)
    w, grad = layers_view(plugin, model)
    microbatch_run(plugin, model, w, grad, who.rank + 1)
    step_run(plugin, model)
    layers_check(plugin, model, w, who.world_ranks)
    plugin.job.close(job)
    if who.rank == 0:
        print(f"ok: {who.world_ranks} ranks, {strategy}")
    plugin.model.destroy(model)
    plugin.job.destroy(job)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except hsdp.Error as error:
        print(f"minimal.py: {error}", file=sys.stderr)  # a sentence that names the culprit
        sys.exit(2)
