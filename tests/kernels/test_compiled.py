"""Every kernel compiles for a GPU of today, on whatever machine: the interpreter takes more."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

_CHECK = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from equilibrate.kernels import fold, growth, numbers, signs, squares, update

F, I, S, B = "*fp64", "*i64", "*fp32", "*i1"
WIDE = {"WIDE": tl.float32, "ALIGNED": True, "BLOCK": 4096}


def compiled(kernel, pointers, **constants):
    signature = {name: pointers.get(name, "constexpr") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    assert len(pointers) + len(constants) == len(kernel.arg_names), kernel.arg_names
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
    print(kernel.__name__)


step = {"places": I, "gradients": I, "chart": I, "damping": F, "fill": F}
for kind in (tl.float32, tl.bfloat16, tl.float16):
    own = WIDE | {"PARAMETER": kind, "GRADIENT": kind, "NESTEROV": True, "MAXIMIZE": False}
    none = {"weight_decay": None, "scale": None, "limit": None, "momentum": None}
    compiled(update._update, step | {"lr": F, "steps": S, "count": "i32"}, **own, **none)
    every = {"lr": F, "steps": S, "count": "i32", "momentum": F, "weight_decay": F, "scale": F}
    compiled(update._update, step | every | {"limit": "fp32"}, **own)
    compiled(squares._squares, step | {"parts": F}, limit=None, GRADIENT=kind, **WIDE)
compiled(squares._sum_up, {"parts": F, "first": I, "total": F}, BLOCK=1024)
mixed = {"table": I, "chart": I, "old": F, "new": F, "fine": B, "sums": F, "counts": I}
renewed = {name: F for name in ("weight", "scale", "mean", "initial", "noise", "damping", "fill",
                                "share", "grown", "totals")}
renewed |= {name: I for name in ("probes", "unseen", "probe_index", "dropped", "sizes", "seen")}
renewed |= {"probed_at": S, "step": S, "fine": B, "count": "i32"}
shared = {name: F for name in ("norms", "weight", "log_decay", "grown", "old", "new")}
shared |= {"step": S, "probed_at": S, "fine": B, "count": "i32"}
for one in (True, False):
    compiled(fold._fold, mixed | {"count": "i32"}, ROOTS=one, **WIDE)
    compiled(numbers._shares, shared, ROOTS=one, BLOCK=1024)
    for other in (True, False):
        compiled(numbers._renew, renewed, SHARED=one, INITIAL=other, BLOCK=1024)
compiled(fold._sum_up, {"sums": F, "counts": I, "first": I, "total": F, "seen": I}, BLOCK=1024)
limited = {"squares": F, "mean": F, "count": I, "factor": F, "memory": F, "allowed": F}
compiled(growth._limit, limited | {"tensors": "i32", "elements": "i64"}, EARLY=20, MORE=1.5,
         BLOCK=1024)
drawn = {"whole": S, "chart": I, "starts": I, "numbers": I, "seed": I, "probe": I}
compiled(signs._signs, drawn, TYPE=tl.float32, WORDS=128)
"""


def test_every_kernel_compiles_for_hopper(tmp_path):
    """In a process of its own: where the interpreter is asked for, nothing compiles."""
    own = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    own["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    own["TRITON_CACHE_DIR"] = str(tmp_path)
    (tmp_path / "check.py").write_text(_CHECK)
    command = [sys.executable, str(tmp_path / "check.py")]
    run = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    names = {"_update", "_squares", "_fold", "_shares", "_renew", "_sum_up", "_limit", "_signs"}
    assert set(run.stdout.split()) == names
