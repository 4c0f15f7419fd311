/* Where Android's linker enters a probe that is linked without the NDK's crtbegin_dynamic.o. */
#ifdef PROBE_API

#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

int main(int argc, char **argv);
_Noreturn void __libc_init(void *arguments, void (*at_exit)(void), int (*run)(int, char **),
                           void *const *structors);

/* The linker has called all constructors; destructors, which it is told of here, there are none. */
__attribute__((used)) static _Noreturn void start(void *arguments) {
    static void *const none[8];
    __libc_init(arguments, 0, main, none);
}

__asm__(".text\n"
        ".globl _start\n"
        "_start: mov x29, xzr\n"
        "mov x30, xzr\n"
        "mov x0, sp\n"
        "b start\n"
        ".section .note.android.ident, \"a\", %note\n"
        ".balign 4\n"
        ".long 8, 4, 1\n" /* bytes of the name and of the level; the kind: a version */
        ".asciz \"Android\"\n"
        ".long " TEXT_OF(PROBE_API) "\n");

#endif
