"""Compiles several models into one context binary: `share_contexts.py PLUGIN BACKEND OUT MODEL...`

Run by a test with the onnxruntime of a compiler on PYTHONPATH, never imported.
"""

import os
import sys
from pathlib import Path

import onnxruntime

plugin, backend, out, *models = sys.argv[1:]
onnxruntime.register_execution_provider_library("qnn", plugin)
devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "qnn"][:1]
sessions = []
for number, model in enumerate(models):
    options = onnxruntime.SessionOptions()
    entries = {
        "session.disable_cpu_ep_fallback": "1",
        "ep.context_enable": "1",
        "ep.context_embed_mode": "0",
        "ep.context_file_path": f"{out}/{number}.onnx",
        "ep.share_ep_contexts": "1",
    }
    if model == models[-1]:
        entries["ep.stop_share_ep_contexts"] = "1"
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    target = {"backend_path": backend, "htp_arch": "73", "soc_model": "43"}
    options.add_provider_for_devices(devices, target | {"enable_htp_fp16_precision": "1"})
    content = Path(model).read_bytes()
    sessions.append(onnxruntime.InferenceSession(content, options, enable_fallback=False))
os._exit(0)
