/* ExecuTorch as what drives QNN: only in the probe that is linked with its libraries.
 *
 * A method is loaded in one call, in a thread of its own. It says on stderr when it begins with
 * the next delegate; there it waits until the plan comes to that one, so that device and contexts
 * are a step each, and a crash or a hang has the step it belongs to. */
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define _Static_assert static_assert
extern "C" {
#include "probe.h"
#include "rounds.h"
}

using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Tag;

namespace {

constexpr char DELEGATE_BEGINS[] = "Deserializing processed data";
constexpr char DEVICE_IS_THERE[] = "Initialize Qnn backend parameters";
constexpr char OWN_MARK[] = "[Qnn ExecuTorch]: ";

struct {
    Module *module;
    std::string method;
    size_t delegates;
    std::thread thread;
    std::mutex lock;
    std::condition_variable turned;
    bool waiting, over, nonstop; /* the thread waits for the next step; is done; shall not wait */
    size_t begun;                /* delegates, so far */
    Error error;
} program;

void say(uint32_t level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (level <= qnn.log_level) log_line(format, level, 0, args);
    va_end(args);
}

void await_step(void) {
    std::unique_lock<std::mutex> held(program.lock);
    if (program.nonstop) return;
    program.waiting = true;
    program.turned.notify_all();
    program.turned.wait(held, [] { return !program.waiting; });
}

/* One line of ExecuTorch's QNN backend: "[ERROR] [Qnn ExecuTorch]: text". */
void take_line(const char *line, size_t length) {
    static const struct { const char *mark; uint32_t level; } levels[] = {
        {"[ERROR]", ABI_LOG_ERROR}, {"[WARNING]", ABI_LOG_WARN}, {"[INFO]", ABI_LOG_INFO}};
    uint32_t level = ABI_LOG_VERBOSE;
    for (const auto &known : levels)
        if (strncmp(line, known.mark, strlen(known.mark)) == 0) level = known.level;
    const char *text = strstr(line, OWN_MARK);
    text = text != nullptr ? text + strlen(OWN_MARK) : line;
    if (strncmp(text, DELEGATE_BEGINS, strlen(DELEGATE_BEGINS)) == 0 && program.begun++ > 0)
        await_step();
    if (strncmp(text, DEVICE_IS_THERE, strlen(DEVICE_IS_THERE)) == 0 && program.begun == 1)
        await_step();
    if (length > 0) say(level, "%s", text);
}

/* What stderr is made of: whole lines become events in the thread that wrote them. */
ssize_t take_written(void *, const char *bytes, size_t size) {
    static char line[LOG_LINE_MAX];
    static size_t length;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != '\n' && length < sizeof line - 1) {
            line[length++] = bytes[i];
            continue;
        }
        line[length] = '\0';
        take_line(line, length);
        length = 0;
    }
    return (ssize_t)size;
}

void take_log(et_timestamp_t, et_pal_log_level_t level, const char *file, const char *,
              size_t line, const char *message, size_t length) {
    bool error = level == kError || level == kFatal;
    say(error ? ABI_LOG_ERROR : level == kInfo ? ABI_LOG_INFO : ABI_LOG_DEBUG, "%.*s [%s:%zu]",
        (int)length, message, file, line);
}

bool fine(Error error, struct outcome *outcome) {
    outcome->called = true;
    outcome->code = (abi_error)error;
    snprintf(outcome->symbol, sizeof outcome->symbol, "%s",
             error == Error::Ok ? "" : executorch::runtime::to_string(error));
    return error == Error::Ok;
}

bool loaded(struct outcome *outcome) {
    return program.module != nullptr || fail(outcome, "plan", "no program is loaded");
}

/* Goes on with loading until the thread waits again or is done; false if it has failed. */
bool proceed(bool to_the_end, struct outcome *outcome) {
    uint64_t started = now_us();
    if (!program.thread.joinable()) {
        program.thread = std::thread([] {
            Error error = program.module->load_method(program.method);
            std::lock_guard<std::mutex> held(program.lock);
            program.error = error;
            program.over = true;
            program.turned.notify_all();
        });
    }
    std::unique_lock<std::mutex> held(program.lock);
    program.nonstop = to_the_end;
    program.waiting = false;
    program.turned.notify_all();
    program.turned.wait(held, [] { return program.waiting || program.over; });
    outcome->duration_us = now_us() - started;
    return !program.over || fine(program.error, outcome);
}

