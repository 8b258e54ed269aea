#pragma once

/// How a test tells libnccl's double what to do wrong (double.cpp): looked up by name in the loaded
/// library. A process takes TROUPE_NCCL_DOUBLE from its environment at first.
extern "C" {

/// Forgets all counts and all that was asked for, and asks for this: entries with ';' between.
///
///     version=V         the library's version
///     rank=R            what follows happens to calls and groups of that rank only
///     fail=NAME:N[:C]   the N-th call of that function returns the error C (3)
///     hang=NAME:N       it does not return before nccl_double_release()
///     delay=US,seed=S   a group takes up to US microseconds longer, by chance
///     break=N           with the N-th group its rank closes its connections
///     stall=N           the N-th group does nothing for ever
///     short=N, long=N   the N-th group sends a byte less, or more, than it was asked for
///     quiet=1           connections that end are not noticed
void nccl_double_set(const char* what);
/// Calls that hang return.
void nccl_double_release();
/// Communicators that have not been aborted; groups that were carried out since nccl_double_set().
int nccl_double_alive();
int nccl_double_groups();
}
