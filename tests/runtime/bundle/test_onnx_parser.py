"""The reader of ONNX structure agrees with onnx, and survives whatever a file holds."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebert_runtime import Bundle
from edgebert_runtime.bundle.graph_validation import check_graph
from edgebert_runtime.bundle.onnx_parser import parse_model, read_header
from edgebert_runtime.bundle.protobuf import WireError, fields, signed, varint
from edgebert_runtime.errors import BundleError, EdgebertError, IntegrityError

MUTANTS = 600


def shape_of(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    return tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim)


@pytest.mark.parametrize("name", ["fp32_bundle", "portable_bundle"])
def test_agrees_with_onnx(request: pytest.FixtureRequest, name: str) -> None:
    file = request.getfixturevalue(name) / "model.onnx"
    model, header = onnx.load(file), read_header(file)
    assert header.ir_version == model.ir_version
    assert header.opsets == {o.domain: o.version for o in model.opset_import}
    assert header.operators == {(n.domain, n.op_type) for n in model.graph.node}
    assert header.initializers == {i.name for i in model.graph.initializer}
    for parsed, expected in ((header.inputs, model.graph.input), (header.outputs, model.graph.output)):
        assert [(v.name, v.shape) for v in parsed] == [(v.name, shape_of(v)) for v in expected]
    assert [v.dtype for v in header.inputs] == ["int64"] * 3
    assert [v.dtype for v in header.outputs] == ["float32"]
    assert not header.external
    assert not header.oddities


@pytest.mark.parametrize(
    "content",
    [b"", b"<html><body>404</body></html>", b"version https://git-lfs.github.com/spec/v1\n", bytes(1000), b"\x08\x0a"],
)
def test_what_is_no_model_is_said_with_its_size(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(content)
    with pytest.raises(BundleError, match=rf"\({len(content)} bytes\) is not an ONNX model, or an incomplete one"):
        read_header(file)


def test_truncation_anywhere_is_noticed(folder: Path, tmp_path: Path) -> None:
    content = (folder / "model.onnx").read_bytes()
    whole = read_header(folder / "model.onnx")
    for end in [*range(1, 200), *range(200, len(content), len(content) // 150)]:
        (tmp_path / "model.onnx").write_bytes(content[:end])
        try:
            header = read_header(tmp_path / "model.onnx")
        except BundleError:
            continue
        assert header.operators == whole.operators  # only the list of opsets behind the graph is cut


def test_a_folder_in_its_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="cannot be read"):
        read_header(tmp_path)


def test_damage_ends_in_an_edgebert_error_or_in_a_model(folder: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(folder)
    content = (folder / "model.onnx").read_bytes()
    spec, outcomes = bundle.graph("model"), {True: 0, False: 0}
    rng = random.Random(5)
    for _ in range(MUTANTS):
        mutant = bytearray(content)
        for _ in range(rng.choice((1, 1, 4, 64))):
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        if rng.random() < 0.3:
            at = rng.randrange(len(mutant))
            mutant[at : at + rng.randrange(1, 50)] = rng.randbytes(rng.randrange(60))
        (tmp_path / "model.onnx").write_bytes(mutant)
        try:
            check_graph(tmp_path, spec, bundle.manifest.files)
        except EdgebertError:
            outcomes[False] += 1
        else:
            outcomes[True] += 1
    assert min(outcomes.values()) > 10  # weights were damaged in some, structure in others


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    try:
        spans = list(fields(data, 0, len(data)))
    except WireError:
        pass
    else:
        assert all(kind == 0 or 0 <= a <= b <= len(data) for _, kind, a, b in spans)
    with pytest.raises(WireError):
        parse_model(data, len(data))


def test_numbers_of_the_wire() -> None:
    assert varint(b"\xac\x02", 0, 2) == (300, 2)
    assert signed((1 << 64) - 1) == -1
    assert signed(1) == 1
    for broken in (b"", b"\xff", b"\xff" * 10 + b"\x01"):
        with pytest.raises(WireError):
            varint(broken, 0, len(broken))


@pytest.mark.parametrize("broken", [b"\x00\x01", b"\x0a\x05ab", b"\x0b", b"\x09\x00", b"\x0d\x00", b"\x0f"])
def test_broken_fields(broken: bytes) -> None:
    with pytest.raises(WireError):
        list(fields(broken, 0, len(broken)))