uint32_t qnn_type(executorch::aten::ScalarType type) {
    static const uint32_t types[] = {0x0108, 0x0008, 0x0016, 0x0032, 0x0064, 0x0216, 0x0232,
                                     0x0264, 0,      0,      0,      0x0508};
    size_t at = (size_t)type;
    if (type == executorch::aten::ScalarType::UInt16) return 0x0116;
    if (type == executorch::aten::ScalarType::UInt32) return 0x0132;
    return at < sizeof types / sizeof *types ? types[at] : 0;
}

/* Numbers that are the same each time; what has other widths is zero. */
void make_input(uint32_t type, struct buffer *buffer) {
    memset(buffer->data, 0, buffer->size);
    for (uint64_t i = 0; type == 0x0232 && i < buffer->size / sizeof(float); i++) {
        float value = (float)((int)(i * 37 % 251) - 125) / 125.0f;
        memcpy(buffer->data + i * sizeof value, &value, sizeof value);
    }
    for (uint64_t i = 0; (type & 0xff) == 8 && type != 0x0508 && i < buffer->size; i++)
        buffer->data[i] = (uint8_t)(i * 37 % 251);
}

struct run { /* buffers of one step, given back when it is over */
    std::vector<struct buffer> inputs;
    std::vector<struct tensor> outputs; /* over ExecuTorch's own memory */
    std::vector<executorch::extension::TensorPtr> tensors;
    std::vector<EValue> values;
    std::vector<uint32_t> first_crc;
    ~run() {
        for (auto &buffer : inputs) buffer_free(&buffer);
        for (auto &output : outputs) buffer_free(&output.expected);
    }
};

/* Whether there is a file for each tensor, or for none. What a user gave is not known to fit before:
 * only the program knows its tensors. */
bool given(const struct step *step, const char *prefix, const char *what, size_t wanted,
           struct outcome *outcome) {
    size_t count = 0;
    for (uint32_t i = 0; i < step->field_count; i++)
        count += strncmp(step->fields[i].key, prefix, strlen(prefix)) == 0;
    if (count == 0 || count == wanted) return true;
    return fail(outcome, "given", "the method has %zu %s, and %zu files are given", wanted, what,
                count);
}

bool fits(bool was_read, struct outcome *outcome) {
    if (!was_read && strcmp(outcome->error, "size") == 0) outcome->error = "given";
    return was_read;
}

bool prepare(const struct step *step, struct run *run, struct outcome *outcome) {
    auto meta = program.module->method_meta(program.method);
    if (!meta.ok()) return fine(meta.error(), outcome);
    size_t inputs = meta->num_inputs(), outputs = meta->num_outputs();
    if (!given(step, "input.", "inputs", inputs, outcome) ||
        !given(step, "expect.", "outputs", outputs, outcome))
        return false;
    run->inputs.resize(inputs);
    run->outputs.resize(outputs);
    for (uint32_t i = 0; i < inputs; i++) {
        auto tag = meta->input_tag(i);
        auto tensor = meta->input_tensor_meta(i);
        if (!tag.ok() || *tag != Tag::Tensor || !tensor.ok())
            return fail(outcome, "given", "input %u is no tensor, and only tensors are made up", i);
        const char *file = step_numbered(step, "input.", i);
        struct buffer *buffer = &run->inputs[i];
        if (!buffer_make(buffer, tensor->nbytes(), outcome)) return false;
        make_input(qnn_type(tensor->scalar_type()), buffer);
        if (file != nullptr && !fits(file_read(file, buffer, outcome), outcome)) return false;
        std::vector<executorch::aten::SizesType> sizes(tensor->sizes().begin(),
                                                       tensor->sizes().end());
        run->tensors.push_back(executorch::extension::make_tensor_ptr(std::move(sizes), buffer->data,
                                                                      tensor->scalar_type()));
        run->values.emplace_back(*run->tensors.back());
    }
    return true;
}

/* One output against its file and against the first run. */
bool check_output(const struct step *step, uint32_t i, uint64_t round, struct run *run,
                  struct outcome *outcome) {
    struct tensor *output = &run->outputs[i];
    if (output->expected.data == nullptr &&
        !fits(expected_read(output, i, step, outcome), outcome))
        return false;
    uint32_t crc = checksum(0, output->buffer.data, output->buffer.size);
    if (round == 1) run->first_crc.push_back(crc);
    if (run->first_crc[i] != crc)
        return fail(outcome, "mismatch", "run %llu: output %u is not that of run 1",
                    (unsigned long long)round, i);
    return output_right(output, i, step, round, outcome);
}

