// What most tests include; see cold.h.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "cold.h"
