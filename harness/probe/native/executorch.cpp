/* ExecuTorch as what drives QNN: only in the probe that is linked with its libraries.
 *
 * A method is loaded in one call, in a thread of its own. It says on stderr when it begins with
 * the next delegate; there it waits until the plan comes to that one, so that device and contexts
 * are a step each, and a crash or a hang has the step it belongs to. */
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
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
using executorch::runtime::HierarchicalAllocator;
using executorch::runtime::MethodMeta;
using executorch::runtime::Span;
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
    /* What the program plans: it keeps its state there, too. `fresh` is as loading left it. */
    std::vector<std::vector<uint8_t>> planned, fresh;
    std::vector<Span<uint8_t>> spans;
    std::unique_ptr<HierarchicalAllocator> memory;
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
            Error error = program.module->load_method(program.method, program.memory.get());
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

struct input {
    struct buffer buffer;
    uint32_t type;
    bool kept; /* ExecuTorch has memory of its own for it, and copies */
    executorch::extension::TensorPtr tensor;
};

/* An output that is a tensor or a number. */
struct output {
    size_t at;            /* among all outputs of the method */
    struct tensor tensor; /* over ExecuTorch's memory, `lent` or `number` */
    struct buffer lent;   /* where the program plans no memory for it */
    uint8_t number[8];
    uint32_t first_crc;
};

struct run { /* buffers of one step, given back when it is over */
    std::vector<struct input> inputs;
    std::vector<struct output> outputs;
    std::vector<EValue> values;
    ~run() {
        for (auto &one : inputs) buffer_free(&one.buffer);
        for (auto &one : outputs) buffer_free(&one.tensor.expected);
        for (auto &one : outputs) buffer_free(&one.lent);
    }
};

/* Whether there is a file for each tensor, or for none. Only the program knows what fits. */
bool given(const struct step *step, const char *prefix, const char *what, size_t wanted,
           struct outcome *outcome) {
    size_t count = 0;
    for (uint32_t i = 0; i < step->field_count; i++)
        count += strncmp(step->fields[i].key, prefix, strlen(prefix)) == 0;
    return count == 0 || count == wanted ||
           fail(outcome, "given", "%s of the method: %zu, files given: %zu", what, wanted, count);
}

bool fits(bool was_read, struct outcome *outcome) {
    if (!was_read && strcmp(outcome->error, "size") == 0) outcome->error = "given";
    return was_read;
}

