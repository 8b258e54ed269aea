"""What nvcc made of the kernels: registers, shared memory and instructions, without a GPU."""

import os
import re
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

import running

ARCHIVE = running.TROUPE.parent / "kernels" / "libtroupe_kernels.a"
TOOLS = next(Path(sysconfig.get_path("purelib")).glob("nvidia/*/bin/cuobjdump"), None)

# What a kernel may take: registers of a thread, bytes of shared memory. A multiprocessor has 65,536
# registers: 256 threads of 255 leave room for one CTA, of 128 for two, of 85 for three.
BUDGETS = {
    r"BadRow": (40, 0),
    r"Each<AddDense>": (56, 0),
    r"Each<.*>": (40, 0),
    r"FastPart<.*>": (255, 43072),
    r"FastProduct<(Bf16Codes|Fp4Codes|.*Scaling.[12]>), 1, 8>": (96, 0),
    r"FastProduct<.*, 1, 8>": (128, 0),
    r"FastProduct<.*>": (232, 0),
    r"Gate": (56, 0),
    r"MmaPart<.*, 32>": (216, 0),  # and 83,968 that a launch asks for: one CTA on sm_80 and later
    r"MmaPart<.*, 64>": (255, 0),  # and 166,912, which sm_80, sm_90 and sm_100 have
    r"MmaProduct<.*, 4>": (232, 0),
    r"MmaProduct<.*, 1>": (255, 49152),
    r"Norm": (40, 512),
    r"Nothing": (40, 0),
    r"PlainPart": (104, 2056),
    r"PlainProduct": (112, 0),
    r"SampleRows": (96, 24720),
    r"SortChosen": (80, 64),
    # Groups of its warps leave registers to each other; and 227,840 bytes that a launch asks for.
    r"WgmmaPart": (168, 0),
}
SYSTEM_BYTES = 1024  # of shared memory, from sm_90 on

# What a launch asks for beside what the code takes; and what every GPU has since sm_80.
DYNAMIC_BYTES = {
    r"FastProduct<.*, 1, 8>": 50208,
    r"FastProduct<.*, 4, 8>": 74784,
    r"FastProduct<.*, 8, 4>": 91168,
    r"FastProduct<.*, 8, 8>": 107552,  # where there is so much
    r"MmaPart<.*, 32>": 83968,
    r"MmaPart<.*, 64>": 166912,
    r"MmaProduct<.*, 4>": 98304,
    r"WgmmaPart": 227840,
}
REGISTERS, WIDE_BYTES = 65536, 99 << 10
# What a launch may ask for where that is more; what asks for more than a GPU has has no code there.
MOST_BYTES = {"sm_80": 163 << 10, "sm_90a": 227 << 10, "sm_100a": 163 << 10}

# CTAs that an H100's multiprocessor must have room for, in registers and in its 228 KB.
RESIDENT = {
    r"FastProduct<(Bf16Codes|Fp4Codes|.*Scaling.[12]>), 1, 8>": 3,
    r"FastProduct<(Bf16Codes|Fp4Codes|.*Scaling.[12]>), 4, 8>": 2,
    r"FastProduct<(Bf16Codes|.*Scaling.[12]>), 8, .>": 2,
    r"MmaProduct<.*Scaling.3>, .*>": 1,
    r"MmaProduct<(Int4|Fp4)Codes.*, 4>": 1,
    r"MmaProduct<.*>": 2,
}
MULTIPROCESSOR_BYTES = 228 << 10

# fma of each kernel: what nvcc's front end wrote down, and what became of it. Not the same where a
# loop was unrolled later, or where a division or root brings its own. Other kernels have none: one
# more is a multiplication and an addition that were contracted.
FMAS = {
    r"Each<JoinPieces>": (3, 3),
    r"FastPart<.*>": (659, 659),
    r"FastProduct<.*, 1, .>": (32, 32),
    r"FastProduct<.*, 4, .>": (128, 128),
    r"FastProduct<.*, 8, .>": (256, 256),
    r"Gate": (0, 1),
    r"MmaPart<.*, 32>": (67, 67),
    r"MmaPart<.*, 64>": (132, 132),
    r"Norm": (5, 30),
    r"PlainPart": (48, 272),
    r"PlainProduct": (6, 6),
    r"SampleRows": (0, 1),
    # Its PTX is of sm_80, where it has no code. A fma for each number of O, and those of weights.
    r"WgmmaPart": (0, 172),
}

FLOAT_ATOMICS = r"(?:RED|ATOM|ATOMG|ATOMS)\.\S*(?:F16|F32|F64|BF16)"


