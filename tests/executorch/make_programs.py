"""Makes the programs beside it: `make_programs.py llama stories-like.pte`, `... forms forms.pte`.

In an environment of its own with executorch 1.5.1, torch and transformers. `llama` needs QNN
2.49.40, its libraries below $QNN_SDK_ROOT/lib/x86_64-linux-clang, and on LD_LIBRARY_PATH that
folder and the one of its C++ runtime.

llama: a hybrid llama as ExecuTorch's own example exports it: its model, made tiny and random, with
a method for prompts and one for each further token, KV caches as inputs and outputs, and memory
planned for neither. forms: a method for each form that inputs and outputs can have.
"""

import sys
import types
from pathlib import Path

import executorch
import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.passes.memory_planning_pass import MemoryPlanningPass

UNPLANNED = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
CONTEXT, PROMPT = 16, 8


def llama() -> bytes:
    # the package's own __init__ imports the converters of all models
    name = "executorch.examples.qualcomm.oss_scripts.llama"
    (root,) = executorch.__path__
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [f"{root}/examples/qualcomm/oss_scripts/llama"]
    from executorch.backends.qualcomm._passes.build_quant_io import BuildQuantIo
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.examples.qualcomm.oss_scripts.llama.model.static_llama import LlamaModel

    def decoder(tokens: int) -> torch.nn.Module:
        torch.manual_seed(7)
        arguments = ModelArgs(
            dim=32,
            n_layers=2,
            n_heads=4,
            n_kv_heads=2,
            head_dim=8,
            hidden_dim=64,
            vocab_size=64,
            max_seq_len=CONTEXT,
            max_context_len=CONTEXT,
            use_kv_cache=True,
        )
        arguments.kv_io_bit_width = 32
        model = LlamaModel(arguments, ar_len=tokens)
        state = {key: torch.randn_like(one) * 0.2 for key, one in model.state_dict().items()}
        model.load_state_dict(state)
        for layer in model.layers:
            layer.attention.prepare_attention_conv()
            layer.feed_forward.prepare_feedforward_conv()
        model.prepare_output_conv()
        return model.eval()

    def example(model: torch.nn.Module) -> tuple[torch.Tensor, ...]:
        tokens, _, positions, keys, values = model.get_example_inputs()
        return tokens, torch.zeros(1, model.ar_len, CONTEXT), positions, *keys, *values

    models = {"kv_forward": decoder(1), "prefill_forward": decoder(PROMPT)}
    specs = generate_qnn_executorch_compiler_spec(
        soc_model=QcomChipset.SM8550, backend_options=generate_htp_compiler_spec(use_fp16=True)
    )
    lowered = to_edge_transform_and_lower_to_qnn(
        module=models,
        inputs={name: example(model) for name, model in models.items()},
        compiler_specs=dict.fromkeys(models, specs),
        constant_methods=models["kv_forward"].get_metadata(),
    )
    config = ExecutorchBackendConfig(memory_planning_pass=UNPLANNED, passes=[BuildQuantIo()])
    return lowered.to_executorch(config).buffer


class Numbers(torch.nn.Module):
    def forward(self, x):
        return 7, x + 1, 2.5, x * 2, True


class Same(torch.nn.Module):
    def forward(self, x):
        return x, x + 1


class Constant(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x):
        return self.table, x + self.table


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x + x


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.ones(4))

    def forward(self, x):
        self.seen.add_(x)
        return self.seen + 0


class Factor(torch.nn.Module):
    def forward(self, x, factor: int, y):
        return x * factor + y


def forms() -> bytes:
    x = torch.arange(4.0)
    several = torch.arange(12.0).reshape(3, 4)
    rows = {"x": {0: torch.export.Dim("rows", min=1, max=8)}}
    methods = {
        "numbers": torch.export.export(Numbers(), (x,)),
        "same": torch.export.export(Same(), (x,)),
        "constant": torch.export.export(Constant(), (x,)),
        "rows": torch.export.export(Doubled(), (several,), dynamic_shapes=rows),
        "counting": torch.export.export(Counting(), (x,)),
        "factor": torch.export.export(Factor(), (x, 3, x)),
    }
    edge = to_edge(methods, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=UNPLANNED)).buffer


if __name__ == "__main__":
    what, file = sys.argv[1:]
    Path(file).write_bytes({"llama": llama, "forms": forms}[what]())
