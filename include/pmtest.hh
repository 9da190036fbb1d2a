/* PMTest's name for its C++ header. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pmtest.h"