def cuobjdump(*words):
    tools = {"PATH": f"{TOOLS.parent}:{os.environ['PATH']}"}
    return subprocess.run([TOOLS, *words, ARCHIVE], env={**os.environ, **tools}, check=True,
                          capture_output=True, text=True).stdout


def plain_names(mangled):
    """FastProduct<Bf16Codes, 1, 8> of what the linker calls it."""
    text = subprocess.run(["c++filt"], input="\n".join(mangled), check=True, capture_output=True,
                          text=True).stdout
    short = re.sub(r"troupe::kernels::(?:cuda::)?|\(anonymous namespace\)::", "", text)
    return [re.search(r"run<(.*?) ?>\(", line)[1] for line in short.splitlines()]


@pytest.fixture(scope="module")
def built():
    members = subprocess.run(["ar", "t", ARCHIVE], capture_output=True, text=True).stdout
    if "fast_product.cu.o" not in members:
        pytest.skip("built without nvcc")
    if TOOLS is None:
        pytest.fail("no cuobjdump: tests/requirements.txt has the package that brings it")


@pytest.fixture(scope="module")
def resources(built):
    """[(kernel, architecture, registers, stack, shared, local)]"""
    rows, architecture, function = [], None, None
    for line in cuobjdump("-res-usage").splitlines():
        if match := re.match(r"arch = (\S+)", line):
            architecture = match[1]
        if match := re.match(r"\s*Function (\S+):", line):
            function = match[1]
        if match := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            rows.append((function, architecture, *map(int, match.groups())))
    names = plain_names([row[0] for row in rows])
    return [(name, *row[1:]) for name, row in zip(names, rows)]


@pytest.fixture(scope="module")
def instructions(built, resources):
    """{kernel: Counter of instructions}, of one architecture."""
    architectures = {row[1] for row in resources}
    one = "sm_90a" if "sm_90a" in architectures else min(architectures)
    code = {}
    for line in cuobjdump("-sass", "-arch", one).splitlines():
        if match := re.match(r"\s*Function : (\S+)", line):
            counter = code.setdefault(match[1], Counter())
        elif match := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            counter[match[1]] += 1
    return dict(zip(plain_names(code), code.values()))


@pytest.fixture(scope="module")
def written(built):
    """{kernel: its PTX}"""
    parts = re.split(r"\.entry (\w+)\(", cuobjdump("-ptx"))[1:]
    return dict(zip(plain_names(parts[::2]), parts[1::2]))


def of_kernel(table, kernel, otherwise=None):
    return next((value for pattern, value in table.items() if re.fullmatch(pattern, kernel)), otherwise)


def budget(kernel):
    return of_kernel(BUDGETS, kernel)


def over_budget(resources):
    for kernel, architecture, registers, stack, shared, local in resources:
        register_max, shared_max = budget(kernel)
        if registers > register_max:
            yield f"{kernel} on {architecture}: {registers} registers, {register_max} may be"
        if shared > shared_max + SYSTEM_BYTES:
            yield f"{kernel} on {architecture}: {shared} bytes shared, {shared_max} may be"
        if stack or local:
            yield f"{kernel} on {architecture}: {stack + local} bytes spilled, or local"


def own_bytes(architecture, shared):
    """Without the system's."""
    return max(0, shared - SYSTEM_BYTES) if int(re.search(r"\d+", architecture)[0]) >= 90 else shared


def threads_of(ptx):
    return int(re.search(r"\.maxntid (\d+)", ptx)[1])


def has_no_code(kernel, architecture):
    return of_kernel(DYNAMIC_BYTES, kernel, 0) > MOST_BYTES.get(architecture, WIDE_BYTES)


