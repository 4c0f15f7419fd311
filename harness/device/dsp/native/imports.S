/* What a skel may import, one line each: what the C and C++ libraries give (`given`), what they give
 * under another name (`called`), what is ours (`ours`; in qurt.c, hap.c and service.c, with `dsp_` in
 * front). What is not here ends the process when it is called, and is named then.
 */
    .macro entry name, target
    .pushsection .rodata.names, "a"
name\@: .string "\name"
    .popsection
    .word name\@, \target
    .endm
    .macro given name
    entry \name, \name
    .endm
    .macro called name, target
    entry \name, \target
    .endm
    .macro ours name
    entry \name, dsp_\name
    .endm

    .section .data.rel.ro, "aw"
    .p2align 2
    .globl import_table
import_table:
    ours HAP_debug
    ours HAP_debug_v2
    ours HAP_mem_get_stats
    ours HAP_mem_set_grow_size
    ours HAP_mmap
    ours HAP_mmap2
    ours HAP_mmap_get
    ours HAP_mmap_put
    ours HAP_munmap
    ours HAP_munmap2
    ours HAP_power_destroy_client
    ours HAP_power_set
    ours HAP_timer_sleep
    ours _FFpcomp
    ours _Flt
    ours _Getptoupper
    ours _Log
    ours _Sin
    ours _Stderr
    ours _Stdout
    ours _Stod
    ours _Stoull
    ours _ZNSt3__118condition_variable10notify_allEv
    ours _ZNSt3__118condition_variable4waitERNS_11unique_lockINS_5mutexEEE
    ours _ZNSt3__118condition_variableD1Ev
    ours _ZNSt3__119__shared_mutex_base11lock_sharedEv
    ours _ZNSt3__119__shared_mutex_base13unlock_sharedEv
    ours _ZNSt3__119__shared_mutex_base4lockEv
    ours _ZNSt3__119__shared_mutex_base6unlockEv
    ours _ZNSt3__119__shared_mutex_baseC1Ev
    ours _ZNSt3__15mutex4lockEv
    ours _ZNSt3__15mutex6unlockEv
    ours _ZNSt3__15mutexD1Ev
    ours __register_frame_info_bases
    ours __restore_r16_through_r19_and_deallocframe
    ours __restore_r16_through_r19_and_deallocframe_before_tailcall
    ours __restore_r16_through_r21_and_deallocframe
    ours __restore_r16_through_r21_and_deallocframe_before_tailcall
    ours __restore_r16_through_r23_and_deallocframe
    ours __restore_r16_through_r23_and_deallocframe_before_tailcall
    ours __restore_r16_through_r25_and_deallocframe
    ours __restore_r16_through_r25_and_deallocframe_before_tailcall
    ours __restore_r16_through_r27_and_deallocframe
    ours __restore_r16_through_r27_and_deallocframe_before_tailcall
    ours __save_r16_through_r19
    ours __save_r16_through_r21
    ours __save_r16_through_r23
    ours __save_r16_through_r25
    ours __save_r16_through_r27
    ours __tls_get_addr
    ours __wrap_free
    ours __wrap_malloc
    ours __wrap_memalign
    ours __wrap_realloc
    ours adsp_mmap_fd_getinfo
    ours compute_resource_acquire
    ours compute_resource_acquire_cached
    ours compute_resource_attr_get_vtcm_ptr_v2
    ours compute_resource_attr_init
    ours compute_resource_attr_set_cache_mode
    ours compute_resource_attr_set_hmx_param
    ours compute_resource_attr_set_release_callback
    ours compute_resource_attr_set_vtcm_param_v2
    ours compute_resource_check_release_request
    ours compute_resource_hmx_lock
    ours compute_resource_hmx_unlock
    ours compute_resource_query_VTCM
    ours compute_resource_release
    ours compute_resource_release_cached
    ours dladdr
    ours dlclose
    ours dlerror
    ours dlopen
    ours dlopenbuf
    ours dlsym
    ours dspqueue_close
    ours dspqueue_import
    ours dspqueue_read
    ours dspqueue_read_noblock
    ours dspqueue_write
    ours dspqueue_write_noblock
    ours fflush
    ours fprintf
    ours fputc
    ours fputs
    ours fwrite
    ours open
    ours printf
    ours pthread_create
    ours qurt_cond_broadcast
    ours qurt_cond_destroy
    ours qurt_cond_init
    ours qurt_cond_signal
    ours qurt_cond_wait
    ours qurt_futex_wait
    ours qurt_futex_wake
    ours qurt_hvx_get_units
    ours qurt_hvx_lock
    ours qurt_hvx_unlock
    ours qurt_lookup_physaddr_64
    ours qurt_mem_cache_clean
    ours qurt_mem_cache_phys_clean
    ours qurt_mutex_destroy
    ours qurt_mutex_init
    ours qurt_mutex_lock
    ours qurt_mutex_try_lock
    ours qurt_mutex_unlock
    ours qurt_pmu_get
    ours qurt_pmu_set
    ours qurt_qdi_qhi3
    ours qurt_qdi_qhi4
    ours qurt_qdi_qhi5
    ours qurt_signal_clear
    ours qurt_signal_destroy
    ours qurt_signal_init
    ours qurt_signal_set
    ours qurt_signal_wait
    ours qurt_signal_wait_timed
    ours qurt_sysenv_get_hw_threads
    ours qurt_sysenv_get_max_hw_threads
    ours qurt_thread_create
    ours qurt_thread_exit
    ours qurt_thread_get_id
    ours qurt_thread_get_priority
    ours qurt_thread_join
    ours qurt_thread_set_priority
    ours snprintf
    ours u2g_client_close
    ours u2g_client_open
    ours vprintf
    ours vsnprintf
    called _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE5seekgENS_4fposI9_MbstatetEE, _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE5seekgENS_4fposI11__mbstate_tEE
    called _ZNSt3__17codecvtIcc9_MbstatetE2idE, _ZNSt3__17codecvtIcc11__mbstate_tE2idE
    called sysmon_set_dcvs_v3_protected_bus_corners, dsp_sysmon_set
    called sysmon_set_ddr_perf_mode, dsp_sysmon_set
    given _Unwind_Resume
    given _ZNKSt13runtime_error4whatEv
    given _ZNKSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE4copyEPcjj
    given _ZNKSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE4findEcj
    given _ZNKSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE5rfindEcj
    given _ZNKSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE7compareEPKc
    given _ZNKSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE7compareEjjPKc
    given _ZNKSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE7compareEjjPKcj
    given _ZNKSt3__119__shared_weak_count13__get_deleterERKSt9type_info
    given _ZNKSt3__120__vector_base_commonILb1EE20__throw_length_errorEv
    given _ZNKSt3__120__vector_base_commonILb1EE20__throw_out_of_rangeEv
    given _ZNKSt3__121__basic_string_commonILb1EE20__throw_length_errorEv
    given _ZNKSt3__123__match_any_but_newlineIcE6__execERNS_7__stateIcEE
    given _ZNKSt3__16locale4nameEv
    given _ZNKSt3__16locale9has_facetERNS0_2idE
    given _ZNKSt3__16locale9use_facetERNS0_2idE
    given _ZNKSt3__18ios_base6getlocEv
    given _ZNKSt9exception4whatEv
    given _ZNSt11logic_errorC2EPKc
    given _ZNSt12length_errorD1Ev
    given _ZNSt12out_of_rangeD1Ev
    given _ZNSt13runtime_errorC1EPKc
    given _ZNSt13runtime_errorC1ERKNSt3__112basic_stringIcNS0_11char_traitsIcEENS0_9allocatorIcEEEE
    given _ZNSt13runtime_errorC2EPKc
    given _ZNSt13runtime_errorD1Ev
    given _ZNSt13runtime_errorD2Ev
    given _ZNSt19bad_optional_accessD1Ev
    given _ZNSt20bad_array_new_lengthC1Ev
    given _ZNSt20bad_array_new_lengthD1Ev
    given _ZNSt3__111__call_onceERVmPvPFvS2_E
    given _ZNSt3__111regex_errorC1ENS_15regex_constants10error_typeE
    given _ZNSt3__111regex_errorD1Ev
    given _ZNSt3__112__next_primeEj
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE5eraseEjj
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6appendEPKc
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6appendEPKcj
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6assignEPKc
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6assignEPKcj
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6assignEjc
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6insertEjPKc
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6insertEjPKcj
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6resizeEjc
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE7replaceEjjPKcj
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE9push_backEc
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEC1ERKS5_
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEC1ERKS5_jjRKS4_
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEC2ERKS5_
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEC2ERKS5_jjRKS4_
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEED2Ev
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEaSERKS5_
    given _ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEaSEc
    given _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE5tellgEv
    given _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE6sentryC1ERS3_b
    given _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEED0Ev
    given _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEED1Ev
    given _ZNSt3__113basic_istreamIcNS_11char_traitsIcEEED2Ev
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEE3putEc
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEE5flushEv
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEE5writeEPKci
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEE6sentryC1ERS3_
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEE6sentryD1Ev
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEED0Ev
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEED1Ev
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEED2Ev
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEElsEPNS_15basic_streambufIcS2_EE
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEElsEf
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEElsEi
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEElsEj
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEElsEm
    given _ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEElsEx
    given _ZNSt3__114basic_iostreamIcNS_11char_traitsIcEEED0Ev
    given _ZNSt3__114basic_iostreamIcNS_11char_traitsIcEEED1Ev
    given _ZNSt3__114basic_iostreamIcNS_11char_traitsIcEEED2Ev
    given _ZNSt3__115__get_classnameEPKcb
    given _ZNSt3__115__thread_structC1Ev
    given _ZNSt3__115__thread_structD1Ev
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE4syncEv
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE5imbueERKNS_6localeE
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE5uflowEv
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE6setbufEPci
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE6xsgetnEPci
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE6xsputnEPKci
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE9showmanycEv
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEEC2Ev
    given _ZNSt3__115basic_streambufIcNS_11char_traitsIcEEED2Ev
    given _ZNSt3__119__shared_weak_count14__release_weakEv
    given _ZNSt3__119__shared_weak_count4lockEv
    given _ZNSt3__119__shared_weak_countD2Ev
    given _ZNSt3__119__thread_local_dataEv
    given _ZNSt3__120__get_collation_nameEPKc
    given _ZNSt3__120__throw_system_errorEiPKc
    given _ZNSt3__14cerrE
    given _ZNSt3__14coutE
    given _ZNSt3__14stoiERKNS_12basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEEPji
    given _ZNSt3__15ctypeIcE2idE
    given _ZNSt3__15stoulERKNS_12basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEEPji
    given _ZNSt3__16__sortIRNS_6__lessIttEEPtEEvT0_S5_T_
    given _ZNSt3__16chrono12steady_clock3nowEv
    given _ZNSt3__16chrono12system_clock3nowEv
    given _ZNSt3__16locale5facet16__on_zero_sharedEv
    given _ZNSt3__16locale5facetD2Ev
    given _ZNSt3__16localeC1ERKS0_
    given _ZNSt3__16localeC1Ev
    given _ZNSt3__16localeD1Ev
    given _ZNSt3__16stoullERKNS_12basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEEPji
    given _ZNSt3__16thread20hardware_concurrencyEv
    given _ZNSt3__16thread4joinEv
    given _ZNSt3__16threadD1Ev
    given _ZNSt3__17collateIcE2idE
    given _ZNSt3__18ios_base33__set_badbit_and_consider_rethrowEv
    given _ZNSt3__18ios_base4InitC1Ev
    given _ZNSt3__18ios_base4InitD1Ev
    given _ZNSt3__18ios_base4initEPv
    given _ZNSt3__18ios_base5clearEj
    given _ZNSt3__18numpunctIcE2idE
    given _ZNSt3__19basic_iosIcNS_11char_traitsIcEEED2Ev
    given _ZNSt3__19to_stringEd
    given _ZNSt3__19to_stringEf
    given _ZNSt3__19to_stringEi
    given _ZNSt3__19to_stringEj
    given _ZNSt3__19to_stringEl
    given _ZNSt3__19to_stringEm
    given _ZNSt3__19to_stringEy
    given _ZNSt3__1plIcNS_11char_traitsIcEENS_9allocatorIcEEEENS_12basic_stringIT_T0_T1_EEPKS6_RKS9_
    given _ZNSt8bad_castC1Ev
    given _ZNSt8bad_castD1Ev
    given _ZNSt9bad_allocC1Ev
    given _ZNSt9bad_allocD1Ev
    given _ZNSt9exceptionD2Ev
    given _ZSt7nothrow
    given _ZSt9terminatev
    given _ZTINSt3__111regex_errorE
    given _ZTINSt3__113basic_istreamIcNS_11char_traitsIcEEEE
    given _ZTINSt3__113basic_ostreamIcNS_11char_traitsIcEEEE
    given _ZTINSt3__114basic_iostreamIcNS_11char_traitsIcEEEE
    given _ZTINSt3__115basic_streambufIcNS_11char_traitsIcEEEE
    given _ZTINSt3__119__shared_weak_countE
    given _ZTINSt3__16locale5facetE
    given _ZTISt12length_error
    given _ZTISt12out_of_range
    given _ZTISt13runtime_error
    given _ZTISt18bad_variant_access
    given _ZTISt19bad_optional_access
    given _ZTISt20bad_array_new_length
    given _ZTISt8bad_cast
    given _ZTISt9bad_alloc
    given _ZTISt9exception
    given _ZTIb
    given _ZTIl
    given _ZTIm
    given _ZTIy
    given _ZTVN10__cxxabiv117__class_type_infoE
    given _ZTVN10__cxxabiv119__pointer_type_infoE
    given _ZTVN10__cxxabiv120__function_type_infoE
    given _ZTVN10__cxxabiv120__si_class_type_infoE
    given _ZTVN10__cxxabiv121__vmi_class_type_infoE
    given _ZTVSt12length_error
    given _ZTVSt12out_of_range
    given _ZTVSt18bad_variant_access
    given _ZTVSt19bad_optional_access
    given _ZThn8_NSt3__114basic_iostreamIcNS_11char_traitsIcEEED0Ev
    given _ZThn8_NSt3__114basic_iostreamIcNS_11char_traitsIcEEED1Ev
    given _ZTv0_n12_NSt3__113basic_istreamIcNS_11char_traitsIcEEED0Ev
    given _ZTv0_n12_NSt3__113basic_istreamIcNS_11char_traitsIcEEED1Ev
    given _ZTv0_n12_NSt3__113basic_ostreamIcNS_11char_traitsIcEEED0Ev
    given _ZTv0_n12_NSt3__113basic_ostreamIcNS_11char_traitsIcEEED1Ev
    given _ZTv0_n12_NSt3__114basic_iostreamIcNS_11char_traitsIcEEED0Ev
    given _ZTv0_n12_NSt3__114basic_iostreamIcNS_11char_traitsIcEEED1Ev
    given _ZdaPv
    given _ZdaPvSt11align_val_t
    given _ZdlPv
    given _ZdlPvRKSt9nothrow_t
    given _ZdlPvSt11align_val_t
    given _Znaj
    given _ZnajSt11align_val_t
    given _Znwj
    given _ZnwjRKSt9nothrow_t
    given _ZnwjSt11align_val_t
    given __cxa_allocate_exception
    given __cxa_atexit
    given __cxa_bad_cast
    given __cxa_bad_typeid
    given __cxa_begin_catch
    given __cxa_end_catch
    given __cxa_finalize
    given __cxa_free_exception
    given __cxa_guard_abort
    given __cxa_guard_acquire
    given __cxa_guard_release
    given __cxa_pure_virtual
    given __cxa_rethrow
    given __cxa_thread_atexit
    given __cxa_throw
    given __dynamic_cast
    given __gxx_personality_v0
    given __hexagon_divdf3
    given __hexagon_divsf3
    given __hexagon_divsi3
    given __hexagon_memcpy_likely_aligned_min32bytes_mult8bytes
    given __hexagon_modsi3
    given __hexagon_udivdi3
    given __hexagon_udivsi3
    given __hexagon_umoddi3
    given __hexagon_umodsi3
    given access
    given asinf
    given ceil
    given ceilf
    given close
    given cosf
    given erf
    given erfc
    given exp2
    given exp2f
    given expf
    given fclose
    given floor
    given floorf
    given fmodf
    given fopen
    given fread
    given frexpf
    given fseek
    given fseeko
    given fstat
    given ftell
    given ftello
    given ftruncate
    given getcwd
    given getenv
    given getpid
    given ilogb
    given ldexp
    given ldexpf
    given log10f
    given log2f
    given logf
    given lroundf
    given lseek
    given memchr
    given memcmp
    given memcpy
    given memmove
    given memset
    given nearbyintf
    given pow
    given powf
    given pthread_self
    given pthread_setspecific
    given puts
    given read
    given remove
    given rename
    given rintf
    given round
    given roundf
    given sinf
    given sqrt
    given sqrtf
    given stat
    given strcmp
    given strdup
    given strerror
    given strlcpy
    given strlen
    given strncmp
    given strstr
    given strtok_r
    given sysconf
    given tanhf
    given wmemchr
    given write
import_table_end:
    .globl import_count
import_count: .word (import_table_end - import_table) / 8

/* Functions with arguments that are not named: where those begin on the stack goes along. */
    .text
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
