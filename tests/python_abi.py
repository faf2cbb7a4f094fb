# SPDX-License-Identifier: Apache-2.0
"""python_abi.py FOLDER INCLUDE COMPILER...: compares the hsdp.py of a folder with the headers.

Types are read from the headers, sizes, offsets and values are asked of the C compiler.
Exit status: 0 they agree, 1 something differs or is missing (it is named).
"""
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, sys.argv[1])
import hsdp  # noqa: E402  the one of that folder

INCLUDE = pathlib.Path(sys.argv[2])
COMPILER = sys.argv[3:]
# The loader is a library that hosts link, not a part of what crosses the border.
HEADERS = [path for path in sorted((INCLUDE / "hsdp").glob("*.h")) if path.name != "loader.h"]
TEXT = "\n".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in HEADERS)
NUMBERS = {
    "void": None,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "double": ctypes.c_double,
    "char": ctypes.c_char,
    "void *": ctypes.c_void_p,
    "char *": ctypes.c_char_p,
}
problems = []


def class_of(struct):
    """The class that declares it: MeshSpec of hsdp_mesh_spec."""
    names = {"hsdp_error": "ErrorInfo"}
    name = names.get(struct, "".join(word.capitalize() for word in struct.split("_")[1:]))
    found = getattr(hsdp, name, None)
    if found is None:
        problems.append(f"struct {struct}: there is no hsdp.{name}")
    return found


def type_of(text):
    """The type that ctypes has for one of C; `text` has no name in it."""
    text = " ".join(text.replace("const", " ").replace("*", " * ").split())
    if text in NUMBERS:
        return NUMBERS[text]
    if text.endswith("*"):
        inner = type_of(text[:-1])
        return inner if text[:-1].strip() in HANDLES else ctypes.POINTER(inner)
    if text in HANDLES:
        return HANDLES[text]
    return class_of(text.replace("struct ", ""))


HANDLES = {
    f"hsdp_{name.lower()}": getattr(hsdp, name)
    for name in ("Mesh", "Job", "Group", "Plan", "Model")
}


def parameter_type(text):
    """That of "const char *name"; text that is written to is no string."""
    kind, name = re.fullmatch(r"(.*[ *])(\w+)", text.strip(), flags=re.S).groups()
    if name == "ret_text":
        return ctypes.POINTER(ctypes.c_char)
    return type_of(kind)


def members_of(body):
    """(name, type, how ctypes writes it) for each member of a struct."""
    for statement in body.split(";"):
        statement = statement.strip()
        function = re.fullmatch(r"([\w *]+)\(\*(\w+)\)\((.*)\)", statement, flags=re.S)
        array = re.fullmatch(r"(\w+) (\w+)\[(\w+)\]", statement)
        if function:
            result, name, parameters = function.groups()
            types = [parameter_type(p) for p in parameters.split(",")]
            yield name, ctypes.CFUNCTYPE(type_of(result), *types)
        elif array:
            kind, name, length = array.groups()
            length = re.sub("^HSDP_", "", length)
            length = int(length) if length.isdigit() else getattr(hsdp, length)
            yield name, NUMBERS[kind] * length
        elif statement:
            kind, name = re.fullmatch(r"(.*[ *])(\w+)", statement, flags=re.S).groups()
            yield name, type_of(kind)


def is_same(ours, theirs):
    """Function types with equal parameters are the same to ctypes, others by identity."""
    if hasattr(theirs, "_argtypes_"):
        return (
            getattr(ours, "_argtypes_", None) == theirs._argtypes_
            and ours._restype_ is theirs._restype_
        )
    return ours is theirs


def struct_compare(struct, body):
    ours = class_of(struct)
    if ours is None:
        return
    theirs = list(members_of(body))
    names = [name for name, _ in theirs]
    if [name for name, _ in ours._fields_] != names:
        problems.append(f"struct {struct}: hsdp.{ours.__name__} has other fields than {names}")
        return
    for (name, c_type), (_, our_type) in zip(theirs, ours._fields_):
        if not is_same(our_type, c_type):
            problems.append(f"struct {struct}: {name} has another type in hsdp.{ours.__name__}")
    layout.append(f'SIZE("{struct}", {ctypes.sizeof(ours)}, sizeof(struct {struct}));')
    for name, _ in ours._fields_:
        field = getattr(ours, name)
        layout.append(
            f'SIZE("{struct}.{name}", {field.offset}, offsetof(struct {struct}, {name}));'
        )


def macro_compare(macro, value):
    name = macro[len("HSDP_") :]
    if not hasattr(hsdp, name):
        problems.append(f"{macro}: there is no hsdp.{name}")
    elif value.startswith('"'):
        layout.append(f'TEXT("{macro}", "{getattr(hsdp, name)}", {macro});')
    else:
        layout.append(f'SIZE("{macro}", {getattr(hsdp, name)}, {macro});')


def program_run(lines):
    """What the compiler says to sizes, offsets and values: the lines of those that differ."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "layout.c"
        source.write_text(
            "#include <hsdp/adamw.h>\n#include <hsdp/hsdp.h>\n"
            "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n"
            "static void number(const char *name, long long ours, long long theirs) {\n"
            "    if (ours != theirs) {\n"
            '        printf("%s: is %lld, not %lld\\n", name, theirs, ours);\n    }\n}\n'
            "#define SIZE(name, ours, theirs) number(name, ours, (long long)(theirs))\n"
            "#define TEXT(name, ours, theirs) number(name, 0, strcmp(ours, theirs))\n"
            "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
        )
        program = pathlib.Path(folder) / "layout"
        subprocess.run(
            [*COMPILER, "-std=c11", f"-I{INCLUDE}", "-o", program, source], check=True
        )
        return subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.decode()


layout = []
structs = re.findall(r"^struct (hsdp_\w+) \{\n(.*?)^\};", TEXT, flags=re.S | re.M)
macros = re.findall(r"^#define HSDP_(?!\w*INIT_?\b)(\w+) +(\S.*)$", TEXT, flags=re.M)
for struct_name, struct_body in structs:
    struct_compare(struct_name, struct_body)
for macro_name, macro_value in macros:
    macro_compare("HSDP_" + macro_name, macro_value)
problems = problems or program_run(layout).splitlines()
print("\n".join(problems) or f"{len(structs)} structs, {len(layout)} numbers and texts agree")
sys.exit(1 if problems or len(structs) < 30 or len(macros) < 60 else 0)
