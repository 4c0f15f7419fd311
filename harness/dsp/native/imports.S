/* What a skel may import, by the beginning and the rest of its name: what the C and C++ libraries
 * give (`given`, `string`, `stream`), what they or we give under another name (`called`), what is
 * ours (`ours`: the same with `dsp_` in front). What is not here ends the process when it is called,
 * and is named then. (No rest begins with a number and l or u: the assembler takes that for one.)
 */
    .macro entry name, target
    .pushsection .rodata.names, "a"
name\@: .string "\name"
    .popsection
    .word name\@, \target
    .endm
    .macro given prefix, names:vararg
    .irp rest, \names
    entry \prefix\rest, \prefix\rest
    .endr
    .endm
    .macro string kind, names:vararg
    given _Z\kind\()St3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE, \names
    .endm
    .macro stream class, names:vararg
    given _ZNSt3__1\class\()IcNS_11char_traitsIcEEE, \names
    .endm
    .macro called target, names:vararg
    .irp name, \names
    entry \name, \target
    .endr
    .endm
    .macro ours prefix, names:vararg
    .irp rest, \names
    entry \prefix\rest, dsp_\prefix\rest
    .endr
    .endm

    .section .data.rel.ro, "aw"
    .p2align 2
    .globl import_table
import_table:
    ours HAP_, debug, debug_v2, mem_get_stats, mmap, mmap2, mmap_get, mmap_put
    ours HAP_, power_destroy_client, power_set
    ours _ZNSt3__1, 18condition_variable4waitERNS_11unique_lockINS_5mutexEEE
    ours _ZNSt3__1, 19__shared_mutex_base11lock_sharedEv, 19__shared_mutex_base4lockEv
    ours _ZNSt3__1, 19__shared_mutex_baseC1Ev
    ours compute_resource_, acquire, acquire_cached, attr_get_vtcm_ptr_v2, attr_init
    ours compute_resource_, attr_set_cache_mode, attr_set_release_callback, attr_set_vtcm_param_v2
    ours compute_resource_, check_release_request, query_VTCM, release, release_cached
    ours dspqueue_, close, import, read_noblock, write_noblock
    ours qurt_, cond_signal, cond_wait, futex_wait, futex_wake, hvx_get_units, lookup_physaddr_64
    ours qurt_, mutex_try_lock, signal_clear, signal_set, signal_wait, signal_wait_timed
    ours qurt_, thread_create, thread_exit, thread_get_id, thread_get_priority, thread_join
    ours qurt_, thread_set_priority
    ours __restore_r16_through_, r19_and_deallocframe, r19_and_deallocframe_before_tailcall
    ours __restore_r16_through_, r21_and_deallocframe, r21_and_deallocframe_before_tailcall
    ours __restore_r16_through_, r23_and_deallocframe, r23_and_deallocframe_before_tailcall
    ours __restore_r16_through_, r25_and_deallocframe, r25_and_deallocframe_before_tailcall
    ours __restore_r16_through_, r27_and_deallocframe, r27_and_deallocframe_before_tailcall
    ours __save_r16_through_, r19, r21, r23, r25, r27
    ours , _FFpcomp, _Flt, _Getptoupper, _Log, _Sin, __register_frame_info_bases
    ours , __tls_get_addr, dlerror, dlopen, dlsym, fprintf, open
    ours , printf, pthread_create, snprintf
    called answer_0, HAP_mem_set_grow_size
    called answer_0, _ZNSt3__118condition_variableD1Ev, _ZNSt3__15mutexD1Ev, dladdr, dlclose
    called answer_0, compute_resource_attr_set_hmx_param, compute_resource_hmx_lock
    called answer_0, compute_resource_hmx_unlock
    called answer_0, dlopenbuf, qurt_cond_destroy, qurt_hvx_lock, qurt_hvx_unlock
    called answer_0, qurt_mem_cache_clean, qurt_mem_cache_phys_clean, qurt_mutex_destroy
    called answer_0, qurt_pmu_get, qurt_pmu_set, qurt_signal_destroy
    called answer_0, sysmon_set_dcvs_v3_protected_bus_corners, sysmon_set_ddr_perf_mode
    called answer_minus_1, adsp_mmap_fd_getinfo, qurt_qdi_qhi3, qurt_qdi_qhi4, qurt_qdi_qhi5
    called answer_minus_1, u2g_client_close, u2g_client_open
    called clear_object, qurt_cond_init, qurt_mutex_init, qurt_signal_init
    called take_lock, _ZNSt3__15mutex4lockEv, qurt_mutex_lock
    called give_lock, _ZNSt3__15mutex6unlockEv, qurt_mutex_unlock
    called broadcast, _ZNSt3__118condition_variable10notify_allEv, qurt_cond_broadcast
    called give_shared_mutex, _ZNSt3__119__shared_mutex_base13unlock_sharedEv
    called give_shared_mutex, _ZNSt3__119__shared_mutex_base6unlockEv
    called take_packet, dspqueue_read
    called dsp_dspqueue_write_noblock, dspqueue_write
    called unmap_address, HAP_munmap, HAP_munmap2
    called tell_hardware_threads, qurt_sysenv_get_hw_threads, qurt_sysenv_get_max_hw_threads
    called free, __wrap_free
    called malloc, __wrap_malloc
    called memalign, __wrap_memalign
    called realloc, __wrap_realloc
    called strtod, _Stod
    called strtoull, _Stoull
    called usleep, HAP_timer_sleep
    called __stderr_FILE, _Stderr, _Stdout
    called stack_vprintf, vprintf
    called stack_vsnprintf, vsnprintf
    called _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE5seekgENS_4fposI11__mbstate_tEE, _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE5seekgENS_4fposI9_MbstatetEE
    called _ZNSt3__17codecvtIcc11__mbstate_tE2idE, _ZNSt3__17codecvtIcc9_MbstatetE2idE
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE5uflow, Ev
    string N, 5eraseEjj, 6appendEPKc, 6appendEPKcj, 6assignEPKc, 6assignEPKcj, 6assignEjc
    string N, 6insertEjPKc, 6insertEjPKcj, 6resizeEjc, 7replaceEjjPKcj, 9push_backEc, C1ERKS5_
    string N, C1ERKS5_jjRKS4_, C2ERKS5_, C2ERKS5_jjRKS4_, D2Ev, aSERKS5_, aSEc
    string NK, 4copyEPcjj, 4findEcj, 5rfindEcj, 7compareEPKc, 7compareEjjPKc, 7compareEjjPKcj
    stream 13basic_istream, 5tellgEv, 6sentryC1ERS3_b, D0Ev, D1Ev, D2Ev
    stream 13basic_ostream, 3putEc, 5flushEv, 5writeEPKci, 6sentryC1ERS3_, 6sentryD1Ev, D0Ev, D1Ev
    stream 13basic_ostream, D2Ev, lsEPNS_15basic_streambufIcS2_EE, lsEf, lsEi, lsEj, lsEm, lsEx
    stream 14basic_iostream, D0Ev, D1Ev, D2Ev
    stream 15basic_streambuf, 4syncEv, 5imbueERKNS_6localeE, 6setbufEPci, 6xsgetnEPci, 6xsputnEPKci
    stream 15basic_streambuf, 9showmanycEv, C2Ev, D2Ev
    given _ZNSt3__16locale, 5facet16__on_zero_sharedEv, 5facetD2Ev, C1ERKS0_, C1Ev, D1Ev
    given _ZNKSt3__16locale, 4nameEv, 9has_facetERNS0_2idE
    given _ZNKSt3__16locale9use_facet, ERNS0_2idE
    given _ZNSt11logic_error, C2EPKc
    given _ZNSt12length_error, D1Ev
    given _ZNSt3__1, 11__call_onceERVmPvPFvS2_E, 11regex_errorC1ENS_15regex_constants10error_typeE
    given _ZNSt3__1, 11regex_errorD1Ev, 12__next_primeEj, 15__get_classnameEPKcb
    given _ZNSt3__1, 15__thread_structC1Ev, 15__thread_structD1Ev
    given _ZNSt3__1, 19__shared_weak_count14__release_weakEv, 19__shared_weak_count4lockEv
    given _ZNSt3__1, 19__shared_weak_countD2Ev, 19__thread_local_dataEv, 20__get_collation_nameEPKc
    given _ZNSt3__1, 20__throw_system_errorEiPKc, 4cerrE, 4coutE
    given _ZNSt3__1, 4stoiERKNS_12basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEEPji
    given _ZNSt3__1, 5ctypeIcE2idE
    given _ZNSt3__1, 5stoulERKNS_12basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEEPji
    given _ZNSt3__1, 6__sortIRNS_6__lessIttEEPtEEvT0_S5_T_, 6chrono12steady_clock3nowEv
    given _ZNSt3__1, 6chrono12system_clock3nowEv
    given _ZNSt3__1, 6stoullERKNS_12basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEEPji
    given _ZNSt3__1, 6thread20hardware_concurrencyEv, 6thread4joinEv, 6threadD1Ev, 7collateIcE2idE
    given _ZNSt3__1, 8ios_base33__set_badbit_and_consider_rethrowEv, 8ios_base4InitC1Ev
    given _ZNSt3__1, 8ios_base4InitD1Ev, 8ios_base4initEPv, 8ios_base5clearEj, 8numpunctIcE2idE
    given _ZNSt3__1, 9basic_iosIcNS_11char_traitsIcEEED2Ev, 9to_stringEd, 9to_stringEf, 9to_stringEi
    given _ZNSt3__1, 9to_stringEj, 9to_stringEl, 9to_stringEm, 9to_stringEy
    given _ZNSt3__1, plIcNS_11char_traitsIcEENS_9allocatorIcEEEENS_12basic_stringIT_T0_T1_EEPKS6_RKS9_
    given _ZNKSt3__1, 19__shared_weak_count13__get_deleterERKSt9type_info
    given _ZNKSt3__1, 20__vector_base_commonILb1EE20__throw_length_errorEv
    given _ZNKSt3__1, 20__vector_base_commonILb1EE20__throw_out_of_rangeEv
    given _ZNKSt3__1, 21__basic_string_commonILb1EE20__throw_length_errorEv
    given _ZNKSt3__1, 23__match_any_but_newlineIcE6__execERNS_7__stateIcEE, 8ios_base6getlocEv
    given _ZTI, NSt3__111regex_errorE, NSt3__113basic_istreamIcNS_11char_traitsIcEEEE
    given _ZTI, NSt3__113basic_ostreamIcNS_11char_traitsIcEEEE
    given _ZTI, NSt3__114basic_iostreamIcNS_11char_traitsIcEEEE
    given _ZTI, NSt3__115basic_streambufIcNS_11char_traitsIcEEEE, NSt3__119__shared_weak_countE
    given _ZTI, NSt3__16locale5facetE, St12length_error, St12out_of_range, St13runtime_error
    given _ZTI, St18bad_variant_access, St19bad_optional_access, St20bad_array_new_length
    given _ZTI, St8bad_cast, St9bad_alloc, St9exception, b, l, m, y
    given _ZTV, N10__cxxabiv117__class_type_infoE, N10__cxxabiv119__pointer_type_infoE
    given _ZTV, N10__cxxabiv120__function_type_infoE, N10__cxxabiv120__si_class_type_infoE
    given _ZTV, N10__cxxabiv121__vmi_class_type_infoE, St12length_error, St12out_of_range
    given _ZTV, St18bad_variant_access, St19bad_optional_access
    given _ZThn8_NSt3__114basic_iostreamIcNS_11char_traitsIcEEE, D0Ev, D1Ev
    given _ZTv0_n12_NSt3__113basic_istreamIcNS_11char_traitsIcEEE, D0Ev, D1Ev
    given _ZTv0_n12_NSt3__113basic_ostreamIcNS_11char_traitsIcEEE, D0Ev, D1Ev
    given _ZTv0_n12_NSt3__114basic_iostreamIcNS_11char_traitsIcEEE, D0Ev, D1Ev
    given _ZNSt, 12out_of_rangeD1Ev, 13runtime_errorC1EPKc
    given _ZNSt, 13runtime_errorC1ERKNSt3__112basic_stringIcNS0_11char_traitsIcEENS0_9allocatorIcEEEE
    given _ZNSt, 13runtime_errorC2EPKc, 13runtime_errorD1Ev, 13runtime_errorD2Ev
    given _ZNSt, 19bad_optional_accessD1Ev, 20bad_array_new_lengthC1Ev, 20bad_array_new_lengthD1Ev
    given _ZNSt, 8bad_castC1Ev, 8bad_castD1Ev, 9bad_allocC1Ev, 9bad_allocD1Ev, 9exceptionD2Ev
    given _Z, NKSt13runtime_error4whatEv, NKSt9exception4whatEv, St7nothrow, St9terminatev, daPv
    given _Z, daPvSt11align_val_t, dlPv, dlPvRKSt9nothrow_t, dlPvSt11align_val_t, naj
    given _Z, najSt11align_val_t, nwj, nwjRKSt9nothrow_t, nwjSt11align_val_t
    given __cxa_, allocate_exception, atexit, bad_cast, bad_typeid, begin_catch, end_catch, finalize
    given __cxa_, free_exception, guard_abort, guard_acquire, guard_release, pure_virtual, rethrow
    given __cxa_, thread_atexit, throw
    given __hexagon_, divdf3, divsf3, divsi3, memcpy_likely_aligned_min32bytes_mult8bytes, modsi3
    given __hexagon_, udivdi3, udivsi3, umoddi3, umodsi3
    given , fflush, fputc, fputs, fwrite
    given , _Unwind_Resume, __dynamic_cast, __gxx_personality_v0, access, asinf, ceil, ceilf, close
    given , cosf, erf, erfc, exp2, exp2f, expf, fclose, floor, floorf, fmodf, fopen, fread, frexpf
    given , fseek, fseeko, fstat, ftell, ftello, ftruncate, getcwd, getenv, getpid, ilogb, ldexp
    given , ldexpf, log10f, log2f, logf, lroundf, lseek, memchr, memcmp, memcpy, memmove, memset
    given , nearbyintf, pow, powf, pthread_self, pthread_setspecific, puts, read, remove, rename
    given , rintf, round, roundf, sinf, sqrt, sqrtf, stat, strcmp, strdup, strerror, strlcpy, strlen
    given , strncmp, strstr, strtok_r, sysconf, tanhf, wmemchr, write
