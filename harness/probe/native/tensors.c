/* Tensors: how large, what they are called, and whether an output is what it should be. */
#include "probe.h"

#include <math.h>
#include <string.h>

struct data_type {
    uint32_t code;
    uint32_t width;
    const char *name;
};

/* The low byte is the number of bits, written in decimal digits. */
static const struct data_type data_types[] = {
    {0x0008, 1, "int8"},      {0x0016, 2, "int16"},     {0x0032, 4, "int32"},
    {0x0064, 8, "int64"},     {0x0108, 1, "uint8"},     {0x0116, 2, "uint16"},
    {0x0132, 4, "uint32"},    {0x0164, 8, "uint64"},    {0x0216, 2, "float16"},
    {0x0232, 4, "float32"},   {0x0264, 8, "float64"},   {0x0308, 1, "sfixed8"},
    {0x0316, 2, "sfixed16"},  {0x0332, 4, "sfixed32"},  {0x0408, 1, "ufixed8"},
    {0x0416, 2, "ufixed16"},  {0x0432, 4, "ufixed32"},  {0x0508, 1, "bool8"},
};

static const struct data_type *find_type(uint32_t code) {
    for (size_t i = 0; i < sizeof data_types / sizeof *data_types; i++)
        if (data_types[i].code == code) return &data_types[i];
    return NULL;
}

const char *data_type_name(uint32_t data_type) {
    const struct data_type *type = find_type(data_type);
    return type != NULL ? type->name : NULL;
}

uint64_t tensor_bytes(const struct abi_tensor *tensor) {
    const struct data_type *type = find_type(tensor->data_type);
    if (type == NULL) return 0;
    uint64_t bytes = type->width;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        uint32_t dimension = tensor->dimensions[i];
        /* The ABI's size of a buffer has 32 bits. */
        if (dimension == 0 || bytes > UINT32_MAX / dimension) return 0;
        bytes *= dimension;
    }
    return bytes;
}

/* By their number in the ABI. */
static const char *const encodings[] = {
    "scale-offset", "axis-scale-offset",   "bw-scale-offset", "bw-axis-scale-offset",
    "block",        "blockwise-expansion", "vector",
};

static void describe_quantization(struct json *json, const struct abi_quantization *told) {
    if (told->definition == ABI_UNDEFINED ||
        told->encoding >= sizeof encodings / sizeof *encodings)
        return;
    json_text(json, "encoding", encodings[told->encoding]);
    if (told->encoding == ABI_SCALE_OFFSET) {
        json_real(json, "scale", (double)told->as.scale_offset.scale);
        json_i64(json, "offset", told->as.scale_offset.offset);
    } else if (told->encoding == ABI_AXIS_SCALE_OFFSET) {
        json_i64(json, "axis", told->as.axis.axis);
        json_u64(json, "channels", told->as.axis.count);
    }
}

void tensor_describe(struct json *json, const struct abi_tensor *tensor,
                     const struct abi_quantization *told) {
    json_open(json, NULL, '{');
    json_u64(json, "id", tensor->id);
    json_text(json, "name", tensor->name);
    json_u64(json, "data_type_code", tensor->data_type);
    json_text(json, "data_type", data_type_name(tensor->data_type));
    json_open(json, "dimensions", '[');
    for (uint32_t i = 0; i < tensor->rank; i++) json_u64(json, NULL, tensor->dimensions[i]);
    json_close(json, ']');
    json_u64(json, "bytes", tensor_bytes(tensor));
    json_u64(json, "memory_type", tensor->memory_type);
    describe_quantization(json, told);
    json_close(json, '}');
}

static double half_to_double(uint16_t half) {
    uint32_t exponent = (half >> 10) & 31, fraction = half & 1023;
    double value;
    if (exponent == 31)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = fraction / 16777216.0; /* 2^-24 */
    else
        value = (fraction + 1024) * (exponent >= 25 ? (double)(1u << (exponent - 25))
                                                    : 1.0 / (double)(1u << (25 - exponent)));
    return half & 0x8000 ? -value : value;
}

static void differ(struct comparison *result, uint64_t at, double got, double expected,
                   double difference, bool beyond) {
    if (difference > result->max_abs) result->max_abs = difference;
    if (!beyond) return;
    if (result->beyond++ > 0) return;
    result->first = at;
    result->first_value = got;
    result->first_expected = expected;
}

static void compare_real(struct comparison *result, uint64_t at, double got, double expected,
                         double tolerance) {
    result->nan += isnan(got) != 0;
    if (isnan(got) || isnan(expected))
        differ(result, at, got, expected, 0, !(isnan(got) && isnan(expected)));
    else if (isinf(got) || isinf(expected))
        differ(result, at, got, expected, 0, got != expected);
    else if (got != expected)
        differ(result, at, got, expected, fabs(got - expected), fabs(got - expected) > tolerance);
}

/* memcpy: a buffer of the file's bytes has no type. Integers are subtracted as integers, since
 * neighbouring 64-bit values are one and the same double. */
#define COMPARE_INTEGERS(type)                                                                  \
    do {                                                                                        \
        for (uint64_t i = 0; i < result->elements; i++) {                                       \
            type a, b;                                                                          \
            memcpy(&a, got + i * sizeof a, sizeof a);                                           \
            memcpy(&b, expected + i * sizeof b, sizeof b);                                      \
            if (a == b) continue;                                                               \
            double gap = (double)(a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a); \
            differ(result, i, (double)a, (double)b, gap, gap > tolerance);                      \
        }                                                                                       \
    } while (0)

#define COMPARE_REALS(type, convert)                                       \
    do {                                                                   \
        for (uint64_t i = 0; i < result->elements; i++) {                  \
            type a, b;                                                     \
            memcpy(&a, got + i * sizeof a, sizeof a);                      \
            memcpy(&b, expected + i * sizeof b, sizeof b);                 \
            compare_real(result, i, convert(a), convert(b), tolerance);    \
        }                                                                  \
    } while (0)

bool tensor_compare(uint32_t data_type, const uint8_t *got, const uint8_t *expected, uint64_t bytes,
                    double tolerance, struct comparison *result) {
    const struct data_type *type = find_type(data_type);
    *result = (struct comparison){0};
    if (type == NULL) return false;
    result->elements = bytes / type->width;
    uint32_t family = data_type >> 8;
    if (family != 2 && memcmp(got, expected, bytes) == 0) return true;
    bool is_signed = family == 0 || family == 3;
    if (data_type == 0x0216) COMPARE_REALS(uint16_t, half_to_double);
    else if (data_type == 0x0232) COMPARE_REALS(float, (double));
    else if (data_type == 0x0264) COMPARE_REALS(double, );
    else if (type->width == 1 && is_signed) COMPARE_INTEGERS(int8_t);
    else if (type->width == 1) COMPARE_INTEGERS(uint8_t);
    else if (type->width == 2 && is_signed) COMPARE_INTEGERS(int16_t);
    else if (type->width == 2) COMPARE_INTEGERS(uint16_t);
    else if (type->width == 4 && is_signed) COMPARE_INTEGERS(int32_t);
    else if (type->width == 4) COMPARE_INTEGERS(uint32_t);
    else if (is_signed) COMPARE_INTEGERS(int64_t);
    else COMPARE_INTEGERS(uint64_t);
    return true;
}
