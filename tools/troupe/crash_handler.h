#pragma once

#include <string>

#include "runtime/ids.h"

namespace troupe::cli {

/// From now on a crash of this process starts `troupe crash-report` (crash_report.h) before it ends
/// it: a bad access, an illegal instruction, an abort of its own, on any thread. A signal that
/// somebody sent is no crash. The process ends as it would have anyway, with its core dump and its
/// exit status. `head` may be empty: then the join file's addresses count.
void report_crashes(const std::string& join_path, const std::string& head);

/// From now on a crash of this process, a head of that term, is a line at the end of that file
/// before it ends it (actors/head/head_crashes.h). Empty: it is no head any more.
void write_down_crashes(const std::string& path, Incarnation term);

/// As whom: the life that this process is in the cluster, or none ({}, {}).
void report_crashes_as(NodeId node, Incarnation life);

}  // namespace troupe::cli
