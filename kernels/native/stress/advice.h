// Systems whose kernel cannot populate memory in advance, as those before Linux 5.14, and those that can.
#pragma once

namespace geartrain::stress {

// From now on the system refuses to populate memory, or does it again.
void refuse_to_populate(bool refuse);

}  // namespace geartrain::stress
