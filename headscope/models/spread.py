"""Models whose parts lie on several devices."""

from __future__ import annotations

from typing import Any


def spread_note(hf_model: Any) -> tuple[str, ...]:
    """Where the parts of a model lie that was spread over several devices."""
    places = getattr(hf_model, "hf_device_map", {}).values()
    devices = list(dict.fromkeys(str(place) for place in places))
    if not devices:
        return ()
    named = [f"cuda:{name}" if name.isdigit() else name for name in devices]
    return (f"spread by accelerate over {', '.join(named)}",)
