"""From a Plan to the text of a package: contexts here, structure in `templates/`."""

from __future__ import annotations

import hashlib
import json

import sympy

from autofn import __version__, trees
from autofn.backends import cpp, cpu, cuda, primitives
from autofn.emit import companion, libtorch
from autofn.emit.environment import rendered
from autofn.emit.identifiers import ALWAYS_GIVEN, Names
from autofn.emit.maths import maths_text
from autofn.emit.op import op_text
from autofn.emit.words import formula_lines, title
from autofn.model import Definition, Kind
from autofn.names import cpp_name
from autofn.package import FORMAT, MANIFEST, MARKER, Package
from autofn.plan import Kernel, Plan, kernels
from autofn.program import Program


def emit(made: Plan, targets: tuple[str, ...] = (), *, tests: bool = False) -> Package:
    """The package of a plan: the same bytes on every machine.

    targets: what it has beside Python, so far "cpp"; with `tests`, its own beside it.
    """
    definition = made.definition
    digest = fingerprint(definition)
    header = f"{MARKER} from {definition.source} (format {FORMAT}, sha256:{digest}). DO NOT EDIT."
    shared = f"{MARKER} (format {FORMAT}). DO NOT EDIT."
    names = Names(made)
    scalar = kernels(made)
    scalar_maths = _header(made, scalar, header)
    files = {
        "__init__.py": _init(definition, names, header),
        "_runtime.py": rendered("_runtime.py.j2", header=shared),
        "_build.py": rendered("_build.py.j2", header=header),
        "_fake.py": rendered("_fake.py.j2", header=header),
        "_sharding.py": rendered("_sharding.py.j2", header=header),
        "_tensors.py": rendered("_tensors.py.j2", header=header),
        "maths.py": maths_text(made, names, header),
        "op.py": op_text(made, names, tuple(kernel for kernel, _ in scalar), header),
        "maths.h": scalar_maths,
        "primitives.h": _primitives(scalar_maths, header),
        **cpu.files(definition.name, scalar, header),
        **cuda.files(definition.name, scalar, header),
    }
    if "cpp" in targets:
        files |= libtorch.files(made, names, tuple(kernel for kernel, _ in scalar), files, header)
    if tests:
        files[companion.path_of(definition.name)] = companion.tests_text(definition, header)
    files[MANIFEST] = _manifest(made, digest, scalar, [*files, MANIFEST], targets)
    return Package(definition.name, definition.source, tuple(sorted(files.items())))


def fingerprint(definition: Definition) -> str:
    """sha256 over signature, options, docstring and what the formula returns."""
    content = [
        definition.name,
        repr(definition.parameters),
        repr([(name, sympy.srepr(interval)) for name, interval in definition.options.domain]),
        repr((definition.options.reduction, definition.options.amp, definition.options.save)),
        # What it promises, and not what is generated: no part of packages that promise nothing.
        *([] if definition.options.budget is None else [f"budget {definition.options.budget!r}"]),
        definition.doc,
        repr((definition.output_names, definition.named_outputs)),
    ]
    for variant in definition.variants:
        content.append(repr(variant.key))
        content += [trees.digest(output) for output in variant.outputs]
        content += ["" if each is None else trees.digest(each) for each in variant.gradient or ()]
    return hashlib.sha256("\0".join(content).encode()).hexdigest()


def _init(definition: Definition, names: Names, header: str) -> str:
    exported = [definition.name, names.camel, f"{names.camel}Function"]
    alias = "" if names.function == definition.name else f" as {definition.name}"
    imports = [f"{names.function}{alias}", names.camel, f"{names.camel}Function"]
    if len(definition.output_names) > 1:
        exported.append(f"{names.camel}Output")
        imports.append(f"{names.camel}Output")
    for p in definition.parameters:
        if p.kind is Kind.SETTINGS:
            exported.append(p.type_name)
            imports.append(p.type_name)
    return rendered(
        "__init__.py.j2",
        header=header,
        title=title(definition),
        imports=[_imported(sorted(imports))],
        exports=", ".join(f'"{name}"' for name in sorted(exported)),
    )


def _imported(names: list[str]) -> str:
    line = f"from .op import {', '.join(names)}"
    return line if len(line) <= 100 else f"from .op import ({', '.join(names)})"


def _header(made: Plan, scalar: tuple[tuple[Kernel, Program], ...], header: str) -> str:
    definition = made.definition
    return rendered(
        "maths.h.j2",
        header=header,
        title=title(definition).replace("\\", "/"),
        formulas=[line.replace("\\", "/") for line in formula_lines(made)],
        cname=cpp_name(definition.name),
        helpers=cpp.helpers([program for _, program in scalar]),
        functions=[cpp.function(kernel, program) for kernel, program in scalar],
    )


def _primitives(scalar_maths: str, header: str) -> str:
    return rendered(
        "primitives.h.j2",
        header=header,
        prelude=primitives.prelude(),
        primitives=list(filter(None, map(primitives.text, primitives.used(scalar_maths)))),
    )


def _manifest(
    made: Plan,
    digest: str,
    scalar: tuple[tuple[Kernel, Program], ...],
    files: list[str],
    targets: tuple[str, ...],
) -> str:
    definition = made.definition
    content = {
        "format": FORMAT,
        "name": definition.name,
        "source": definition.source,
        "sha256": digest,
        "autofn": __version__,
        "sympy": sympy.__version__,
        **({"targets": list(targets)} if targets else {}),
        "files": sorted(files),
        "differentiable": [leaf.name for leaf in definition.differentiable],
        "outputs": list(made.outputs),
        "values": [leaf.name for leaf in definition.leaves if leaf.kind not in ALWAYS_GIVEN],
        "saved": list(made.saved),
        "kernels": [
            {
                "function": kernel.function,
                "pass": kernel.pass_name,
                "op": kernel.op,
                "key": dict(kernel.key),
                "inputs": [[operand.name, operand.role] for operand in kernel.inputs],
                "outputs": [[operand.name, operand.role] for operand in kernel.outputs],
            }
            for kernel, _ in scalar
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
