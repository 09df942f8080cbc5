// SPDX-License-Identifier: Apache-2.0
// Everything a program needs, in one include. Larger programs include what they use.
#pragma once

#include <millrace/base/attribute_map.h>
#include <millrace/base/clock.h>
#include <millrace/base/error.h>
#include <millrace/base/log.h>
#include <millrace/base/manual_clock.h>
#include <millrace/base/result.h>
#include <millrace/base/task.h>
#include <millrace/base/version.h>
#include <millrace/concurrent/combine.h>
#include <millrace/concurrent/event_executor.h>
#include <millrace/concurrent/future.h>
#include <millrace/concurrent/global_executor.h>
#include <millrace/concurrent/rejection.h>
#include <millrace/concurrent/scheduled_future.h>
#include <millrace/concurrent/thread_pool.h>
#include <millrace/loop/event_loop.h>
#include <millrace/loop/event_loop_group.h>
#include <millrace/loop/io.h>
#include <millrace/loop/loop_options.h>
#include <millrace/loop/metrics.h>
#include <millrace/loop/watch.h>
#include <millrace/sys/events.h>
#include <millrace/sys/socket_address.h>
