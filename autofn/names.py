"""Names in generated code: users' names kept where a language allows it, escaped where not."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable

_CPP_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
int8_t int16_t int32_t int64_t size_t ptrdiff_t
threadIdx blockIdx blockDim gridDim warpSize dim3 half linux unix major minor makedev assert errno
signbit isnan isinf isfinite fpclassify isnormal isgreater isless isunordered
T I std N layout index stride count first
""".split()

_CPP_RESERVED = frozenset(_CPP_WORDS)

_PYTHON_GLOBALS = frozenset(
    """
    torch math nn F Tensor Function NamedTuple Literal annotations maths op ctx info in_dims
    aligned grads grad saved values likes needs tangents directions outputs output self cls key
    forward_leaf backward_leaf scalar add shape dtype given tensors
    """.split()
)
"""Names that the Python templates use without a leading underscore."""

_MODULE_ATTRIBUTES = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda
    double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter
    get_submodule half ipu load_state_dict modules mtia named_buffers named_children
    named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ reset_parameters
    set_extra_state set_submodule share_memory state_dict to to_empty train training type xpu
    zero_grad
    """.split()
)


def python_name(name: str) -> str:
    """An identifier for the inside of generated Python; public signatures keep the user's."""
    name = unicodedata.normalize("NFKC", name)
    if keyword.iskeyword(name) or name in _PYTHON_GLOBALS or hasattr(builtins, name):
        return f"{name}_"
    return name


def attribute_name(name: str) -> str:
    """The attribute of the generated nn.Module that holds a parameter or number."""
    name = unicodedata.normalize("NFKC", name)
    return f"{name}_" if name in _MODULE_ATTRIBUTES or name.startswith("_") else name


def cpp_name(name: str) -> str:
    """A C++ and CUDA identifier: spelled out in ASCII, and neither a keyword nor a macro."""
    spelled = "".join(_ascii(char) for char in unicodedata.normalize("NFKC", name))
    spelled = re.sub("__+", "_", spelled).strip("_") or "v"
    if spelled[0].isdigit():
        spelled = f"v{spelled}"
    # All-capital names may be macros of any header (INFINITY, NULL, M_PI), now or later.
    macro = len(spelled) > 1 and spelled.upper() == spelled and any(map(str.isalpha, spelled))
    return f"{spelled}_" if macro or spelled in _CPP_RESERVED else spelled


def _ascii(char: str) -> str:
    if char.isascii():
        return char
    words = unicodedata.name(char, f"U{ord(char):X}").split()
    last = re.sub("[^A-Za-z0-9]", "", words[-1])
    return last.capitalize() if "CAPITAL" in words else last.lower()


def camel_case(name: str) -> str:
    """The class name of a formula: `gelu_tanh` -> `GeluTanh`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)


class Namer:
    """Hands out names that are all different."""

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = set(taken)

    def __call__(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def numbered(self, prefix: str) -> str:
        """prefix0, prefix1, ...: the first that is free."""
        number = 0
        while f"{prefix}{number}" in self._taken:
            number += 1
        return self(f"{prefix}{number}")
