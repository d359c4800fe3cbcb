"""Where heads write: against covariances written out, and closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from headscope.studies.weights.composition import effective_ranks, write_evidence
from headscope.studies.weights.factors import HeadFactors


def layer_of(value: torch.Tensor, output: torch.Tensor) -> HeadFactors:
    """A single layer, heads first in both matrices."""
    return HeadFactors(value[None], value[None], value[None], output[None], value.shape[1])


def drawn(seed: int, heads=3, width=12, d_value=4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(heads, width, d_value, generator=generator),
        torch.randn(heads, d_value, width, generator=generator),
    )


def test_covariances_written_out():
    value, output = drawn(0)
    found = write_evidence(layer_of(value, output))
    circuit = value.double() @ output.double()
    covariance = circuit.transpose(1, 2) @ circuit
    for a in range(3):
        assert found.output_norm[0, a].item() == pytest.approx(output[a].norm().item(), rel=1e-5)
        assert found.circuit_norm[0, a].item() == pytest.approx(circuit[a].norm().item(), rel=1e-5)
        spread = torch.linalg.eigvalsh(covariance[a])
        dimensions = (spread.sum() ** 2 / spread.square().sum()).item()
        assert found.dimensions[0, a].item() == pytest.approx(dimensions, rel=1e-4)
        for b in range(3):
            inner = (covariance[a] * covariance[b]).sum()
            cosine = inner / (covariance[a].norm() * covariance[b].norm())
            assert found.cosine[0, a, b].item() == pytest.approx(cosine.item(), rel=1e-4)


def test_how_a_circuit_is_split_into_v_and_o_changes_the_norm_of_o_alone():
    value, output = drawn(1)
    turn = torch.randn(4, 4, generator=torch.Generator().manual_seed(7)) + 3 * torch.eye(4)
    one = write_evidence(layer_of(value, output))
    other = write_evidence(layer_of(value @ turn, torch.linalg.inv(turn) @ output))
    for name in ("circuit_norm", "dimensions", "cosine"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(one.output_norm, other.output_norm, rtol=0.1)


def test_closed_forms():
    eye = torch.eye(8)
    read = eye[:, :4].repeat(4, 1, 1)
    spike = torch.zeros(4, 8)
    spike[0, 0] = 5
    # all of four directions, the same again and larger, the four others, one of the first four
    found = write_evidence(layer_of(read, torch.stack([eye[:4], 3 * eye[:4], eye[4:], spike])))
    assert found.dimensions[0].tolist() == pytest.approx([4, 4, 4, 1])
    assert found.circuit_norm[0].tolist() == pytest.approx([2, 6, 2, 5])
    assert found.cosine[0, 0].tolist() == pytest.approx([1, 1, 0, 0.5], abs=1e-6)
    assert found.chance[0, 0, 3].item() == pytest.approx(math.sqrt(4 * 1) / 8)


def test_unrelated_heads_are_alike_by_about_the_chance_that_is_named():
    value, output = drawn(2, heads=40, width=96, d_value=8)
    found = write_evidence(layer_of(value, output))
    apart = ~torch.eye(40, dtype=torch.bool)
    ratio = found.cosine[0][apart].mean() / found.chance[0][apart].mean()
    assert ratio.item() == pytest.approx(1, abs=0.03)


def test_effective_ranks_are_those_of_the_dense_products():
    """All singular values of the d_model × d_model matrices, with their entropy summed by hand."""
    (query, _), (key, _), (value, output) = drawn(1), drawn(2), drawn(3)
    factors = HeadFactors(query[None], key[None], value[None], output[None], 12)
    of_scores, of_writes = effective_ranks(factors)
    for head in range(3):
        dense = query[head] @ key[head].T, value[head] @ output[head]
        for found, matrix in zip((of_scores, of_writes), dense, strict=True):
            singular = torch.linalg.svd(matrix.double()).S[:4]
            shares = (singular / singular.sum()).tolist()
            entropy = -sum(share * math.log(share) for share in shares)
            assert found[0, head].item() == pytest.approx(math.exp(entropy), rel=1e-5)


def test_effective_ranks_of_known_circuits():
    """One direction, three alike, and a circuit that is 0."""
    one, three = torch.zeros(8, 3), torch.zeros(8, 3)
    one[0, 0] = 5.0
    three[:3] = 2.0 * torch.eye(3)
    read = torch.stack([one, three, torch.zeros(8, 3)])[None]
    of_scores, of_writes = effective_ranks(HeadFactors(read, read, read, read.transpose(-1, -2), 8))
    for found in (of_scores, of_writes):
        assert found[0, :2].tolist() == pytest.approx([1.0, 3.0])
        assert math.isnan(found[0, 2].item())
