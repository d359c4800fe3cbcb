"""A head's scores on edges of a relation, taken apart by the features at their two ends.

With every norm's scale frozen a score is bilinear in the streams at query and key, x = f D + c + r:
activations f of the dictionary's directions D, its constant c, and the remainder r.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.block_assignment import assign_blocks
from headscope.measure.study_windows import evenly
from headscope.models.load import Model
from headscope.models.query_key_maps import StreamMap, query_key_maps
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Relation, find
from headscope.studies.features.dictionary import Dictionary

QUERIES = 48
"""Most queries of a window whose edges are read, evenly spread."""
ACTIVE = 64
"""Most features of a position whose pairs are listed, by the length of what they add to the stream;
sums over all features have them all."""
CELLS_AT_ONCE = 2**21
"""Products of two features on edges that exist at once."""
PARTS = ("features", "remainder", "biases")
"""Of a query, and of a key: the biases are the dictionary's constant and the model's own."""


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """The edges of one window, with weights by which sums are means over the keys of a query."""

    block: int
    window: Window
    count: int
    """Queries; each has targets and controls."""
    query: Int[Tensor, " edge"]
    key: Int[Tensor, " edge"]
    weight: Float[Tensor, "side edge"]
    """On targets, and on controls: of each query they sum to 1 on either side."""
    maps: tuple[StreamMap, StreamMap]
    scale: float
    bias: Float[Tensor, " edge"] | None
    stream: Float[Tensor, "position d_model"]
    activations: Float[Tensor, "position feature"]
    constant: Float[Tensor, "position d_model"]
    decoder: Float[Tensor, "feature d_model"]

    def scores(self) -> Float[Tensor, " edge"]:
        """The model's own."""
        query, key = (side.vectors for side in self.maps)
        scores = (query[self.query] * key[self.key]).sum(-1) * self.scale
        return scores if self.bias is None else scores + self.bias

    def left_out(self) -> tuple[Float[Tensor, "end d_model"], Float[Tensor, "end d_model"]]:
        """The remainder at each end of an edge, once, and the stream there."""
        ends, _ = unique_with_inverse(torch.cat([self.query, self.key]))
        written = self.activations[ends] @ self.decoder
        return self.stream[ends] - written - self.constant[ends], self.stream[ends]

    def parts(self) -> Float[Tensor, "query_part key_part edge"]:
        """What the parts of query and key give each edge's score; see `PARTS`."""
        written = self.activations @ self.decoder
        remainder = self.stream - written - self.constant
        sides = []
        for side, at in zip(self.maps, (self.query, self.key), strict=True):
            streams = torch.stack([part.double() for part in (written, remainder)])
            vectors = torch.einsum("phd,kpd->kph", side.matrix.double(), streams)
            sides.append(torch.cat([vectors, self._biases(side)[None]])[:, at])
        return torch.einsum("qeh,keh->qke", *sides) * self.scale

    def _biases(self, side: StreamMap) -> Float[Tensor, "position d_head"]:
        """What the constant and the model's biases give queries or keys, in double precision."""
        constant = torch.einsum("phd,pd->ph", side.matrix.double(), self.constant.double())
        return constant + side.offset

    @property
    def ends(self) -> int:
        """The number of features and 1: the biases stand behind the features, as one more."""
        return len(self.decoder) + 1

    def pair_sums(self) -> tuple[Int[Tensor, " pair"], Float[Tensor, " pair"]]:
        """Contrast of every pair of active features, summed over queries; pairs by number.

        The number of a pair is the query's feature × `ends` + the key's.
        """
        (first, of_query), (second, of_key) = (
            self._active(side, at)
            for side, at in zip(self.maps, (self.query, self.key), strict=True)
        )
        weight = (self.weight[0] - self.weight[1]).float() * self.scale
        step = max(1, CELLS_AT_ONCE // (first.shape[1] * second.shape[1]))
        bounds = [*range(0, len(weight), step), len(weight)]
        numbers, sums = [], []
        for start, stop in pairwise(bounds):
            q, k = self.query[start:stop], self.key[start:stop]
            added = of_query[q] @ of_key[k].transpose(1, 2) * weight[start:stop, None, None]
            pair = first[q][:, :, None] * self.ends + second[k][:, None]
            merged = summed(pair.flatten(), added.flatten().double())
            numbers.append(merged[0])
            sums.append(merged[1])
        return summed(torch.cat(numbers), torch.cat(sums))

    def of_pairs(
        self, first: Int[Tensor, " pair"], second: Int[Tensor, " pair"]
    ) -> tuple[Float[Tensor, "edge pair"], Float[Tensor, "edge pair"]]:
        """What each pair gives each edge's score, and 1 where both features are active."""
        vectors, active = [], []
        for side, at, feature in zip(
            self.maps, (self.query, self.key), (first, second), strict=True
        ):
            features, column = unique_with_inverse(feature)
            places, row = unique_with_inverse(at)
            is_biases = features == self.ends - 1
            known = features.clamp(max=self.ends - 2)
            size = self.activations[places][:, known].masked_fill(is_biases, 1.0)
            directions = torch.einsum("phd,ad->pah", side.matrix[places], self.decoder[known])
            directions = directions * size[..., None]
            directions[:, is_biases] = self._biases(side)[places, None].float()
            vectors.append(directions[row][:, column])
            active.append((size != 0)[row][:, column])
        values = (vectors[0] * vectors[1]).sum(-1).double() * self.scale
        return values, (active[0] & active[1]).double()

    def _active(
        self, side: StreamMap, at: Int[Tensor, " edge"]
    ) -> tuple[Int[Tensor, "position active"], Float[Tensor, "position active d_head"]]:
        """The strongest features of each position that has an edge, and what they add there.

        The last of them are the biases.
        """
        places, _ = unique_with_inverse(at)
        size = self.activations[places].abs() * self.decoder.norm(dim=-1)
        count = min(ACTIVE, max(1, int((size > 0).sum(-1).max())))
        strongest = size.topk(count, dim=-1).indices
        written = self.decoder[strongest]
        written = written * self.activations[places].gather(-1, strongest)[..., None]
        vectors = torch.einsum("phd,pad->pah", side.matrix[places], written)
        all_strongest = strongest.new_full((len(self.stream), count + 1), self.ends - 1)
        all_vectors = vectors.new_zeros(len(self.stream), count + 1, vectors.shape[2])
        all_strongest[places, :count], all_vectors[places, :count] = strongest, vectors
        all_vectors[:, count] = self._biases(side).float()
        return all_strongest, all_vectors


def unique_with_inverse(
    values: Int[Tensor, " item"],
) -> tuple[Int[Tensor, " distinct"], Int[Tensor, " item"]]:
    """The distinct values in order, and which of them each item is."""
    of_all = np.unique(values.numpy(), return_inverse=True)
    return torch.from_numpy(of_all[0]), torch.from_numpy(of_all[1])


def summed(
    numbers: Int[Tensor, " item"], values: Float[Tensor, " item"]
) -> tuple[Int[Tensor, " distinct"], Float[Tensor, " distinct"]]:
    """Sums of the values of each number.

    >>> [x.tolist() for x in summed(torch.tensor([7, 2, 7]), torch.tensor([1.0, 5.0, 2.0]))]
    [[2, 7], [5.0, 3.0]]
    """
    present, which = unique_with_inverse(numbers)
    return present, values.new_zeros(len(present)).index_add_(0, which, values)


@dataclass(frozen=True, eq=False)
class EdgeReader:
    """A head, and what is read of its edges."""

    model: Model
    """One that runs under the fused engine."""
    layer: int
    """Its number in the model."""
    head: int
    windows: Sequence[Window]
    """Text, or another stimulus."""
    relation: Relation
    """Whose targets and controls are read."""
    dictionary: Dictionary
    """Of the stream that the head reads, or of that of an earlier layer."""
    seed: int = 0
    """Seeds the controls."""

    @torch.no_grad()
    def read(self, half: int, advance: Callable[[], None] = lambda: None) -> Iterator[EdgeScores]:
        """The edges of each window of a half in which the relation has queries with controls.

        Args:
            half: 0 for even blocks of documents, 1 for odd ones.
            advance: called after each window.
        """
        blocks, _ = assign_blocks(self.windows)
        for index in np.flatnonzero(blocks % 2 == half).tolist():
            pairs = find(self.relation, self.windows[index], [self.seed, index])
            edges = None if pairs is None else _weighted(pairs.targets, pairs.controls)
            if edges is not None:
                yield self._scores(self.windows[index], int(blocks[index]), *edges)
            advance()

    def _scores(
        self, window: Window, block: int, query: Tensor, key: Tensor, weight: Tensor
    ) -> EdgeScores:
        """The edges of one window."""
        dictionary = self.dictionary
        read_layer = self.layer if dictionary.layer is None else dictionary.layer
        tokens = torch.from_numpy(window.tokens)
        maps = query_key_maps(self.model, tokens, (self.layer, self.head), {read_layer})
        activations, constant = dictionary.read(maps.streams[read_layer])
        return EdgeScores(
            block=block,
            window=window,
            count=int(weight[0].sum().round()),
            query=query,
            key=key,
            weight=weight,
            maps=(maps.query, maps.key),
            scale=maps.scale,
            bias=None if maps.bias is None else maps.bias[query, key],
            stream=maps.streams[self.layer],
            activations=activations,
            constant=constant.expand_as(maps.streams[self.layer]),
            decoder=dictionary.decoder,
        )


def _weighted(
    targets: Pairs, controls: Pairs
) -> tuple[Int[Tensor, " edge"], Int[Tensor, " edge"], Float[Tensor, "side edge"]] | None:
    """Edges with their weights on either side; None where no query has both."""
    owners = np.intersect1d(targets.queries, controls.queries)
    owners = owners[evenly(len(owners), QUERIES)]
    if not len(owners):
        return None
    sides = [cells.where(np.isin(cells.owner, owners)) for cells in (targets, controls)]
    query, key = (
        np.concatenate([getattr(side, end) for side in sides]) for end in ("query", "key")
    )
    weight = np.zeros((2, len(query)))
    weight[0, : len(sides[0])] = _shares(sides[0])
    weight[1, len(sides[0]) :] = _shares(sides[1])
    return torch.from_numpy(query), torch.from_numpy(key), torch.from_numpy(weight)


def _shares(cells: Pairs) -> Float[ndarray, " pair"]:
    """Weights that sum to 1 over the cells of each query."""
    total = np.bincount(cells.owner, cells.weight)
    return np.asarray(cells.weight / total[cells.owner])