bool run_once(const struct step *step, struct run *run, struct rounds *rounds, bool save,
              struct outcome *outcome) {
    uint64_t started = now_us();
    auto given = program.module->execute(program.method, run->values);
    rounds_add(rounds, now_us() - started);
    if (!fine(given.error(), outcome)) return false;
    for (uint32_t i = 0; i < given->size() && i < run->outputs.size(); i++) {
        if (!(*given)[i].isTensor()) continue;
        const auto tensor = (*given)[i].toTensor();
        struct tensor *output = &run->outputs[i];
        output->data_type = qnn_type(tensor.scalar_type());
        output->buffer = {(uint8_t *)tensor.mutable_data_ptr(), tensor.nbytes(), nullptr, 0};
        if (!check_output(step, i, rounds->made, run, outcome) ||
            (save && !output_save(output, i, step, outcome)))
            return false;
    }
    return true;
}

} // namespace

extern "C" void executorch_program(const struct step *step, struct outcome *outcome) {
    if (program.module != nullptr) {
        fail(outcome, "plan", "a program is loaded already");
        return;
    }
    /* For the libraries, too: their stderr is this program's variable. Unbuffered C streams would
     * hand over a line in pieces. */
    static FILE *lines = fopencookie(nullptr, "w", {nullptr, take_written, nullptr, nullptr});
    if (lines == nullptr) {
        fail(outcome, "memory", "cannot make a stream for the log");
        return;
    }
    setvbuf(lines, nullptr, _IOLBF, LOG_LINE_MAX);
    stderr = lines;
    executorch::runtime::register_pal(
        executorch::runtime::PalImpl::create(take_log, __FILE__));
    executorch::runtime::runtime_init();
    uint64_t started = now_us();
    const char *method = step_text(step, "method");
    program.method = method != nullptr ? method : "forward";
    program.module = new Module(step_text(step, "file"));
    Error error = program.module->load();
    outcome->duration_us = now_us() - started;
    if (!fine(error, outcome)) return;
    auto meta = program.module->method_meta(program.method);
    if (!fine(meta.error(), outcome)) return;
    program.delegates = meta->num_backends();
    json_u64(&outcome->data, "delegates", program.delegates);
    json_u64(&outcome->data, "inputs", meta->num_inputs());
    json_u64(&outcome->data, "outputs", meta->num_outputs());
}

extern "C" void executorch_device(const struct step *, struct outcome *outcome) {
    if (!loaded(outcome)) return;
    if (program.thread.joinable())
        fail(outcome, "plan", "the method is being loaded already");
    else if (proceed(false, outcome))
        outcome->called = true;
}

extern "C" void executorch_context(const struct step *step, struct outcome *outcome) {
    uint64_t context = step_number(step, "context", 0);
    if (!loaded(outcome)) return;
    if (context + 1 != program.begun || program.over) {
        fail(outcome, "plan", "the method has come to context %zu of %zu%s", program.begun,
             program.delegates, program.over ? ", and is loaded" : "");
        return;
    }
    if (proceed(false, outcome)) outcome->called = true;
}

extern "C" void executorch_run(const struct step *step, struct outcome *outcome) {
    static struct rounds rounds;
    uint64_t repeats = step_number(step, "repeat", 1);
    if (!loaded(outcome)) return;
    if (!proceed(true, outcome)) return;
    struct run run;
    if (!prepare(step, &run, outcome)) return;
    rounds_begin(&rounds);
    while (rounds.made < repeats &&
           run_once(step, &run, &rounds, rounds.made + 1 == repeats, outcome))
        continue;
    rounds_report(&rounds, outcome);
    if (outcome->code != 0) return;
    json_open(&outcome->data, "digests", '[');
    for (uint32_t crc : run.first_crc) json_u64(&outcome->data, nullptr, crc);
    json_close(&outcome->data, ']');
    json_open(&outcome->data, "outputs", '[');
    for (uint32_t i = 0; i < run.outputs.size(); i++)
        report_comparison(&run.outputs[i], i, &outcome->data);
    json_close(&outcome->data, ']');
}

extern "C" void executorch_free(const struct step *, struct outcome *outcome) {
    if (!to_free(program.module != nullptr, outcome)) return;
    struct outcome ignored = {};
    if (program.thread.joinable()) {
        proceed(true, &ignored);
        program.thread.join();
    }
    uint64_t started = now_us();
    delete program.module;
    program.module = nullptr;
    program.begun = 0;
    program.over = false;
    outcome->called = true;
    outcome->duration_us = now_us() - started;
}
