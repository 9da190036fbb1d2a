/*
 * PMRace's annotation for Brownout: which words in persistent memory are locks, flags and versions.
 *
 * PMRace (Chen et al., ASPLOS 2022, section 5) has one annotation, pm_sync_var_hint(size, initial). It is an attribute on
 * the declaration of a variable or of a member, which its compiler pass reads: size in bytes, and the value that recovery
 * must set it back to.
 *
 * What differs from PMRace:
 *
 * 1. Brownout takes programs as they are compiled, where attributes have gone. pm_sync_var_hint(address, size, initial)
 *    is a call instead, brownout_sync_var(), to be made for each such variable once the pool is open.
 * 2. The attribute with two arguments compiles, and says nothing: a source that was annotated for PMRace needs no change
 *    before it can be built, but the calls must be added for its annotations to count. (From C99 and C++11 on. Before, there
 *    are no macros with either two or three arguments, and only the call exists.)
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef BROWNOUT_PMRACE_H
#define BROWNOUT_PMRACE_H

#include "brownout.h"

#if (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L) || (defined(__cplusplus) && __cplusplus >= 201103L)
#define PMRACE_FOURTH(first, second, third, fourth, ...) fourth
#define PMRACE_CALL(address, size, initial) brownout_sync_var((address), (size), (initial))
#define PMRACE_ATTRIBUTE(size, initial)
#define pm_sync_var_hint(...) PMRACE_FOURTH(__VA_ARGS__, PMRACE_CALL, PMRACE_ATTRIBUTE, , )(__VA_ARGS__)
#else
#define pm_sync_var_hint(address, size, initial) brownout_sync_var((address), (size), (initial))
#endif

#endif /* BROWNOUT_PMRACE_H */
