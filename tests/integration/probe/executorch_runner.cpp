/* Runs a method of a program by ExecuTorch's runtime alone, without its Module and without the
 * probe: PROGRAM METHOD FOLDER. Reads FOLDER/input.N.raw, writes FOLDER/output.N.raw, N counting
 * tensors. What the program plans no memory for lies in memory of this runner. */
#include <executorch/extension/data_loader/file_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::extension::FileDataLoader;
using executorch::extension::MallocMemoryAllocator;
using executorch::runtime::Error;
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MemoryManager;
using executorch::runtime::Program;
using executorch::runtime::Span;
using executorch::runtime::Tag;

static int failed(const char *what, Error error) {
    std::cerr << what << " answers " << (int)error << std::endl;
    return 1;
}

int main(int, char **words) {
    const std::string folder = std::string(words[3]) + "/";
    executorch::runtime::runtime_init();
    auto loader = FileDataLoader::from(words[1]);
    if (!loader.ok()) return failed("FileDataLoader::from", loader.error());
    auto program = Program::load(&*loader);
    if (!program.ok()) return failed("Program::load", program.error());
    auto meta = program->method_meta(words[2]);
    if (!meta.ok()) return failed("method_meta", meta.error());

    std::vector<std::vector<uint8_t>> planned;
    std::vector<Span<uint8_t>> spans;
    for (size_t i = 0; i < meta->num_memory_planned_buffers(); i++)
        planned.emplace_back(*meta->memory_planned_buffer_size(i));
    for (auto &one : planned) spans.emplace_back(one.data(), one.size());
    HierarchicalAllocator arena({spans.data(), spans.size()});
    MallocMemoryAllocator pool, scratch;
    MemoryManager memory(&pool, &arena, &scratch);
    auto method = program->load_method(words[2], &memory);
    if (!method.ok()) return failed("load_method", method.error());

    std::vector<std::vector<char>> outputs(meta->num_outputs()), inputs(meta->num_inputs());
    for (size_t i = 0; i < outputs.size(); i++) {
        if (*meta->output_tag(i) != Tag::Tensor) continue;
        auto tensor = meta->output_tensor_meta(i);
        if (tensor->is_memory_planned()) continue;
        outputs[i].resize(tensor->nbytes());
        Error error = method->set_output_data_ptr(outputs[i].data(), outputs[i].size(), i);
        if (error != Error::Ok) return failed("set_output_data_ptr", error);
    }
    for (size_t i = 0; i < inputs.size(); i++) {
        auto tensor = meta->input_tensor_meta(i);
        inputs[i].resize(tensor->nbytes());
        std::ifstream file(folder + "input." + std::to_string(i) + ".raw", std::ios::binary);
        if (!file.read(inputs[i].data(), (std::streamsize)inputs[i].size())) {
            std::cerr << "input " << i << " has " << inputs[i].size() << " bytes" << std::endl;
            return 1;
        }
        TensorImpl impl(tensor->scalar_type(), (ssize_t)tensor->sizes().size(),
                        const_cast<TensorImpl::SizesType *>(tensor->sizes().data()),
                        inputs[i].data(),
                        const_cast<TensorImpl::DimOrderType *>(tensor->dim_order().data()));
        Error error = method->set_input(Tensor(&impl), i);
        if (error != Error::Ok) return failed("set_input", error);
    }
    Error error = method->execute();
    if (error != Error::Ok) return failed("execute", error);
    size_t number = 0;
    for (size_t i = 0; i < outputs.size(); i++) {
        const auto &value = method->get_output(i);
        if (!value.isTensor()) continue;
        const Tensor tensor = value.toTensor();
        std::ofstream file(folder + "output." + std::to_string(number++) + ".raw",
                           std::ios::binary);
        file.write((const char *)tensor.const_data_ptr(), (std::streamsize)tensor.nbytes());
    }
    return 0;
}