def beyond_a_launch(resources, threads):
    """Registers are given to warps eight of a thread at a time."""
    for kernel, architecture, registers, _, shared, _ in resources:
        if has_no_code(kernel, architecture):
            continue
        taken = -(-registers // 8) * 8 * threads[kernel]
        if taken > REGISTERS:
            yield f"{kernel} on {architecture}: {taken} registers of {threads[kernel]} threads"
        asked = own_bytes(architecture, shared) + of_kernel(DYNAMIC_BYTES, kernel, 0)
        if asked > MOST_BYTES.get(architecture, WIDE_BYTES):
            yield f"{kernel} on {architecture}: {asked} bytes shared"


def not_resident(resources, threads):
    """Kernels of which an H100 has fewer CTAs at a time than it should."""
    for kernel, architecture, registers, _, shared, _ in resources:
        ctas = of_kernel(RESIDENT, kernel, 1)
        if not architecture.startswith("sm_90"):
            continue
        if ctas * -(-registers // 8) * 8 * threads[kernel] > REGISTERS:
            yield f"{kernel}: {registers} registers, {ctas} CTAs"
        if ctas * (shared + of_kernel(DYNAMIC_BYTES, kernel, 0)) > MULTIPROCESSOR_BYTES:
            yield f"{kernel}: {shared} bytes shared, {ctas} CTAs"


def contracted(written, instructions):
    """Where there are not as many fma as the table says."""
    for kernel, ptx in written.items():
        fmas = Counter(re.findall(r"\bfma\.\S+", ptx))
        counts = fmas.pop("fma.rn.ftz.f32", 0), instructions[kernel]["FFMA.FTZ"]
        if fmas or counts != of_kernel(FMAS, kernel, (0, 0)):
            yield f"{kernel}: {counts} fma, and {dict(fmas)}"


@pytest.mark.long
def test_kernels_keep_to_their_registers(resources):
    assert len({row[0] for row in resources}) >= 30
    assert not list(over_budget(resources))


def test_the_lint_notices():
    rows = [("Gate", "sm_80", 57, 0, 0, 0), ("Norm", "sm_80", 32, 8, 0, 0),
            ("Norm", "sm_80", 32, 0, 2048, 0), ("Norm", "sm_80", 32, 0, 0, 16)]
    assert len(list(over_budget(rows))) == 4
    few, many = "MmaPart<true, 32>", "MmaPart<true, 64>"
    rows = [("Gate", "sm_80", 65, 0, 0, 0), ("Gate", "sm_90a", 64, 0, 228 << 10, 0),
            ("Gate", "sm_89", 64, 0, 100 << 10, 0), (few, "sm_80", 64, 0, 22000, 0),
            (few, "sm_89", 64, 0, 22000, 0), (many, "sm_89", 4, 0, 0, 0), (many, "sm_80", 255, 0, 8, 0)]
    assert len(list(beyond_a_launch(rows, {"Gate": 1024, few: 256, many: 256}))) == 4
    product = "MmaProduct<Bf16Codes, 4, 4>"
    rows = [(product, "sm_90a", 136, 0, 1024, 0), (product, "sm_90a", 128, 0, 20 << 10, 0),
            (product, "sm_90a", 128, 0, 1024, 0), (product, "sm_80", 200, 0, 0, 0)]
    assert len(list(not_resident(rows, {product: 256}))) == 2
    written = {"Gate": "fma.rn.ftz.f32 %f1;", "Norm": "fma.rn.ftz.f32 %f1;\n" * 5 + "fma.rn.f64 %d1;",
               "PlainProduct": "fma.rn.ftz.f32 %f1;\n" * 6, "Each<Turn>": "mul.rn.ftz.f32 %f1;"}
    made = {"Gate": Counter({"FFMA.FTZ": 1}), "Norm": Counter({"FFMA.FTZ": 30}),
            "PlainProduct": Counter({"FFMA.FTZ": 7}), "Each<Turn>": Counter({"FFMA.FTZ": 1})}
    assert len(list(contracted(written, made))) == 4
    assert re.match(FLOAT_ATOMICS, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU")
    assert not re.match(FLOAT_ATOMICS, "ATOMG.E.ADD.STRONG.GPU")


@pytest.mark.long
def test_every_launch_fits_a_gpu(resources, written, instructions):
    """As many registers and as much shared memory as any GPU since sm_80 has; and what the table has of
    memory that launches ask for is all there is."""
    threads = {kernel: threads_of(ptx) for kernel, ptx in written.items()}
    assert not list(beyond_a_launch(resources, threads))
    assert not list(not_resident(resources, threads))
    for kernel, architecture, registers, _, shared, _ in resources:
        if has_no_code(kernel, architecture):
            assert registers <= 8, f"{kernel} on {architecture}"
            continue
        touches = any(name.startswith(("LDS", "STS")) for name in instructions[kernel])
        known = own_bytes(architecture, shared) + of_kernel(DYNAMIC_BYTES, kernel, 0)
        assert touches == (known > 0), f"{kernel} on {architecture}"


@pytest.mark.long
def test_fma_is_where_it_is_written(written, instructions):
    assert set(written) == set(instructions)
    assert not list(contracted(written, instructions))


@pytest.mark.long
def test_a_product_has_as_many_fma_as_the_twin_counts(written):
    """A lane's step: the twin counts calls in a copy of the kernel, divided by lanes and steps."""
    program = ARCHIVE.parents[1] / "tests" / "kernels" / "test_cuda_broken"
    if not program.exists():
        pytest.skip("the target test_cuda_broken is not built")
    said = subprocess.run([program, "--test-case=a product calls fma*"], check=True, capture_output=True,
                          text=True).stdout
    counts = dict(re.findall(r"in a step of (FastProduct<.*>): (\d+)", said))
    assert len(counts) == 3
    for kernel, count in counts.items():
        assert written[kernel].count("fma.rn.ftz.f32") == int(count), kernel


@pytest.mark.long
def test_nothing_is_added_in_an_order_that_varies(instructions):
    """No atomics of floats; nothing goes through local memory."""
    for kernel, counter in instructions.items():
        bad = [name for name in counter if re.match(FLOAT_ATOMICS + r"|LDL|STL", name)]
        assert not bad, kernel


@pytest.mark.long
def test_products_have_the_operations_of_the_definition(instructions):
    """A step of the loop is eight k of four outputs: an fma each for every row, and no other; even
    and odd are added for each output and row; sixteen bytes are loaded or copied at a time."""
    products = {kernel: counter for kernel, counter in instructions.items() if "FastProduct" in kernel}
    assert len(products) == 22
    added = Counter()
    for kernel, counter in products.items():
        codes, rows = re.fullmatch(r"FastProduct<(.*), (\d), \d>", kernel).groups()
        assert counter["FFMA.FTZ"] == 8 * 4 * int(rows), kernel
        assert any(name.startswith("LDGSTS.E.BYPASS") for name in counter), kernel
        assert not any(name.startswith(("FFMA", "FADD", "FMUL")) and ".FTZ" not in name
                       for name in counter), kernel
        added[codes, int(rows)] = counter["FADD.FTZ"]
    for codes, rows in added:
        assert added[codes, rows] - added[codes, 1] == 4 * (rows - 1), codes
    assert products["FastProduct<Bf16Codes, 1, 8>"]["FMUL.FTZ"] == 0


def mma_of(counter):
    return {name: count for name, count in counter.items() if name.startswith("HMMA")}


@pytest.mark.long
def test_hopper_s_tensor_cores_read_shared_memory(instructions, resources):
    """36 steps of 16 k for a tile's scores, which are begun once and made beside the weights of a tile that
    is masked or not; two of 16 positions for each half of O."""
    if "sm_90a" not in {row[1] for row in resources}:
        pytest.skip("built without sm_90a")
    for kernel, counter in instructions.items():
        made = {name: count for name, count in counter.items() if name.startswith("HGMMA")}
        if kernel == "WgmmaPart":
            assert made == {"HGMMA.64x32x16.F32.BF16": 3 * 36, "HGMMA.64x256x16.F32.BF16": 2}
            assert counter["LDGSTS.E.BYPASS.128"] > 0
        else:
            assert not made, kernel


@pytest.mark.long
def test_tensor_cores_multiply_as_the_definition_says(instructions):
    """Each block of a product is two steps of 16 k by 32 outputs for each eight rows, in float32 and of bf16;
    what a kernel of `bf16` computes no tensor core does."""
    kernels = {kernel: counter for kernel, counter in instructions.items() if "Mma" in kernel}
    assert len(kernels) == 32
    for kernel, counter in instructions.items():
        assert bool(mma_of(counter)) == (kernel in kernels), kernel
        assert set(mma_of(counter)) <= {"HMMA.16816.F32.BF16"}, kernel
    for kernel, counter in kernels.items():
        if "MmaProduct" in kernel:
            # Two blocks a step of the loop, or four.
            panels, columns = map(int, re.search(r", (\d), (\d)>", kernel).groups())
            blocks = 4 if (panels, columns) == (4, 1) else 2
            assert mma_of(counter) == {"HMMA.16816.F32.BF16": 2 * 2 * columns * blocks}, kernel
            assert counter["LDG.E.128.CONSTANT"] > 0, kernel
            assert any(name.startswith("LDGSTS.E.BYPASS") for name in counter), kernel
        else:
            # Two of a step of scores, unrolled once, for each eight of its positions; of eight columns and
            # each sixteen of the queries two, and two where values are not finite.
            queries = int(re.search(r", (\d+)>", kernel)[1])
            scores = 2 * 2 * (queries // 32)
            assert mma_of(counter) == {"HMMA.16816.F32.BF16": scores + 8 * queries // 16 * (2 + 2)}, kernel
            assert counter["LDSM.16.M88.4"] > 0 and counter["LDSM.16.MT88.4"] == 8, kernel
            copied = any(name.startswith("LDGSTS.E.BYPASS") for name in counter)
            assert copied == kernel.startswith("MmaPart<false"), kernel
