"""The direct path: how what a head writes reaches the logits with every norm's scale frozen."""

from headscope.models.frozen_norm_path.paths import DirectPaths, direct_paths

__all__ = ["DirectPaths", "direct_paths"]