import_table_end:
    .globl import_count
import_count: .word (import_table_end - import_table) / 8

    .text
    .p2align 4
answer_0:
    { r0 = #0; jumpr r31 }
answer_minus_1:
    { r0 = #-1; jumpr r31 }

/* Functions with arguments that are not named: where those begin on the stack goes along. */
    .macro on_stack name, register, target
    .p2align 4
dsp_\name:
    { \register = r29 }
    { jump \target }
    .endm
    on_stack printf, r1, stack_vprintf
    on_stack fprintf, r2, stack_vfprintf
    on_stack snprintf, r3, stack_vsnprintf
    on_stack HAP_debug_v2, r4, stack_debug
    .p2align 4
dsp_open:
    { r2 = r29 }
    { jump stack_open }

/* Registers that a function keeps below its frame, as functions of older skels share it. */
    .macro saves last, first, offset
dsp___save_r16_through_r\last:
    { memd(r30+#-\offset) = r\last:\first }
    .endm
    .macro restores ending, last, first, offset
dsp___restore_r16_through_r\last\()_and_deallocframe\ending:
    { r\last:\first = memd(r30+#-\offset) }
    .endm
    .p2align 4
    saves 27, 26, 48
    saves 25, 24, 40
    saves 23, 22, 32
    saves 21, 20, 24
    saves 19, 18, 16
    { memd(r30+#-8) = r17:16; jumpr r31 }
    restores , 27, 26, 48
    restores , 25, 24, 40
    restores , 23, 22, 32
    restores , 21, 20, 24
    restores , 19, 18, 16
    { r17:16 = memd(r30+#-8) }
    { dealloc_return }
    restores _before_tailcall, 27, 26, 48
    restores _before_tailcall, 25, 24, 40
    restores _before_tailcall, 23, 22, 32
    restores _before_tailcall, 21, 20, 24
    restores _before_tailcall, 19, 18, 16
    { r17:16 = memd(r30+#-8) }
    { deallocframe; jumpr r31 }

/* One for each import that is not here: it tells its number and who called. */
    .p2align 4
    .globl unlisted_stubs
unlisted_stubs:
    .set number, 0
    .rept 64
    .p2align 4
    { r0 = #number; r1 = r31 }
    { jump unlisted_called }
    .set number, number + 1
    .endr