executorch::extension::TensorPtr over(const executorch::runtime::TensorInfo &tensor, void *data) {
    return executorch::extension::make_tensor_ptr(
        {tensor.sizes().begin(), tensor.sizes().end()}, data, tensor.scalar_type());
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* nothing else tells it */
/* What an input that is no tensor was exported with: the method takes nothing else. */
bool exported_value(uint32_t at, EValue *value, struct outcome *outcome) {
    auto method = program.module->method(program.method);
    if (!fine(method.error(), outcome)) return false;
    *value = (*method)->get_input(at);
    return true;
}
#pragma GCC diagnostic pop

bool fill_input(const struct step *step, size_t number, struct input *input,
                struct outcome *outcome) {
    const char *file = step_numbered(step, "input.", (uint32_t)number);
    if (file != nullptr) return fits(file_read(file, &input->buffer, outcome), outcome);
    make_input(input->type, &input->buffer);
    return true;
}

bool prepare_input(const struct step *step, uint32_t at, const MethodMeta &meta, struct run *run,
                   struct outcome *outcome) {
    auto tag = meta.input_tag(at);
    run->values.emplace_back();
    if (!fine(tag.error(), outcome)) return false;
    if (*tag != Tag::Tensor) return exported_value(at, &run->values.back(), outcome);
    auto tensor = meta.input_tensor_meta(at);
    if (!fine(tensor.error(), outcome)) return false;
    run->inputs.push_back({});
    struct input *input = &run->inputs.back();
    input->type = qnn_type(tensor->scalar_type());
    input->kept = tensor->is_memory_planned();
    if (!buffer_make(&input->buffer, tensor->nbytes(), outcome) ||
        !fill_input(step, run->inputs.size() - 1, input, outcome))
        return false;
    input->tensor = over(*tensor, input->buffer.data);
    run->values.back() = EValue(*input->tensor);
    return true;
}

/* An output without planned memory is written where its caller says, and so has to be given some.
 * Where it is one of the inputs, that input's memory takes the place of this when it is set. */
bool prepare_output(uint32_t at, const MethodMeta &meta, struct run *run,
                    struct outcome *outcome) {
    auto tag = meta.output_tag(at);
    if (!fine(tag.error(), outcome)) return false;
    bool number = *tag == Tag::Int || *tag == Tag::Double || *tag == Tag::Bool;
    if (*tag != Tag::Tensor && !number) return true; /* of nothing, texts, lists there is no file */
    run->outputs.push_back({});
    struct output *output = &run->outputs.back();
    output->at = at;
    if (*tag != Tag::Tensor) return true;
    auto tensor = meta.output_tensor_meta(at);
    if (!fine(tensor.error(), outcome)) return false;
    if (tensor->is_memory_planned()) return true;
    if (!buffer_make(&output->lent, tensor->nbytes(), outcome)) return false;
    auto lent = EValue(*over(*tensor, output->lent.data));
    return fine(program.module->set_output(program.method, lent, at), outcome);
}

bool prepare(const struct step *step, struct run *run, struct outcome *outcome) {
    auto meta = program.module->method_meta(program.method);
    if (!fine(meta.error(), outcome)) return false;
    for (uint32_t at = 0; at < meta->num_inputs(); at++)
        if (!prepare_input(step, at, *meta, run, outcome)) return false;
    for (uint32_t at = 0; at < meta->num_outputs(); at++)
        if (!prepare_output(at, *meta, run, outcome)) return false;
    return given(step, "input.", "inputs", run->inputs.size(), outcome) &&
           given(step, "expect.", "outputs", run->outputs.size(), outcome);
}

/* Points at what a value holds, which for a number is a copy of it. */
void look_at(const EValue &value, struct output *output) {
    struct tensor *seen = &output->tensor;
    if (value.isTensor()) {
        const auto tensor = value.toTensor();
        seen->data_type = qnn_type(tensor.scalar_type());
        seen->buffer = {(uint8_t *)tensor.mutable_data_ptr(), tensor.nbytes(), nullptr, 0};
        return;
    }
    int64_t whole = value.isInt() ? value.toInt() : value.isBool() && value.toBool();
    double real = value.isDouble() ? value.toDouble() : 0;
    memcpy(output->number, value.isDouble() ? (void *)&real : (void *)&whole, sizeof whole);
    seen->data_type = value.isDouble() ? 0x0264 : value.isInt() ? 0x0064 : 0x0508;
    seen->buffer = {output->number, value.isBool() ? 1u : sizeof whole, nullptr, 0};
}

/* One output against its file and against the first run. */
bool check_output(const struct step *step, uint32_t i, uint64_t round, struct output *output,
                  struct outcome *outcome) {
    struct tensor *seen = &output->tensor;
    if (seen->expected.data == nullptr && !fits(expected_read(seen, i, step, outcome), outcome))
        return false;
    uint32_t crc = checksum(0, seen->buffer.data, seen->buffer.size);
    if (round == 1) output->first_crc = crc;
    if (output->first_crc != crc)
        return fail(outcome, "mismatch", "run %llu: output %u is not that of run 1",
                    (unsigned long long)round, i);
    return output_right(seen, i, step, round, outcome);
}

bool unharmed(const struct buffer *buffer, const char *what, size_t at, uint64_t round,
              struct outcome *outcome) {
    uint64_t damage = buffer_damage(buffer);
    return damage == 0 || fail(outcome, "guard", "run %llu wrote %llu bytes outside of %s %zu",
                               (unsigned long long)round, (unsigned long long)damage, what, at);
}

/* Every run begins as the first one did, whatever a program remembers. */
void forget(void) {
    if (program.fresh.empty()) program.fresh = program.planned;
    for (size_t i = 0; i < program.fresh.size(); i++)
        std::copy(program.fresh[i].begin(), program.fresh[i].end(), program.planned[i].begin());
}

bool run_once(const struct step *step, struct run *run, struct rounds *rounds,
              struct outcome *outcome) {
    forget();
    /* the program works on what it does not keep, and may have written there */
    for (size_t i = 0; rounds->made > 0 && i < run->inputs.size(); i++)
        if (!run->inputs[i].kept && !fill_input(step, i, &run->inputs[i], outcome)) return false;
    for (auto &output : run->outputs)
        if (output.lent.data != nullptr) buffer_fill(&output.lent);
    uint64_t started = now_us();
    auto given = program.module->execute(program.method, run->values);
    rounds_add(rounds, now_us() - started);
    if (!fine(given.error(), outcome)) return false;
    for (size_t i = 0; i < run->inputs.size(); i++)
        if (!unharmed(&run->inputs[i].buffer, "input", i, rounds->made, outcome)) return false;
    for (uint32_t i = 0; i < run->outputs.size(); i++) {
        struct output *output = &run->outputs[i];
        look_at((*given)[output->at], output);
        if (!unharmed(&output->lent, "output", i, rounds->made, outcome) ||
            (rounds->made == 1 && !output_save(&output->tensor, i, step, outcome)))
            return false;
    }
    for (uint32_t i = 0; i < run->outputs.size(); i++)
        if (!check_output(step, i, rounds->made, &run->outputs[i], outcome)) return false;
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
    bool is_program = fine(program.module->load(), outcome);
    outcome->duration_us = now_us() - started;
    if (!is_program) return;
    auto meta = program.module->method_meta(program.method);
    if (!fine(meta.error(), outcome)) return;
    program.delegates = meta->num_backends();
    for (size_t i = 0; i < meta->num_memory_planned_buffers(); i++) {
        auto size = meta->memory_planned_buffer_size(i);
        if (!fine(size.error(), outcome)) return;
        program.planned.emplace_back((size_t)*size);
        program.spans.emplace_back(program.planned.back().data(), (size_t)*size);
    }
    program.memory = std::make_unique<HierarchicalAllocator>(
        Span<Span<uint8_t>>(program.spans.data(), program.spans.size()));
    json_u64(&outcome->data, "delegates", program.delegates);
    json_u64(&outcome->data, "inputs", meta->num_inputs());
    json_u64(&outcome->data, "outputs", meta->num_outputs());
}

extern "C" void executorch_device(const struct step *step, struct outcome *outcome) {
    if (!loaded(outcome)) return;
    int mode = (int)step_number(step, "performance_mode", 0);
    executorch::runtime::BackendOptions<1> options;
    if (program.thread.joinable())
        fail(outcome, "plan", "the method is being loaded already");
    else if (mode > 0 &&
             !(fine(options.set_option("qnn_runtime_htp_performance_mode", mode), outcome) &&
               fine(executorch::runtime::set_option("QnnBackend", options.view()), outcome)))
        return;
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
    if (!loaded(outcome)) return;
    if (!proceed(true, outcome)) return;
    struct run run;
    if (!prepare(step, &run, outcome)) return;
    rounds_begin(&rounds, step);
    while (rounds_more(&rounds) && run_once(step, &run, &rounds, outcome)) continue;
    rounds_report(&rounds, outcome);
    if (outcome->code != 0) return;
    json_open(&outcome->data, "digests", '[');
    for (const auto &output : run.outputs) json_u64(&outcome->data, nullptr, output.first_crc);
    json_close(&outcome->data, ']');
    json_open(&outcome->data, "outputs", '[');
    for (uint32_t i = 0; i < run.outputs.size(); i++)
        report_comparison(&run.outputs[i].tensor, i, &outcome->data);
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
    for (auto *memory : {&program.planned, &program.fresh}) memory->clear();
    program.spans.clear();
    program.begun = 0;
    program.over = false;
    outcome->called = true;
    outcome->duration_us = now_us() - started;
}
