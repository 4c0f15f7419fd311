/* The checksum that plans and events carry, so that damage on their way is told from what they say. */
#include "probe.h"

uint32_t checksum(uint32_t before, const void *data, size_t length) {
    static uint32_t table[256]; /* made by the first event, before there is a second thread */
    if (table[1] == 0)
        for (uint32_t i = 1; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value & 1 ? value >> 1 ^ 0xedb88320 : value >> 1;
            table[i] = value;
        }
    uint32_t crc = ~before;
    for (const unsigned char *at = data, *end = at + length; at < end; at++)
        crc = crc >> 8 ^ table[(crc ^ *at) & 0xff];
    return ~crc;
}
