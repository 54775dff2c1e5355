#pragma once
#include <array>
