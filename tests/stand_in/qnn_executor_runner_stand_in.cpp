/* Stands in for ExecuTorch's qnn_executor_runner, which its wheel does not have: the flags, the lines
 * that it logs and the files that it writes, over the same libraries. What QNN answers is real. */
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using executorch::extension::Module;
using executorch::runtime::Error;

namespace {

void log_line(char level, const std::string &text) {
    fprintf(stderr, "%c 00:00:00.000000 executorch:qnn_executor_runner.cpp:1] %s\n", level,
            text.c_str());
}

/* As ET_CHECK_MSG does. */
void check(bool holds, const std::string &text) {
    if (holds) return;
    log_line('F', "In function main(), assert failed: " + text);
    abort();
}

std::string hex(Error error) {
    char text[16];
    snprintf(text, sizeof text, "0x%x", (unsigned)error);
    return text;
}

} // namespace

int main(int argc, char **argv) {
    std::map<std::string, std::string> flags = {{"--input_list_path", "input_list.txt"},
                                                {"--output_folder_path", "outputs"},
                                                {"--model_path", "model.pte"}};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (flags.count(argv[i]) == 0) {
            fprintf(stderr, "ERROR: unknown command line flag '%s'\n", argv[i] + 2);
            return 1;
        }
        flags[argv[i]] = argv[i + 1];
    }
    executorch::runtime::runtime_init();
    Module module(flags["--model_path"]);
    if (module.load() != Error::Ok) {
        log_line('E', "Failed to parse model file " + flags["--model_path"]);
        return 1;
    }
    log_line('I', "Model file " + flags["--model_path"] + " is loaded.");
    log_line('I', "Using method forward");
    Error loaded = module.load_method("forward");
    check(loaded == Error::Ok, "Loading of method forward failed with status " + hex(loaded));
    log_line('I', "Method loaded.");
    auto meta = module.method_meta("forward");
    std::ifstream list(flags["--input_list_path"]);
    std::string line;
    for (int inference = 0; std::getline(list, line); inference++) {
        std::istringstream words(line);
        std::vector<std::string> files;
        for (std::string word; words >> word;) files.push_back(word);
        check(files.size() == meta->num_inputs(),
              "Number of inputs (" + std::to_string(meta->num_inputs()) +
                  ") mismatch with input files (" + std::to_string(files.size()) + ")");
        std::vector<std::vector<char>> contents;
        std::vector<executorch::extension::TensorPtr> tensors;
        std::vector<executorch::runtime::EValue> values;
        for (size_t i = 0; i < files.size(); i++) {
            auto tensor = meta->input_tensor_meta(i);
            std::ifstream file(files[i], std::ios::binary);
            contents.emplace_back(std::istreambuf_iterator<char>(file),
                                  std::istreambuf_iterator<char>());
            check(contents[i].size() == tensor->nbytes(),
                  "Input(" + std::to_string(i) + ") size mismatch. file bytes: " +
                      std::to_string(contents[i].size()) +
                      ", tensor bytes: " + std::to_string(tensor->nbytes()));
            std::vector<executorch::aten::SizesType> sizes(tensor->sizes().begin(),
                                                           tensor->sizes().end());
            tensors.push_back(executorch::extension::make_tensor_ptr(
                std::move(sizes), contents[i].data(), tensor->scalar_type()));
            values.emplace_back(*tensors.back());
        }
        log_line('I', "Perform 0 inference for warming up");
        log_line('I', "Start inference (" + std::to_string(inference) + ")");
        auto given = module.execute("forward", values);
        log_line('I', "1 inference took 1.500000 ms, avg 1.500000 ms");
        check(given.ok(), "Execution of method forward failed with status " + hex(given.error()));
        for (size_t i = 0; i < given->size(); i++) {
            const auto tensor = (*given)[i].toTensor();
            std::ofstream out(flags["--output_folder_path"] + "/output_" +
                                  std::to_string(inference) + "_" + std::to_string(i) + ".raw",
                              std::ios::binary);
            out.write((const char *)tensor.const_data_ptr(), (std::streamsize)tensor.nbytes());
        }
    }
    return 0;
}
