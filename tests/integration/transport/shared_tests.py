"""The tests that every transport passes, for modules with a fixture `device`."""

from tests.integration.transport.adb.test_device_lock import (  # noqa: F401
    test_a_folder_that_cannot_be_written,
    test_it_ends_with_the_connection,
    test_one_holder_at_a_time,
    test_who_stands_in_line_is_not_overtaken,
)
from tests.integration.transport.adb.test_files import (  # noqa: F401
    test_a_file_larger_than_allowed_is_not_kept,
    test_a_file_replaces_the_one_before,
    test_a_link_on_the_device,
    test_a_path_that_adb_cannot_carry,
    test_a_path_where_nobody_may_write,
    test_pull_of_what_is_missing_or_a_folder_leaves_nothing,
    test_there_and_back,
    test_trouble_on_this_host_is_told_as_such,
)
from tests.integration.transport.adb.test_shell import (  # noqa: F401
    test_50_mb_of_input_come_back,
    test_a_caller_that_ends_leaves_nothing,
    test_an_error_of_the_callers_passes_and_ends_the_script,
    test_calls_leave_no_descriptor_open,
    test_endless_output_is_bounded_and_ended,
    test_input_that_nobody_reads_does_not_hold_us,
    test_many_calls_from_many_threads,
    test_no_input_is_an_end_of_file,
    test_output_does_not_put_the_deadline_off,
    test_output_streams_while_the_script_runs,
    test_status,
    test_streams_are_kept_apart_and_binary,
    test_the_deadline_ends_the_whole_family,
)
