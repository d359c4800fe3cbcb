"""Models whose parts lie on several devices, by a map that accelerate makes."""

from __future__ import annotations

from typing import Any

from headscope.errors import ChoiceError, ModelError
from headscope.models.load_options import DEVICE_MAPS, LoadOptions
from headscope.models.packages import check_packages


def check_device_map(options: LoadOptions) -> None:
    """Refuse a device map that is unknown or goes with no other option that is set.

    Raises:
        ChoiceError: no such device map.
        ModelError: a device, an adapter or the lens engine is set too, or accelerate is missing.
    """
    if options.device_map not in DEVICE_MAPS:
        raise ChoiceError("device map", str(options.device_map), DEVICE_MAPS)
    if options.device != "auto":
        raise ModelError(f"--device-map chooses the devices; leave --device {options.device} out")
    if options.adapter is not None:
        raise ModelError("--adapter is merged on one device; merge, save, and spread that model")
    if options.engine == "lens":
        raise ModelError("--device-map goes with the fused engine; the lens engine has one device")
    check_packages("--device-map", ["accelerate"])


def device_map_note(network: Any) -> tuple[str, ...]:
    """Note on the devices that the parts of a network lie on, where there are several."""
    devices = list(dict.fromkeys(map(str, getattr(network, "hf_device_map", {}).values())))
    if not devices:
        return ()
    names = [f"cuda:{device}" if device.isdigit() else device for device in devices]
    return (f"spread by accelerate over {', '.join(names)}",)
